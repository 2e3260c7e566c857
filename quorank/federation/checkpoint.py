"""CoordinatorCheckpoint of a federation: its state as named arrays, in one file with a digest."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorank.errors import BadInput, require
from quorank.federation.participation import TurnsTaken
from quorank.federation.rounds import Report, State
from quorank.files.atomic import read_whole
from quorank.files.npz import LARGEST, Arrays, ArrayShape, archive_bytes, parse_arrays, write_arrays

_ADVICE = "; restore it from a copy"


def state_arrays(state: State) -> Arrays:
    """Return a state as named arrays, which `parse_state` reads."""
    arrays: Arrays = {f"memory:{k}": v for k, v in state.memory.items()}
    arrays |= {f"private:{k}": v for k, v in state.private.items()}
    arrays |= {f"rule:{k}": v for k, v in state.rule.items()}
    for name in ("personal", "history", "carried"):
        value = getattr(state, name)
        if value is not None:
            arrays[name] = value
    if state.turns is not None:
        arrays |= {"turns:times": state.turns.times, "turns:last": state.turns.last}
    return arrays | {"theta": state.theta, "round": np.array(state.round, dtype=np.int64)}


def parse_state(arrays: Arrays) -> State:
    """Return the state of these arrays; raises KeyError if one is missing."""
    return State(
        int(arrays["round"]),
        arrays["theta"],
        strip_prefix(arrays, "memory:"),
        strip_prefix(arrays, "private:"),
        arrays.get("personal"),
        arrays.get("history"),
        strip_prefix(arrays, "rule:"),
        TurnsTaken(arrays["turns:times"], arrays["turns:last"]) if "turns:times" in arrays else None,
        arrays.get("carried"),
    )


def strip_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names have the prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def state_shapes() -> dict[str, ArrayShape]:
    """Return the shapes in a state's archive; `state_fault` compares the rest with the run's initial state."""
    return {
        "theta": ArrayShape("f8", (None,)),
        "round": ArrayShape("i8", ()),
        "memory:*": ArrayShape(""),
        "private:*": ArrayShape(""),
        "rule:*": ArrayShape("f8", finite=True),
        "personal": ArrayShape("f8", (None, None), optional=True),
        "history": ArrayShape("f8", (None, None), optional=True),
        "carried": ArrayShape("f8", (None, None), optional=True),
        "turns:times": ArrayShape("i4", (None,), optional=True),
        "turns:last": ArrayShape("i4", (None,), optional=True),
    }


def state_fault(state: State, start: State, clients: int) -> str:
    """Return why a saved state cannot belong to the run that begins with `start`; empty if it can.

    The first rounds add what `start` lacks: a history has one row per client, and each dimension of a rule's memory is 1
    or the number of parameters.
    """
    for what, found, expected in (("memory", state.memory, start.memory), ("private", state.private, start.private)):
        if {*found} != {*expected}:
            return f"{what} of other parts"
        for name, array in expected.items():
            if found[name].shape != array.shape or found[name].dtype != array.dtype:
                return f"{what} {name} of another shape"
    if (state.personal is None) != (start.personal is None):
        return "personal parameters of other parts"
    if (state.carried is None) != (start.carried is None):
        return "momentum of other parts"
    fault = "" if state.turns is None else turns_fault(state.turns, state.round)
    if fault or (state.turns is None) != (start.turns is None) or (state.turns and len(state.turns.times) != clients):
        return fault or "turns of other clients"
    for rows in (state.personal, state.history, state.carried):
        if rows is not None and rows.shape != (clients, len(start.theta)):
            return "rows of other clients"
    if any(set(array.shape) - {1, len(start.theta)} for array in state.rule.values()):
        return "memory of a rule of another shape"
    return ""


def turns_fault(turns: TurnsTaken, rounds: int) -> str:
    """Return why these turns are impossible after this number of rounds; empty if they are possible."""
    times, last = turns.times, turns.last
    if times.shape != last.shape:
        return "turns of other clients"
    possible = (times >= 0) & (times <= last + 1) & (last >= -1) & (last < rounds) & ((times == 0) == (last == -1))
    return "" if bool(possible.all()) else "turns that were not taken"


class CoordinatorCheckpoint(NamedTuple):
    """State of a coordinator's run between two rounds."""

    state: State
    run: str
    reports: list[Report]  # of all rounds done
    refused: dict[str, int]  # refused replies by error code

    def arrays(self) -> Arrays:
        """Return everything as named arrays, which `parse` reads."""
        table = np.array(self.reports, dtype=np.float64).reshape(-1, len(Report._fields))
        arrays = state_arrays(self.state) | {"reports": table, "run": np.array(self.run)}
        arrays["refused"] = np.array(list(self.refused), dtype=np.str_)
        arrays["refusals"] = np.array([*self.refused.values()], dtype=np.int64)
        return arrays

    def with_lost_rounds(self, rounds: int) -> CoordinatorCheckpoint:
        """Return the checkpoint after `rounds` more rounds without a step, counted as spent in the ledger.

        For a restored backup: clients have answered these rounds, and nothing else is known about them. The ledger
        counts each like the last known one.
        """
        require(self.reports, "checkpoint.no-round", "no round has ended yet, so none can be counted as spent")
        none = math.nan
        last = self.reports[-1]._replace(
            interactions=0, online_ndcg=none, online_maxrr=none, clicks=none, update_norm=none
        )
        spent = [last._replace(round=last.round + number) for number in range(1, rounds + 1)]
        state = replace(self.state, round=self.state.round + rounds)
        return self._replace(state=state, reports=[*self.reports, *spent])

    def write(self, path: Path) -> None:
        """Write the file atomically and durably."""
        write_arrays(path, self.arrays(), durable=True)

    def to_bytes(self) -> bytes:
        """Return the content that `write` writes."""
        return archive_bytes(self.arrays())

    @staticmethod
    def read(path: Path) -> CoordinatorCheckpoint:
        """Read a file that `write` wrote."""
        return CoordinatorCheckpoint.parse(read_whole(path, LARGEST), str(path))

    @staticmethod
    def parse(content: bytes, where: str) -> CoordinatorCheckpoint:
        """Read the content that `to_bytes` returned; `where` names it in errors."""
        expected = state_shapes() | {
            "reports": ArrayShape("f8"),
            "run": ArrayShape("U", ()),
            "refused": ArrayShape("U", (None,)),
            "refusals": ArrayShape("i8", (None,)),
        }
        arrays = parse_arrays(content, expected, where, advice=_ADVICE)
        try:
            refused = zip(arrays["refused"].tolist(), arrays["refusals"].tolist(), strict=True)
            reports = [_parse_report(row) for row in arrays["reports"].tolist()]
            return CoordinatorCheckpoint(parse_state(arrays), str(arrays["run"]), reports, dict(refused))
        except (ValueError, TypeError, OverflowError) as error:
            raise BadInput("file.damaged", f"damaged ({error}){_ADVICE}", where) from None


def _parse_report(row: list[float]) -> Report:
    integers = ("round", "interactions", "participants")
    values = dict(zip(Report._fields, row, strict=True))
    return Report(**{name: int(v) if name in integers else v for name, v in values.items()})  # type: ignore[arg-type]

"""Checkpoint of a federation: its state as named arrays, in one file with a digest."""

from __future__ import annotations

import hashlib
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

_CHECKSUM = 32
"""Bytes of BLAKE2b that files of earlier versions end with."""
_ADVICE = "; restore it from a copy"


def state_arrays(state: State) -> Arrays:
    """All of a state under names that `state_from` reads."""
    arrays: Arrays = {f"memory:{k}": v for k, v in state.memory.items()}
    arrays |= {f"private:{k}": v for k, v in state.private.items()}
    arrays |= {f"rule:{k}": v for k, v in state.rule.items()}
    for name in ("personal", "history", "carried"):
        value = getattr(state, name)
        if value is not None:
            arrays[name] = value
    if state.taken is not None:
        arrays |= {"taken:times": state.taken.times, "taken:last": state.taken.last}
    return arrays | {"theta": state.theta, "round": np.array(state.round, dtype=np.int64)}


def state_from(arrays: Arrays) -> State:
    """The state that these arrays hold; KeyError where something is missing."""
    return State(
        int(arrays["round"]),
        arrays["theta"],
        below(arrays, "memory:"),
        below(arrays, "private:"),
        arrays.get("personal"),
        arrays.get("history"),
        below(arrays, "rule:"),
        TurnsTaken(arrays["taken:times"], arrays["taken:last"]) if "taken:times" in arrays else None,
        arrays.get("carried"),
    )


def below(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names begin so, without that beginning."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def state_shapes() -> dict[str, ArrayShape]:
    """What an archive of a state holds; `state_fault` compares the rest with the state that a run begins with."""
    return {
        "theta": ArrayShape("f8", (None,)),
        "round": ArrayShape("i8", ()),
        "memory:*": ArrayShape(""),
        "private:*": ArrayShape(""),
        "rule:*": ArrayShape("f8", finite=True),
        "personal": ArrayShape("f8", (None, None), optional=True),
        "history": ArrayShape("f8", (None, None), optional=True),
        "carried": ArrayShape("f8", (None, None), optional=True),
        "taken:times": ArrayShape("i4", (None,), optional=True),
        "taken:last": ArrayShape("i4", (None,), optional=True),
    }


def state_fault(state: State, start: State, clients: int) -> str:
    """Return what of a saved state cannot be of the run that begins with `start`; nothing where all can.

    What the first rounds add is not in `start`: a rule's history has a row for each client, and what a rule remembers is of
    the size of the parameters in each dimension, or one number.
    """
    for what, have, want in (("memory", state.memory, start.memory), ("private", state.private, start.private)):
        if {*have} != {*want}:
            return f"{what} of other parts"
        for name, array in want.items():
            if have[name].shape != array.shape or have[name].dtype != array.dtype:
                return f"{what} {name} of another shape"
    if (state.personal is None) != (start.personal is None):
        return "personal parameters of other parts"
    if (state.carried is None) != (start.carried is None):
        return "momentum of other parts"
    fault = "" if state.taken is None else taken_fault(state.taken, state.round)
    if fault or (state.taken is None) != (start.taken is None) or (state.taken and len(state.taken.times) != clients):
        return fault or "turns of other clients"
    for rows in (state.personal, state.history, state.carried):
        if rows is not None and rows.shape != (clients, len(start.theta)):
            return "rows of other clients"
    if any(set(array.shape) - {1, len(start.theta)} for array in state.rule.values()):
        return "what a rule remembers of another shape"
    return ""


def taken_fault(taken: TurnsTaken, rounds: int) -> str:
    """Return what of a saved memory of turns cannot be after so many rounds; nothing where all can."""
    times, last = taken.times, taken.last
    if times.shape != last.shape:
        return "turns of other clients"
    possible = (times >= 0) & (times <= last + 1) & (last >= -1) & (last < rounds) & ((times == 0) == (last == -1))
    return "" if bool(possible.all()) else "turns that were not taken"


class Saved(NamedTuple):
    """A coordinator's run between two rounds, as its checkpoint holds it."""

    state: State
    run: str
    reports: list[Report]  # of all rounds done
    counted: set[tuple[int, int]]  # (client, round) of replies that must not count again
    refused: dict[str, int]  # replies, by the code of the error

    def arrays(self) -> Arrays:
        """All of it under names that `parse` reads."""
        table = np.array(self.reports, dtype=np.float64).reshape(-1, len(Report._fields))
        arrays = state_arrays(self.state) | {"reports": table, "run": np.array(self.run)}
        arrays["refused"] = np.array(list(self.refused), dtype=np.str_)
        arrays["refusals"] = np.array([*self.refused.values()], dtype=np.int64)
        arrays["counted"] = np.array(sorted(self.counted), dtype=np.int64).reshape(-1, 2)
        return arrays

    def skipping(self, rounds: int) -> Saved:
        """The run after more rounds of which nothing is known but that clients answered them: spent, without a step.

        In the ledger each of them is like the last one that is known.
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
        """Write the file, whole or not at all; when this returns it survives a power cut."""
        write_arrays(path, self.arrays(), durable=True)

    def to_bytes(self) -> bytes:
        """What `write` writes."""
        return archive_bytes(self.arrays())

    @staticmethod
    def read(path: Path) -> Saved:
        """What `write` wrote; a damaged file is one sentence."""
        return Saved.parse(read_whole(path, LARGEST), str(path))

    @staticmethod
    def parse(content: bytes, where: str) -> Saved:
        """What `to_bytes` returned."""
        body, checksum = content[:-_CHECKSUM], content[-_CHECKSUM:]
        earlier = hashlib.blake2b(body, digest_size=_CHECKSUM).digest() == checksum
        expected = state_shapes() | {
            "reports": ArrayShape("f8"),
            "run": ArrayShape("U", ()),
            "refused": ArrayShape("", (None,)),  # without any, earlier versions wrote numbers
            "refusals": ArrayShape("", (None,)),
            "counted": ArrayShape("i8", (None, 2)),
        }
        arrays = parse_arrays(body if earlier else content, expected, where, sealed=not earlier, advice=_ADVICE)
        try:
            return Saved(
                state_from(arrays),
                str(arrays["run"]),
                [_report(row) for row in arrays["reports"].tolist()],
                {(client, round_) for client, round_ in arrays["counted"].tolist()},
                _by_code(arrays["refused"].tolist(), arrays["refusals"].astype(int).tolist()),
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise BadInput("file.damaged", f"damaged ({error}){_ADVICE}", where) from None


def _by_code(names: list[str], counts: list[int]) -> dict[str, int]:
    """Refusals by code; an older checkpoint holds sentences, which are counted as `reply.other`."""
    refused: dict[str, int] = {}
    for name, count in zip(names, counts, strict=True):
        code = "reply.other" if " " in str(name) else str(name)
        refused[code] = refused.get(code, 0) + count
    return refused


def _report(row: list[float]) -> Report:
    whole = ("round", "interactions", "participants")
    values = dict(zip(Report._fields, row, strict=True))
    return Report(**{name: int(v) if name in whole else v for name, v in values.items()})  # type: ignore[arg-type]

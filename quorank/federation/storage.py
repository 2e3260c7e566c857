"""Checkpoint of a coordinator: its state as named arrays in one archive with a digest, and where it is stored."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple, Protocol

import numpy as np

from quorank.errors import BadInput
from quorank.federation.participation import TurnsTaken
from quorank.federation.rounds import Report, State
from quorank.files.npz import Arrays, ArrayShape, archive_bytes, parse_arrays

_ADVICE = "; restore it from a copy"


def state_arrays(state: State) -> Arrays:
    """Return a state as named arrays, which `parse_state` reads."""
    arrays: Arrays = {}
    for name in (field.name for field in fields(State)):
        value = getattr(state, name)
        if isinstance(value, dict):
            arrays |= {f"{name}:{key}": array for key, array in value.items()}
        elif isinstance(value, TurnsTaken):
            arrays |= {"turns:times": value.times, "turns:last": value.last}
        elif value is not None:
            arrays[name] = np.asarray(value)
    return arrays


def parse_state(arrays: Arrays) -> State:
    """Return the state of these arrays; raises KeyError if one is missing."""
    dicts = {name: strip_prefix(arrays, f"{name}:") for name in ("memory", "private", "rule")}
    rows = {name: arrays.get(name) for name in ("personal", "history", "carried")}
    turns = TurnsTaken(arrays["turns:times"], arrays["turns:last"]) if "turns:times" in arrays else None
    return State(int(arrays["round"]), arrays["theta"], turns=turns, **dicts, **rows)  # type: ignore[arg-type]


def strip_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names have the prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def state_shapes() -> dict[str, ArrayShape]:
    """Return the shapes in a state's archive; `state_fault` compares the rest with the run's initial state."""
    rows, turns = ArrayShape("f8", (None, None), optional=True), ArrayShape("i4", (None,), optional=True)
    return {
        "theta": ArrayShape("f8", (None,)),
        "round": ArrayShape("i8", ()),
        "memory:*": ArrayShape(""),
        "private:*": ArrayShape(""),
        "rule:*": ArrayShape("f8", finite=True),
        **dict.fromkeys(("personal", "history", "carried"), rows),
        **dict.fromkeys(("turns:times", "turns:last"), turns),
    }


def state_fault(state: State, start: State, clients: int) -> str:
    """Return why a saved state cannot belong to the run that begins with `start`; empty if it can.

    The first rounds add what `start` lacks: a history has one row per client, and each dimension of a rule's memory is 1
    or the number of parameters.
    """
    for what in ("memory", "private"):
        found, expected = getattr(state, what), getattr(start, what)
        if {*found} != {*expected}:
            return f"{what} of other parts"
        for name, array in expected.items():
            if found[name].shape != array.shape or found[name].dtype != array.dtype:
                return f"{what} {name} of another shape"
    for what in ("personal", "carried", "turns"):
        if (getattr(state, what) is None) != (getattr(start, what) is None):
            return f"{what} of other parts"
    if state.turns is not None and (fault := turns_fault(state.turns, state.round)):
        return fault
    if state.turns is not None and len(state.turns.times) != clients:
        return "turns of other clients"
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

    def to_bytes(self) -> bytes:
        """Return the archive that `parse` reads."""
        table = np.array(self.reports, dtype=np.float64).reshape(-1, len(Report._fields))
        arrays = state_arrays(self.state) | {"reports": table, "run": np.array(self.run)}
        arrays["refused"] = np.array(list(self.refused), dtype=np.str_)
        arrays["refusals"] = np.array([*self.refused.values()], dtype=np.int64)
        return archive_bytes(arrays)

    @staticmethod
    def parse(content: bytes, where: str) -> CoordinatorCheckpoint:
        """Read the content that `to_bytes` returned; `where` names it in errors."""
        table, name = ArrayShape("f8"), ArrayShape("U", ())
        codes = {"refused": ArrayShape("U", (None,)), "refusals": ArrayShape("i8", (None,))}
        expected = state_shapes() | {"reports": table, "run": name, **codes}
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


class RoundStorage(Protocol):
    """Durable storage of one run. A call that raises OSError has changed nothing."""

    @property
    def where(self) -> str:
        """Name of the storage in error messages."""

    def load(self) -> CoordinatorCheckpoint | None:
        """Return the last checkpoint."""

    def save(self, saved: CoordinatorCheckpoint) -> None:
        """Replace the checkpoint."""

    def begin(self, round_: int) -> bool:
        """Record that a secure round begins; return False if it had begun before."""

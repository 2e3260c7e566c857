"""Checkpoint of a federation: its state as named arrays, in one file with a checksum."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput
from quorank.federation.rounds import Report, State
from quorank.files import write_whole

Arrays = dict[str, npt.NDArray[Any]]
BROKEN = (OSError, ValueError, KeyError, EOFError, IndexError, TypeError, zipfile.BadZipFile, zlib.error)
"""What reading a damaged file of arrays may raise."""

_CHECKSUM = 32


def state_arrays(state: State) -> Arrays:
    """All of a state under names that `state_from` reads."""
    arrays: Arrays = {f"memory:{k}": v for k, v in state.memory.items()}
    arrays |= {f"private:{k}": v for k, v in state.private.items()}
    arrays |= {f"rule:{k}": v for k, v in state.rule.items()}
    for name in ("personal", "history"):
        value = getattr(state, name)
        if value is not None:
            arrays[name] = value
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
    )


def below(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names begin so, without that beginning."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def write_arrays(path: Path, arrays: Arrays) -> None:
    """One file with a checksum at its end; it appears whole or not at all, and then survives a power cut."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    content = buffer.getvalue()
    write_whole(path, content + hashlib.blake2b(content, digest_size=_CHECKSUM).digest(), durable=True)


def read_arrays(path: Path) -> Arrays:
    """What `write_arrays` wrote; a damaged file is one sentence."""
    content = path.read_bytes()
    body, checksum = content[:-_CHECKSUM], content[-_CHECKSUM:]
    if hashlib.blake2b(body, digest_size=_CHECKSUM).digest() != checksum:
        raise BadInput("file.damaged", "damaged: its checksum does not fit; restore it from a copy", f"{path}")
    with np.load(io.BytesIO(body), allow_pickle=False) as saved:
        return dict(saved)


class Saved(NamedTuple):
    """A coordinator's run between two rounds, as its checkpoint holds it."""

    state: State
    run: str
    reports: list[Report]  # of all rounds done
    counted: set[tuple[int, int]]  # (client, round) of replies that must not count again
    refused: dict[str, int]  # replies, by the code of the error

    def write(self, path: Path) -> None:
        table = np.array(self.reports, dtype=np.float64)
        arrays = state_arrays(self.state) | {"reports": table, "run": np.array(self.run)}
        arrays |= {"refused": np.array(list(self.refused)), "refusals": np.array([*self.refused.values()])}
        arrays["counted"] = np.array(sorted(self.counted), dtype=np.int64).reshape(-1, 2)
        write_arrays(path, arrays)

    @staticmethod
    def read(path: Path) -> Saved:
        """What `write` wrote; a damaged file is one sentence."""
        try:
            arrays = read_arrays(path)
            return Saved(
                state_from(arrays),
                str(arrays["run"]),
                [_report(row) for row in arrays["reports"].tolist()],
                {(client, round_) for client, round_ in arrays["counted"].tolist()},
                _by_code(arrays["refused"].tolist(), arrays["refusals"].astype(int).tolist()),
            )
        except BROKEN as error:
            raise BadInput("file.damaged", f"damaged ({error}); restore it from a copy", f"{path}") from None


def _by_code(names: list[str], counts: list[int]) -> dict[str, int]:
    """Refusals by code; an older checkpoint holds sentences, which are counted as `reply.other`."""
    refused: dict[str, int] = {}
    for name, count in zip(names, counts, strict=True):
        code = "reply.other" if " " in name else name
        refused[code] = refused.get(code, 0) + count
    return refused


def _report(row: list[float]) -> Report:
    whole = ("round", "interactions", "participants")
    values = dict(zip(Report._fields, row, strict=True))
    return Report(**{name: int(v) if name in whole else v for name, v in values.items()})  # type: ignore[arg-type]

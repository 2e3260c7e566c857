"""Ledger of a coordinator's rebuildings: every noisy sum of theirs is counted before it can leave, finished or not.

A rebuilding releases a sum in each of its rounds: the next round's task holds a ranker that was made of it. So a round is
on disk here before its checkpoint is, and stays when the rebuilding is given up because one more client leaves, or when
the coordinator is killed. A kill between the two counts one release too many, never one too few.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from quorank.documents import Flag, Items, Maybe, Number, Table, Whole, read_json, shape_of
from quorank.errors import BadInput
from quorank.federation.rounds import CohortSum
from quorank.files import write_whole
from quorank.privacy import Privacy, Setting
from quorank.privacy.composition import Loss
from quorank.privacy.ledger import ledger

FILE = "rebuildings.json"


@dataclass(frozen=True)
class CountedRebuilding:
    """What one rebuilding has released."""

    number: int
    without: tuple[int, ...]  # who has left
    setting: Setting  # its plan
    releases: tuple[tuple[float, float | None, float], ...] = ()  # (participants, sensitivity, noise) of each round
    finished: bool = False

    @property
    def rounds(self) -> int:
        """Rounds whose sum was made."""
        return len(self.releases)

    def loss(self, privacy: Privacy) -> Loss | None:
        """Return what the releases give away; None where no ε is stated."""
        return privacy.mechanism(self.setting, 0).loss(self.rounds)

    def entry(self, privacy: Privacy, part: Mapping[str, Any], *, withhold: bool) -> dict[str, Any]:
        """Return the rebuilding as an entry of a ledger."""
        shape = (self.rounds, 3)
        rows = [
            (there, math.nan if sensitivity is None else sensitivity, noise)
            for there, sensitivity, noise in self.releases
        ]
        columns = np.array(rows, dtype=np.float64).reshape(shape).T
        mechanism = privacy.mechanism(self.setting, 0)
        book = ledger(part, mechanism, self.setting, *columns, withhold=withhold, curve=False)
        kept = {key: book[key] for key in ("setting", "releases", "privacy")}
        return {"without": list(self.without), "finished": self.finished, **kept}


_REBUILDINGS = Items(
    Table(
        {
            "number": Whole(1),
            "without": Items(Whole(0)),
            "setting": shape_of(Setting),
            "releases": Items(Items(Maybe(Number()))),
            "finished": Flag(),
        }
    )
)


@dataclass(eq=False)
class RebuildingLedger:
    """The rebuildings of one coordinator, in a file of its folder; without a folder they are kept in memory."""

    folder: Path | None
    entries: list[CountedRebuilding] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        path = None if self.folder is None else self.folder / FILE
        if path is None or not path.is_file():
            return
        try:
            self.entries = [_read(entry) for entry in read_json(path, _REBUILDINGS)]
        except (OSError, ValueError, TypeError, KeyError, RecursionError, BadInput) as error:
            sentence = f"damaged ({type(error).__name__}); restore it from a copy"
            raise BadInput("file.damaged", sentence, f"{path}") from None

    def begin(self, number: int, without: tuple[int, ...], setting: Setting) -> None:
        """Note a rebuilding before its first round; one that goes on is noted already."""
        if all(entry.number != number for entry in self.entries):
            self._write([*self.entries, CountedRebuilding(number, without, setting)])

    def count(self, number: int, round_: int, gathered: CohortSum) -> None:
        """Count the sum of a round (from 0) of a rebuilding; a round that is closed again counts once."""
        sensitivity = gathered.sensitivity if math.isfinite(gathered.sensitivity) else None
        release = (float(gathered.clients), sensitivity, float(gathered.noise))
        self._change(number, lambda entry: replace(entry, releases=(*entry.releases[:round_], release)))

    def finish(self, number: int) -> None:
        """Note that the rebuilt ranker was taken over."""
        self._change(number, lambda entry: replace(entry, finished=True))

    def losses(self, privacy: Privacy, but: int | None = None) -> list[Loss]:
        """Return what all rebuildings, but one, have given away; those without an ε are left out."""
        found = [entry.loss(privacy) for entry in self.entries if entry.number != but]
        return [loss for loss in found if loss is not None]

    def adopt(self, entry: CountedRebuilding) -> None:
        """Take over a rebuilding that a version before has finished."""
        self._write([*self.entries, entry])

    def _change(self, number: int, change: Any) -> None:
        self._write([change(entry) if entry.number == number else entry for entry in self.entries])

    def _write(self, entries: list[CountedRebuilding]) -> None:
        if self.folder is not None:
            text = json.dumps([asdict(entry) for entry in entries], indent=1, allow_nan=False)
            write_whole(self.folder / FILE, text, durable=True)
        self.entries = entries


def _read(entry: Any) -> CountedRebuilding:
    releases = tuple(
        (float(there), None if length is None else float(length), float(noise))
        for there, length, noise in entry["releases"]
    )
    without = tuple(int(client) for client in entry["without"])
    return CountedRebuilding(
        int(entry["number"]), without, Setting(**entry["setting"]), releases, bool(entry["finished"])
    )

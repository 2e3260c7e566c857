"""Groups of parties in one process, with a recording server, for tests that take the protocol apart."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from quorank.silos.protocol.party import Party
from quorank.silos.protocol.relay import Relay, deliver

from quorank.silos.envelopes import Field, Group
from quorank.silos.hashing import Hashing
from quorank.silos.session.agreement import PartyIdentity
from quorank.silos.sketch.count_sketch import count_sketch_table
from quorank.silos.sketch.ranking import Cells

NAMES = ("alpha", "beta", "gamma", "delta")
SMALL = Field("body", rows=6, columns=40, entries=30)


def seeded(name: object) -> Callable[[int], bytes]:
    """Repeatable entropy."""
    return random.Random(repr(name)).randbytes


def identity(name: str) -> PartyIdentity:
    """The same identity in every run."""
    return PartyIdentity(name, seeded(("identity", name))(32))


class AllTables:
    """One dense sketch per document, kept in a dictionary: every row of an answer names every document."""

    names_all_documents = True

    def __init__(self, hashing: Hashing, documents: Mapping[int, Mapping[str, int]], has_noise: bool = False):
        self.hashing, self.has_noise = hashing, has_noise
        self.tables = {}
        for number, counts in documents.items():
            columns, signs = hashing.places(list(counts))
            self.tables[number] = count_sketch_table(columns, signs, list(counts.values()), hashing.columns)

    @property
    def fingerprint(self) -> str:
        return self.hashing.fingerprint()

    @property
    def width(self) -> int:
        return len(self.tables)

    def cells(self, columns: np.ndarray) -> Cells:
        z, ids = self.hashing.rows, list(self.tables)
        values = [self.tables[d][a, columns[a]] for a in range(z) for d in ids]
        return Cells(
            np.arange(z + 1) * len(ids),
            np.array(ids * z, dtype=np.int32),
            np.array(values, dtype=np.int32),
            np.zeros(z, dtype=np.int32),
        )


class HeapTables(AllTables):
    """The same, but an answer names only the three documents with the largest values of each row."""

    names_all_documents = False

    def cells(self, columns: np.ndarray) -> Cells:
        z, whole = self.hashing.rows, super().cells(columns)
        values = whole.values.reshape(z, -1)
        kept = np.argsort(-values, axis=1, kind="stable")[:, :3]
        ids = np.take_along_axis(whole.documents.reshape(z, -1), kept, axis=1)
        return Cells(
            np.arange(z + 1) * kept.shape[1],
            ids.ravel(),
            np.take_along_axis(values, kept, axis=1).ravel(),
            np.zeros(z, dtype=np.int32),
        )


def group_of(names: Sequence[str] = NAMES, fields: Sequence[Field] = (SMALL,)) -> Group:
    return Group(tuple(names), tuple(fields))


def parties_of(group: Group, **options) -> dict[str, Party]:
    """The parties before they have met; an option may be a function of the name."""
    found = {}
    for name in group.parties:
        own = {key: value(name) if callable(value) else value for key, value in options.items()}
        found[name] = Party(identity(name), group, entropy=seeded(("session", name)), **own)
    return found


def meet(parties: Mapping[str, Party], watch=None) -> Relay:
    """Hellos and contributions through a relay."""
    relay = Relay(list(parties))
    deliver(relay, parties, [hello for party in parties.values() for hello in party.hello()], watch)
    assert all(party.is_agreed for party in parties.values())
    return relay


def met(group: Group | None = None, **options) -> tuple[Relay, dict[str, Party]]:
    parties = parties_of(group or group_of(), **options)
    return meet(parties), parties


def estimates(answered) -> dict[int, float]:
    """Eq. 6 with the sign: the median over the real rows, for documents that stand in all of them."""
    cells, found = answered.cells, {}
    for a in answered.rows:
        for at in range(cells.offsets[a], cells.offsets[a + 1]):
            found.setdefault(int(cells.documents[at]), []).append(int(cells.values[at]) * int(answered.signs[a]))
    return {d: float(np.median(v)) for d, v in found.items() if len(v) == len(answered.rows)}

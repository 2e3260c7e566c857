"""Type 1: clients that search for the same queries and prefer different documents (thesis §4.3.1).

Client i has preference i mod P. A preference is a set of labels for all candidate lists: the intents of a collection
that carries them (intents.py), numbered anew for each query by chance, because some intents have more relevant
documents than others; or labels made from the collection's own by preference_directions.py with a chosen overlap.

Numbered anew, an intent of one query says nothing about that of another: such preferences can be remembered for the
queries that were trained on, and not be learned for others. Generated preferences can.

The IID twin holds a document relevant that any preference holds relevant. It has more relevant documents than any one
preference, so any ranker, also a random one, has a higher nDCG on it: as the thesis judges its twin, part of the gap
between IID and non-IID is this and not a matter of learning. `judged = "preferences"` judges the twin's ranker by the
labels that judge the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.arrays import Int8s, Integers
from quorank.data.intents import IntentCollection
from quorank.data.partition.directions import directions, preference_labels
from quorank.data.partition.shares import (
    Shares,
    Step,
    check_clients,
    check_counts,
    repeated,
    searches,
    shuffled,
    with_labels,
)
from quorank.data.ranking import Collection, RankingData
from quorank.errors import require


@dataclass(frozen=True)
class Preferences:
    """One group per preference; the twin has the same groups, all with the same merged lists."""

    kind: ClassVar[str] = "preferences"

    # share of a preference's relevant documents that another one has too; without it a collection's own intents
    # are taken, and where it has none the overlap is 0
    overlap: float | None = None
    preferences: int = 4  # P
    noise: float = 0.5  # what generated preferences leave to chance, against the spread of documents
    judged: Literal["union", "preferences"] = "union"  # of the twin: by merged labels, or as its counterpart
    iid: bool = False
    quantity: tuple[int, ...] | None = None  # type 4 mixed in: interactions of clients, cycling

    def __post_init__(self) -> None:
        require(
            self.overlap is None or 0.0 <= self.overlap <= 1.0,
            f"overlap must lie between 0 and 1, got {self.overlap}",
        )
        require(
            2 <= self.preferences <= 1000, f"preferences must be between 2 and 1000, got {self.preferences}"
        )
        require(0.0 <= self.noise < 1e6, f"noise must be 0 or more, got {self.noise}")
        check_counts("quantity", self.quantity)

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        check_clients(clients, interactions)
        require(
            clients >= self.preferences,
            f"{self.preferences} preferences need a client each, got {clients} clients; take more clients or fewer "
            "preferences",
        )
        train, test = self.labels(collection, seed)
        each = np.arange(self.preferences, dtype=np.int64)
        queries = collection.train.n_queries
        nothing = np.zeros(clients, dtype=np.int64)
        by_union = self.iid and self.judged == "union"
        return Shares(
            _union(collection.train, train) if self.iid else repeated(collection.train, train),
            0 * each if self.iid else each * queries,
            np.full(self.preferences, queries, dtype=np.int64),
            np.arange(clients, dtype=np.int64) % self.preferences,
            nothing,
            (None,),
            searches(clients, interactions, None if self.iid else self.quantity),
            (_union(collection.test, test),)
            if by_union
            else tuple(with_labels(collection.test, labels) for labels in test),
            0 * each if by_union else each,
        )

    def labels(self, collection: Collection, seed: int) -> tuple[Int8s, Int8s]:
        """(preferences, rows) of the training and of the test split."""
        if self.overlap is None and isinstance(collection, IntentCollection):
            known = len(collection.train_intents)
            require(
                self.preferences <= known,
                f"{collection.name} has {known} intents for each query, got preferences = {self.preferences}; "
                "take fewer, or choose an overlap to generate them",
            )
            value = np.int8(collection.grades - 1)
            train, test = (
                shuffle_intents(data, intents, seed)[: self.preferences] * value
                for data, intents in (
                    (collection.train, collection.train_intents),
                    (collection.test, collection.test_intents),
                )
            )
            require(train.any(), f"{collection.name}: no training document is relevant to any of its intents")
            return train, test
        weights = directions(collection.train, self.preferences, seed)
        train, test = (
            preference_labels(data, weights, self.overlap or 0.0, self.noise, seed)
            for data in (collection.train, collection.test)
        )
        return train, test


def shuffle_intents(data: RankingData, intents: Int8s, seed: int) -> Int8s:
    """The same judgements with the intents of each query in an order of its own (thesis §4.3.1)."""
    out = np.empty_like(intents)
    for q, name in enumerate(data.query_ids):
        rows: slice = data.rows_of(q)
        order: Integers = shuffled(seed, Step.INTENTS, len(intents), name)
        out[:, rows] = intents[order, rows]
    return out


def _union(data: RankingData, labels: Int8s) -> RankingData:
    """A document is as relevant as to the preference to which it is most relevant."""
    return with_labels(data, labels.max(axis=0))

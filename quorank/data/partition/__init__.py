"""Partitions: how data, preferences, clicks and interactions differ among clients (thesis chapter 4).

`even` changes nothing. Type 1 is `preferences` (preferences.py), type 2 `labels` (labels.py), type 3 `clicks`,
type 4 `quantity`; type 4 can be mixed into types 1, 2 and 3 by their field `quantity`. `iid = true` makes a
partition's twin: the same clients with data that do not differ among them, each with the experiment's interactions.
Where clients hold documents of their own, in `labels`, a share of the data can be common to all (`shared`).
`assigned` (assigned.py) names the client of each query.
`users` (users.py) divides a log of real clicks by the people who searched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from quorank.data.partition.labels import LabelSplit
from quorank.data.partition.preferences import Preferences
from quorank.data.partition.shares import ANY_CLICK_MODEL, ClickSpec, Partition, Shares, check_counts, equal_shares
from quorank.data.partition.users import Assigned, LogUsers
from quorank.data.ranking import Collection
from quorank.parts import Family

CASCADES = ("perfect", "navigational", "informational")
ETAS = (0.0, 0.5, 1.0, 1.5, 2.0)  # η of the position-based users, thesis §4.5.1


@dataclass(frozen=True)
class Even(Partition):
    """No difference: every client searches the whole training set with the experiment's own users."""

    kind: ClassVar[str] = "even"
    divides: ClassVar[bool] = False
    iid: ClassVar[bool] = True
    quantity: ClassVar[tuple[int, ...] | None] = None

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        """Give every client the same share."""
        return equal_shares(collection, clients, interactions)


@dataclass(frozen=True)
class Clicks(Partition):
    """Type 3 (thesis §4.5.1): client i clicks like the i-th instantiation of a click model, cycling.

    In the IID twin every interaction of every client draws one of the instantiations.
    """

    kind: ClassVar[str] = "clicks"

    model: Literal["cascade", "position"] = "cascade"  # click model whose instantiations the clients take turns with
    # P(click | label) of the position-based users, which the thesis does not state
    preset: Literal["perfect", "navigational", "informational"] = "perfect"
    iid: bool = False  # the twin: every interaction draws one of the instantiations
    quantity: tuple[int, ...] | None = None  # type 4 mixed in: interactions of clients, cycling

    def __post_init__(self) -> None:
        check_counts("quantity", self.quantity)

    @property
    def click_models(self) -> tuple[ClickSpec, ...]:
        """The instantiations that clients take in turn."""
        if self.model == "cascade":
            return tuple({"kind": "cascade", "preset": preset} for preset in CASCADES)
        return tuple({"kind": "position", "eta": eta, "preset": self.preset} for eta in ETAS)

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        """Give every client all lists and its own click model."""
        alike = equal_shares(collection, clients, interactions, None if self.iid else self.quantity)
        each = np.arange(clients, dtype=np.int64) % len(self.click_models)
        chosen = np.full_like(each, ANY_CLICK_MODEL) if self.iid else each
        return replace(alike, click_model=chosen, click_models=self.click_models)


@dataclass(frozen=True)
class Quantity(Partition):
    """Type 4 (thesis §4.5.2): clients have different numbers of interactions in a round. Twin: all have the same."""

    kind: ClassVar[str] = "quantity"

    counts: tuple[int, ...] = (1, 3, 5, 7, 9)  # Q, interactions of clients, cycling
    iid: bool = False  # the twin: all clients have the same number of interactions

    def __post_init__(self) -> None:
        check_counts("counts", self.counts)

    @property
    def quantity(self) -> tuple[int, ...]:
        return self.counts

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        """Give every client all lists and its own number of interactions."""
        return equal_shares(collection, clients, interactions, None if self.iid else self.counts)


PARTITIONS: Family[Partition] = Family(
    "partition", Even, Preferences, LabelSplit, Clicks, Quantity, Assigned, LogUsers, base=Partition
)  # a new one: its file, and its name here

__all__ = [
    "ANY_CLICK_MODEL", "PARTITIONS", "Assigned", "Clicks", "Even", "LabelSplit", "LogUsers", "Partition", "Preferences",
    "Quantity",
    "Shares",
]  # fmt: skip

"""Partitions: how data, preferences, clicks and interactions differ among clients (thesis chapter 4).

`even` changes nothing. Type 1 is `preferences`, type 2 `labels`, type 3 `clicks`, type 4 `quantity`; type 4 can be mixed
into types 1, 2 and 3 by their field `quantity`. `iid = true` makes a partition's twin: the same clients with data that do
not differ among them, each with the experiment's interactions. `assigned` names the client of each query, and `users`
divides a log of real clicks by the people who searched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from quorank.data.partition.labels import LabelSplit
from quorank.data.partition.preferences import Preferences
from quorank.data.partition.shares import ANY_CLICK_MODEL, ClickSpec, Partition, Shares, check_counts
from quorank.data.partition.users import Assigned, LogUsers
from quorank.data.ranking import Collection
from quorank.parts import Family

CASCADES = ("perfect", "navigational", "informational")
ETAS = (0.0, 0.5, 1.0, 1.5, 2.0)  # η of the position-based users, thesis §4.5.1


@dataclass(frozen=True)
class Even(Partition):
    """No difference: every client searches the whole training set with the experiment's own users.

    >>> from quorank.data import Collection, RankingData
    >>> lists = RankingData.from_arrays([[0.1], [0.9], [0.4]], [0, 1, 1], [0, 1, 2, 3])
    >>> Even().split(Collection("three", lists, lists), clients=2, interactions=4, seed=1).query_count  # one group
    array([3])
    """

    kind: ClassVar[str] = "even"
    divides: ClassVar[bool] = False
    iid: ClassVar[bool] = True

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        return self.equal_shares(collection, clients, interactions)


@dataclass(frozen=True)
class Clicks(Partition):
    """Type 3: client i clicks like instantiation i mod M of a click model (thesis §4.5.1).

    The M = 3 instantiations of "cascade" are its presets perfect, navigational and informational; the M = 5 of "position"
    have P(examine rank r) = (1/r)^η with η = 0, 0.5, 1, 1.5 and 2.

    Args:
        model: Click model whose instantiations the clients take in turn.
        preset: Cascade preset of P(click | label) of the position-based users, which the thesis does not state.
        iid: The IID twin: every interaction of every client draws one of the instantiations.
        quantity: Interactions of clients per round, cycling (type 4 mixed in); by default those of the experiment.

    Raises:
        BadInput: `value.out-of-range` for a `quantity` that is empty or has a number below 1.

    >>> [spec["preset"] for spec in Clicks().click_models]
    ['perfect', 'navigational', 'informational']
    """

    kind: ClassVar[str] = "clicks"

    model: Literal["cascade", "position"] = "cascade"
    preset: Literal["perfect", "navigational", "informational"] = "perfect"
    iid: bool = False
    quantity: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_counts("quantity", self.quantity)

    @property
    def click_models(self) -> tuple[ClickSpec, ...]:
        """Instantiations that clients take in turn."""
        if self.model == "cascade":
            return tuple({"kind": "cascade", "preset": preset} for preset in CASCADES)
        return tuple({"kind": "position", "eta": eta, "preset": self.preset} for eta in ETAS)

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        alike = self.equal_shares(collection, clients, interactions)
        each = np.arange(clients, dtype=np.int64) % len(self.click_models)
        chosen = np.full_like(each, ANY_CLICK_MODEL) if self.iid else each
        return replace(alike, click_model=chosen, click_models=self.click_models)


@dataclass(frozen=True)
class Quantity(Partition):
    """Type 4: client i has Q[i mod |Q|] interactions in a round (thesis §4.5.2).

    Args:
        counts: Q, interactions of clients per round, cycling.
        iid: The IID twin: all clients have the interactions of the experiment.

    Raises:
        BadInput: `value.out-of-range` for `counts` that are empty or have a number below 1.

    >>> from quorank.data import Collection, RankingData
    >>> lists = RankingData.from_arrays([[0.1], [0.9], [0.4]], [0, 1, 1], [0, 1, 2, 3])
    >>> Quantity(counts=(2, 6)).split(Collection("three", lists, lists), clients=3, interactions=4, seed=1).interactions
    array([2, 6, 2])
    """

    kind: ClassVar[str] = "quantity"

    counts: tuple[int, ...] = (1, 3, 5, 7, 9)
    iid: bool = False

    def __post_init__(self) -> None:
        check_counts("counts", self.counts)

    @property
    def quantity(self) -> tuple[int, ...]:
        return self.counts

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        return self.equal_shares(collection, clients, interactions)


PARTITIONS: Family[Partition] = Family(
    "partition", Even, Preferences, LabelSplit, Clicks, Quantity, Assigned, LogUsers, base=Partition
)  # a new one: its file, and its name here

__all__ = [
    "ANY_CLICK_MODEL", "PARTITIONS", "Assigned", "Clicks", "Even", "LabelSplit", "LogUsers", "Partition", "Preferences",
    "Quantity",
    "Shares",
]  # fmt: skip

"""Click models: a user's behaviour as three tables, and the compiled walk down a list that reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Booleans, Doubles, Int8s, Integers, Uint64s
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.kernels.draws import BATCH, Address, Purpose, fill_batch, key_of


@dataclass(frozen=True)
class ClickModel(ABC):
    """Users who look at the ranks of a list, click by relevance and may leave after a click."""

    kind: ClassVar[str]
    replays_lists: ClassVar[bool] = False  # lists and clicks are those of a log, and nothing is drawn

    @abstractmethod
    def tables(self, grades: int, k: int) -> ClickTables:
        """Return the probabilities for data with `grades` grades of relevance and lists of k documents."""


@dataclass(frozen=True, eq=False)
class ClickTables:
    """P(click on rank r with label y) = examine[r] · click[y]; after a click the user leaves with stop[y].

    Where looking depends on the last click, `examine` is (k + 1, k): first the rank of that click from 1, or 0 for none.
    Where clicking depends on the rank, `click` is (k, grades).
    """

    examine: Doubles  # (k,) by rank from 0, or (k + 1, k)
    click: Doubles  # (grades,) by label, or (k, grades)
    stop: Doubles  # (grades,) by label


@dataclass(frozen=True)
class LoggedClicks(ClickModel):
    """Users of a log of clicks, replayed as they were; `partition.kind = "users"` says whose, and in which order.

    Nothing is drawn, so only a learner that takes any list can learn from them. On a list that is not in the log, as in an
    audit's simulation, they click the documents that were clicked in the log.
    """

    kind: ClassVar[str] = "logged"
    replays_lists: ClassVar[bool] = True

    def tables(self, grades: int, k: int) -> ClickTables:
        """Return P(click) = 1 for what was clicked, at every rank."""
        clicked = np.ones(grades)
        clicked[0] = 0.0
        return ClickTables(np.ones(k), clicked, np.zeros(grades))


def stack_tables(tables: Sequence[ClickTables]) -> tuple[Doubles, Doubles, Doubles]:
    """Return the tables of several models as `click_list` reads them, for the grades that all of them know.

    examine (models, 1 or k + 1, k), click (models, 1 or k, grades), stop (models, grades).
    """
    grades = min(table.click.shape[-1] for table in tables)
    examine = [np.atleast_2d(table.examine) for table in tables]
    click = [np.atleast_2d(table.click)[:, :grades] for table in tables]
    stop = np.array([table.stop[:grades] for table in tables], dtype=np.float64)
    return _alike(examine), _alike(click), stop


def _alike(tables: list[Doubles]) -> Doubles:
    """Repeat the row of the tables that have one only, if another has several."""
    rows = max(len(table) for table in tables)
    return np.array([np.broadcast_to(table, (rows, table.shape[1])) for table in tables], dtype=np.float64)


class ClickArrays(NamedTuple):
    """Click models and the labels of all documents, as compiled code reads them."""

    labels: Int8s  # (documents,)
    examine: Doubles  # (click models, 1 or k + 1, k), see `stack_tables`
    click: Doubles  # (click models, 1 or k, grades)
    stop: Doubles  # (click models, grades)
    key: Uint64s


@fixed_memory_kernel
def click_list(
    users: ClickArrays,
    model: int,
    address: Address,
    start: int,
    shown: Integers,
    k: int,
    clicked: Booleans,
    draws: Doubles,
) -> int:
    """Walk down a list by one click model, fill clicked[:k] and return the rank of the first click from 0, or −1.

    One uniform is drawn per position examined, and a second one, for leaving, only after a click.

    Args:
        users: Click models and labels.
        model: Index of the click model.
        address: Address of the draws.
        start: Row of the first candidate.
        shown: (k,) the list, as positions among the candidates.
        k: Length of the list.
        clicked: (≥ k,) output.
        draws: (BATCH,) scratch.
    """
    first = -1
    draw = 0
    present = True
    remembers, by_rank, last = users.examine.shape[1] > 1, users.click.shape[1] > 1, 0
    for p in range(k):
        clicked[p] = False
        if not present:
            continue
        label = users.labels[start + shown[p]]
        if draw % BATCH == 0:
            fill_batch(users.key, draw >> 1, address.interaction, address.client, address.round, draws)
        u = draws[draw % BATCH]
        draw += 1
        if u < users.examine[model, last, p] * users.click[model, p if by_rank else 0, label]:
            clicked[p] = True
            if remembers:
                last = p + 1
            if first < 0:
                first = p
            if draw % BATCH == 0:
                fill_batch(users.key, draw >> 1, address.interaction, address.client, address.round, draws)
            present = draws[draw % BATCH] >= users.stop[model, label]
            draw += 1
    return first


def simulate_clicks(
    tables: ClickTables, labels: npt.ArrayLike, seed: int, *, round_: int = 0, client: int = 0, interaction: int = 0
) -> Booleans:
    """Clicks on one shown list, given the labels from the top down: the same draws as in the simulator."""
    shown_labels = np.ascontiguousarray(labels, dtype=np.int8)
    k = len(shown_labels)
    longest = tables.examine.shape[-1]
    long = f"the tables are for lists of {longest}, got {k} labels"
    require(k <= longest, "click-model.list-too-long", long)
    lowest, highest, grades = shown_labels.min(initial=0), shown_labels.max(initial=0), tables.click.shape[-1]
    if lowest < 0 or highest >= max(grades, 1):
        raise BadInput("click-model.label-out-of-range", f"labels must lie in 0..{grades - 1}, got {lowest}..{highest}")
    users = ClickArrays(shown_labels, *stack_tables([tables]), key_of(seed, Purpose.CLICK))
    clicked = np.zeros(k, dtype=np.bool_)
    click_list(users, 0, Address(interaction, client, round_), 0, np.arange(k), k, clicked, np.empty(BATCH))
    return clicked

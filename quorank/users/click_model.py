"""Click models: a user's behaviour as three tables, and the compiled walk down a list that reads them.

`Cascade` users read from the top, click by relevance, and may leave after a click (thesis §2.2.1).

Presets of click and stop probabilities are those of the papers (thesis tables 2.1, 2.2 and 5.1). For relevance 0/1 they are
those of the code of Oosterhuis and de Rijke (2018; github.com/HarrieO/OnlineLearningToRank, `utils/clicks.py`), after
Hofmann, Whiteson and de Rijke (2013, "Balancing exploration and exploitation in listwise and pairwise online learning to
rank"), whose scale the graded tables fill in: P(click) and P(stop) of documents that are not relevant, and of those that
are. Other code lets navigational users leave a relevant document with 0.5 in place of 0.9. Poisoning clicks are the perfect
ones the other way round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

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


Preset = Literal["perfect", "navigational", "informational", "poison"]

_CLICK = """
perfect        0 1      0 .5 1      0 .2 .4 .8 1
navigational   .05 .95  .05 .5 .95  .05 .3 .5 .7 .95
informational  .4 .9    .4 .7 .9    .4 .6 .7 .8 .9
poison         1 0      1 .5 0      1 .8 .4 .2 0
"""
_STOP = """
perfect        0 0      0 0 0       0 0 0 0 0
navigational   .2 .9    .2 .5 .9    .2 .3 .5 .7 .9
informational  .1 .5    .1 .3 .5    .1 .2 .3 .4 .5
poison         0 0      0 0 0       0 0 0 0 0
"""
Table = dict[str, dict[int, tuple[float, ...]]]


def _table(text: str) -> Table:
    """Return the probabilities by label, of each preset and number of grades (2, 3 and 5)."""
    rows = (line.split() for line in text.strip().splitlines())
    every = {name: tuple(map(float, values)) for name, *values in rows}
    return {name: {2: values[:2], 3: values[2:5], 5: values[5:]} for name, values in every.items()}


CLICK, STOP = _table(_CLICK), _table(_STOP)


def by_label(name: str, own: tuple[float, ...] | None, table: Table, scale: int, preset: str, grades: int) -> Doubles:
    """Return the field's own probabilities, else those of a preset; one for each of the labels that the data has.

    Presets are published for scales of 2, 3 and 5 grades.
    """
    if own is None:
        missing = f"the preset {preset!r} is defined for 2, 3 or 5 grades, not for {scale}; give own tables"
        require(scale in table[preset], "click-model.no-preset", missing)
        own = table[preset][scale]
    few = f"has {len(own)} probabilities, but the data has labels 0..{grades - 1}"
    require(len(own) >= grades, "click-model.too-few-grades", few, name)
    return np.array(own, dtype=np.float64)


def check_range(name: str, values: tuple[float, ...] | None) -> None:
    """Refuse probabilities outside 0 to 1."""
    inside = values is None or all(0.0 <= v <= 1.0 for v in values)
    require(inside, "value.out-of-range", f"must lie between 0 and 1, got {values}", name)


@dataclass(frozen=True)
class Cascade(ClickModel):
    """P(click | label), then P(stop | click, label). A preset gives both for 2, 3 or 5 grades; own tables override it."""

    kind: ClassVar[str] = "cascade"

    preset: Preset = "perfect"  # who clicks: P(click) and P(stop) by label; "poison" clicks what is irrelevant
    grades: Literal[2, 3, 5] | None = None  # of the preset; by default those of the data
    click: tuple[float, ...] | None = None  # P(click = 1 | r), one per label
    stop: tuple[float, ...] | None = None  # P(stop = 1 | click = 1, r), one per label

    def __post_init__(self) -> None:
        check_range("click", self.click)
        check_range("stop", self.stop)
        together = (self.click is None) == (self.stop is None)
        require(together, "click-model.incomplete", "give click and stop together, or neither")

    def tables(self, grades: int, k: int) -> ClickTables:
        """The tables for data with this many grades and lists of k."""
        scale = self.grades or grades
        click = by_label("click", self.click, CLICK, scale, self.preset, grades)
        return ClickTables(np.ones(k), click, by_label("stop", self.stop, STOP, scale, self.preset, grades))


class _PresetByName:
    """Lets `Cascade.preset("perfect", grades=3)` build a part while `cascade.preset` stays the field."""

    def __get__(self, instance: object, owner: type[Cascade]) -> Any:
        def preset(name: Preset, grades: Literal[2, 3, 5] | None = None) -> Cascade:
            return owner(preset=name, grades=grades)

        return preset


Cascade.preset = _PresetByName()  # type: ignore[assignment]


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

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
    """Base class of users who examine the ranks of a list, click by relevance and may stop after a click.

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> @dataclass(frozen=True)
    ... class TopThree(ClickModel):
    ...     kind = "top-three"
    ...
    ...     def tables(self, grades, k):
    ...         return ClickTables((np.arange(k) < 3).astype(float), np.linspace(0.1, 0.9, grades), np.zeros(grades))
    >>> TopThree().tables(grades=3, k=4).examine
    array([1., 1., 1., 0.])
    """

    kind: ClassVar[str]
    replays_lists: ClassVar[bool] = False  # lists and clicks are those of a log, and nothing is drawn

    @abstractmethod
    def tables(self, grades: int, k: int) -> ClickTables:
        """Return the probabilities of the model.

        Args:
            grades: Number of grades of relevance in the data.
            k: Length of a list.

        Raises:
            BadInput: `click-model.no-preset` or `click-model.too-few-grades` if a label has no probability.
        """


@dataclass(frozen=True, eq=False)
class ClickTables:
    """Probabilities of a user: P(click on rank r with label y) = examine[r]·click[y], and stop[y] to leave after it.

    Args:
        examine: (k,) P(examine) by rank from 0; (k + 1, k) if it depends on the rank of the last click, from 1, 0 for
            none.
        click: (grades,) P(click | examined) by label; (k, grades) if it depends on the rank.
        stop: (grades,) P(leave | click) by label.

    >>> Cascade("navigational").tables(grades=2, k=3)
    ClickTables(examine=array([1., 1., 1.]), click=array([0.05, 0.95]), stop=array([0.2, 0.9]))
    """

    examine: Doubles
    click: Doubles
    stop: Doubles


@dataclass(frozen=True)
class LoggedClicks(ClickModel):
    """Users of a log of clicks, replayed as they were; `partition.kind = "users"` assigns and orders them.

    Nothing is drawn, so only a learner that takes any list can learn from them. On a list that is not in the log, as in an
    audit's simulation, they click the documents that were clicked in the log.

    >>> LoggedClicks().tables(grades=2, k=3).click  # label 1: clicked in the log
    array([0., 1.])
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
    """Return the probabilities by label of a field, (at least `grades`,), or of a preset where the field is None.

    Args:
        name: Name of the field, for errors.
        own: Value of the field.
        table: `CLICK` or `STOP`.
        scale: Number of grades of the preset.
        preset: Name of the preset.
        grades: Number of grades of relevance in the data.

    Raises:
        BadInput: `click-model.no-preset` or `click-model.too-few-grades` if a label has no probability.

    >>> by_label("click", None, CLICK, scale=3, preset="perfect", grades=3)
    array([0. , 0.5, 1. ])
    """
    if own is None:
        missing = f"the preset {preset!r} is defined for 2, 3 or 5 grades, not for {scale}; give own tables"
        require(scale in table[preset], "click-model.no-preset", missing)
        own = table[preset][scale]
    few = f"has {len(own)} probabilities, but the data has labels 0..{grades - 1}"
    require(len(own) >= grades, "click-model.too-few-grades", few, name)
    return np.array(own, dtype=np.float64)


def check_range(name: str, values: tuple[float, ...] | None) -> None:
    """Raise BadInput `value.out-of-range` unless the field `name` is None or all its values are within [0, 1]."""
    inside = values is None or all(0.0 <= v <= 1.0 for v in values)
    require(inside, "value.out-of-range", f"must lie between 0 and 1, got {values}", name)


@dataclass(frozen=True)
class Cascade(ClickModel):
    """Users who examine every rank from the top, click with P(click | r) and leave with P(stop | click, r).

    r is the label of the document (thesis §2.2.1; Hofmann et al. 2013). `Cascade.preset(name, grades)` is the same part.

    Args:
        preset: Both probabilities by label: "perfect", "navigational", "informational", or "poison", which clicks what
            is irrelevant.
        grades: Number of grades of the preset; by default those of the data.
        click: P(click = 1 | r), one per label, in place of the preset.
        stop: P(stop = 1 | click = 1, r), one per label, in place of the preset.

    Raises:
        BadInput: `value.out-of-range` for a probability outside [0, 1]; `click-model.incomplete` for `click` without
            `stop` or `stop` without `click`.

    >>> Cascade(preset="informational").tables(grades=3, k=1).stop
    array([0.1, 0.3, 0.5])
    """

    kind: ClassVar[str] = "cascade"

    preset: Preset = "perfect"
    grades: Literal[2, 3, 5] | None = None
    click: tuple[float, ...] | None = None
    stop: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_range("click", self.click)
        check_range("stop", self.stop)
        together = (self.click is None) == (self.stop is None)
        require(together, "click-model.incomplete", "give click and stop together, or neither")

    def tables(self, grades: int, k: int) -> ClickTables:
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
    """Return the tables of several models as `click_list` reads them, for the grades that all of them have.

    Args:
        tables: Probabilities of each model, for lists of the same length k.

    Returns:
        examine (models, 1 or k + 1, k), click (models, 1 or k, grades) and stop (models, grades).

    >>> [array.shape for array in stack_tables([Cascade().tables(grades=2, k=10), Cascade().tables(grades=3, k=10)])]
    [(2, 1, 10), (2, 1, 2), (2, 2)]
    """
    grades = min(table.click.shape[-1] for table in tables)

    def stacked(rows: list[Doubles]) -> Doubles:
        """Repeat a single row where another model has several."""
        return np.array(np.broadcast_arrays(*map(np.atleast_2d, rows)), dtype=np.float64)

    examine, click = ([getattr(table, name) for table in tables] for name in ("examine", "click"))
    stop = np.array([table.stop[:grades] for table in tables], dtype=np.float64)
    return stacked(examine), stacked([each[..., :grades] for each in click]), stop


class ClickArrays(NamedTuple):
    """Click models and the labels of all documents, as compiled code reads them.

    Args:
        labels: (documents,) label of each document.
        examine: (models, 1 or k + 1, k) from `stack_tables`.
        click: (models, 1 or k, grades) from `stack_tables`.
        stop: (models, grades) from `stack_tables`.
        key: Key of the draws, `key_of(seed, Purpose.CLICK)`.
    """

    labels: Int8s
    examine: Doubles
    click: Doubles
    stop: Doubles
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
    """Simulate the clicks of one user on a list; `simulate_clicks` is the same for a single list.

    One uniform is drawn per position examined, and a second one, for leaving, only after a click.

    Args:
        users: Click models and labels.
        model: Index of the click model.
        address: Address of the draws.
        start: Row of the first candidate.
        shown: (k,) the list, as positions among the candidates.
        k: Length of the list.
        clicked: (≥ k,) output: True where the user clicked.
        draws: (BATCH,) scratch.

    Returns:
        Rank of the first click from 0, or −1.
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
    """Simulate the clicks on one list, with the draws of the simulator for this address.

    Args:
        tables: Probabilities of the user.
        labels: (shown,) labels of the list from the top down, at most k.
        seed: Seed of the run.
        round_: Round, from 0.
        client: Number of the client.
        interaction: Interaction of the client in the round, from 0.

    Returns:
        (shown,) True where the user clicked.

    Raises:
        BadInput: `click-model.list-too-long` or `click-model.label-out-of-range` if the tables do not cover the list.

    >>> simulate_clicks(Cascade("perfect").tables(grades=2, k=3), [0, 1, 1], seed=1)
    array([False,  True,  True])
    """
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

"""Cascade users: they read from the top, click by relevance, and may leave after a click (thesis §2.2.1).

Presets of click and stop probabilities are those of the papers (thesis tables 2.1, 2.2 and 5.1). For relevance 0/1 they are
those of the code of Oosterhuis and de Rijke (2018; github.com/HarrieO/OnlineLearningToRank, `utils/clicks.py`), after
Hofmann, Whiteson and de Rijke (2013, "Balancing exploration and exploitation in listwise and pairwise online learning to
rank"), whose scale the graded tables fill in: P(click) and P(stop) of documents that are not relevant, and of those that
are. Other code lets navigational users leave a relevant document with 0.5 in place of 0.9. Poisoning clicks are the perfect
ones the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles
from quorank.users.click_model import ClickModel, ClickTables

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

"""Cascade users: they read from the top, click by relevance, and may leave after a click (thesis §2.2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from quorank.errors import require
from quorank.users.click_model import ClickModel, ClickTables
from quorank.users.presets import CLICK, STOP, Preset, by_label, check_range


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

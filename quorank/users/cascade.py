"""Cascade users: they read from the top, click by relevance, and may leave after a click (thesis §2.2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from quorank.errors import require
from quorank.users.click_model import ClickModel, ClickTables
from quorank.users.presets import CLICK, STOP, Preset, check_probabilities, check_range, preset_of


@dataclass(frozen=True)
class Cascade(ClickModel):
    """P(click | label), then P(stop | click, label). A preset gives both for 3 or 5 grades; own tables override it."""

    kind: ClassVar[str] = "cascade"

    preset: Preset = "perfect"
    grades: Literal[3, 5] | None = None  # of the preset; by default those of the data
    click: tuple[float, ...] | None = None  # P(click = 1 | r), one per label
    stop: tuple[float, ...] | None = None  # P(stop = 1 | click = 1, r), one per label

    def __post_init__(self) -> None:
        check_range("click", self.click)
        check_range("stop", self.stop)
        require(
            (self.click is None) == (self.stop is None),
            "click-model.incomplete",
            "give click and stop together, or neither",
        )

    def tables(self, grades: int, k: int) -> ClickTables:
        """The tables for data with this many grades and lists of k."""
        scale = self.grades or grades
        click = self.click if self.click is not None else preset_of(CLICK, scale, self.preset)
        stop = self.stop if self.stop is not None else preset_of(STOP, scale, self.preset)
        check_probabilities("click", click, grades)
        check_probabilities("stop", stop, grades)
        return ClickTables(np.ones(k), np.array(click, dtype=np.float64), np.array(stop, dtype=np.float64))


class _PresetByName:
    """Lets `Cascade.preset("perfect", grades=3)` build a part while `cascade.preset` stays the field."""

    def __get__(self, instance: object, owner: type[Cascade]) -> Any:
        def preset(name: Preset, grades: Literal[3, 5] | None = None) -> Cascade:
            return owner(preset=name, grades=grades)

        return preset


Cascade.preset = _PresetByName()  # type: ignore[assignment]

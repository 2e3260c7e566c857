"""The click and stop probabilities that the papers use (thesis tables 2.1, 2.2 and 5.1)."""

from __future__ import annotations

from typing import Literal

from quorank.errors import require

Preset = Literal["perfect", "navigational", "informational", "poison"]

CLICK: dict[int, dict[str, tuple[float, ...]]] = {
    3: {
        "perfect": (0.0, 0.5, 1.0),
        "navigational": (0.05, 0.5, 0.95),
        "informational": (0.4, 0.7, 0.9),
        "poison": (1.0, 0.5, 0.0),
    },
    5: {
        "perfect": (0.0, 0.2, 0.4, 0.8, 1.0),
        "navigational": (0.05, 0.3, 0.5, 0.7, 0.95),
        "informational": (0.4, 0.6, 0.7, 0.8, 0.9),
        "poison": (1.0, 0.8, 0.4, 0.2, 0.0),
    },
}

STOP: dict[int, dict[str, tuple[float, ...]]] = {
    3: {
        "perfect": (0.0, 0.0, 0.0),
        "navigational": (0.2, 0.5, 0.9),
        "informational": (0.1, 0.3, 0.5),
        "poison": (0.0, 0.0, 0.0),
    },
    5: {
        "perfect": (0.0, 0.0, 0.0, 0.0, 0.0),
        "navigational": (0.2, 0.3, 0.5, 0.7, 0.9),
        "informational": (0.1, 0.2, 0.3, 0.4, 0.5),
        "poison": (0.0, 0.0, 0.0, 0.0, 0.0),
    },
}


def preset_of(table: dict[int, dict[str, tuple[float, ...]]], grades: int, name: str) -> tuple[float, ...]:
    """A preset's row of a table; presets are published for 3 and for 5 grades."""
    require(
        grades in table,
        "click-model.no-preset",
        f"the preset {name!r} is defined for 3 or 5 grades, not for {grades}; give own tables",
    )
    return table[grades][name]


def check_probabilities(name: str, values: tuple[float, ...], grades: int) -> None:
    """One probability for each label that the data has."""
    require(
        len(values) >= grades,
        "click-model.too-few-grades",
        f"has {len(values)} probabilities, but the data has labels 0..{grades - 1}",
        name,
    )


def check_range(name: str, values: tuple[float, ...] | None) -> None:
    require(
        values is None or all(0.0 <= v <= 1.0 for v in values),
        "value.out-of-range",
        f"must lie between 0 and 1, got {values}",
        name,
    )

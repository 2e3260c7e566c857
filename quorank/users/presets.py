"""Presets of click and stop probabilities that the papers use (thesis tables 2.1, 2.2 and 5.1).

For relevance 0/1 they are those of the code of Oosterhuis and de Rijke (2018; github.com/HarrieO/OnlineLearningToRank,
`utils/clicks.py`), after Hofmann, Whiteson and de Rijke (2013, "Balancing exploration and exploitation in listwise and
pairwise online learning to rank"), whose scale the graded tables fill in: P(click) and P(stop) of documents that are not
relevant, and of those that are. Other code lets navigational users leave a relevant document with 0.5 in place of 0.9.
Poisoning clicks are the perfect ones the other way round.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles

Preset = Literal["perfect", "navigational", "informational", "poison"]

Table = dict[int, dict[str, tuple[float, ...]]]
"""Probabilities by label, of every preset, by the number of grades."""

CLICK: Table = {
    2: {"perfect": (0.0, 1.0), "navigational": (0.05, 0.95), "informational": (0.4, 0.9), "poison": (1.0, 0.0)},
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

STOP: Table = {
    2: {"perfect": (0.0, 0.0), "navigational": (0.2, 0.9), "informational": (0.1, 0.5), "poison": (0.0, 0.0)},
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


def by_label(name: str, own: tuple[float, ...] | None, table: Table, scale: int, preset: str, grades: int) -> Doubles:
    """Return the field's own probabilities, else those of a preset; one for each of the labels that the data has.

    Presets are published for scales of 2, 3 and 5 grades.
    """
    if own is None:
        missing = f"the preset {preset!r} is defined for 2, 3 or 5 grades, not for {scale}; give own tables"
        require(scale in table, "click-model.no-preset", missing)
        own = table[scale][preset]
    few = f"has {len(own)} probabilities, but the data has labels 0..{grades - 1}"
    require(len(own) >= grades, "click-model.too-few-grades", few, name)
    return np.array(own, dtype=np.float64)


def check_range(name: str, values: tuple[float, ...] | None) -> None:
    """Refuse probabilities outside 0 to 1."""
    inside = values is None or all(0.0 <= v <= 1.0 for v in values)
    require(inside, "value.out-of-range", f"must lie between 0 and 1, got {values}", name)

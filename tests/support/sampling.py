"""Samples of combinations in place of full products."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any


def sampled(*families: Sequence[Any], times: int = 1) -> list[tuple[Any, ...]]:
    """Combinations in which every member occurs, with other partners each of the `times` rounds through the largest family.

    >>> sampled([1, 2, 3], ["a", "b"])
    [(1, 'a'), (2, 'b'), (3, 'a')]
    """
    largest, combinations = max(map(len, families)), list[tuple[int, ...]]()
    for i in range(times * largest):
        turn = i // largest
        strides = [
            1 if len(family) == largest or gcd(number, len(family)) > 1 else number
            for number, family in enumerate(families, 1)
        ]
        combinations.append(
            tuple(
                (i * stride + turn * number) % len(family)
                for number, (family, stride) in enumerate(zip(families, strides, strict=True))
            )
        )
    return [
        tuple(family[at] for family, at in zip(families, places, strict=True)) for places in dict.fromkeys(combinations)
    ]

"""Selection of a kernel's generator at compile time: the Numba overloads of `streams`."""

from __future__ import annotations

from typing import Any

from numba.extending import overload

from quorank.kernels import draws
from quorank.privacy import streams


def uniform_pair(key: Any, block: int, interaction: int, client: int, round_: int) -> Any:
    """Stand for `streams.uniform_pair` in kernels."""


@overload(uniform_pair, strict=False)  # type: ignore[untyped-decorator,unused-ignore]
def _chosen(key: Any, block: Any, interaction: Any, client: Any, round_: Any) -> Any:
    """Select the generator at compile time; return the function itself, since a call in between costs time."""
    chosen: Any = streams.secret_pair if key.dtype.bitwidth == 32 else draws.uniform_pair
    return chosen.py_func


def words(key: Any, block: int, interaction: int, client: int, round_: int) -> Any:
    """Stand for `streams.words` in kernels."""


@overload(words, strict=False)  # type: ignore[untyped-decorator,unused-ignore]
def _chosen_words(key: Any, block: Any, interaction: Any, client: Any, round_: Any) -> Any:
    """Select the generator at compile time."""
    chosen: Any = streams.secret_words if key.dtype.bitwidth == 32 else streams.seeded_words
    return chosen.py_func

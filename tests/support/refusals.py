"""Refusals by their code: what is wrong, and where, without the words of the sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from quorank.errors import BadInput


@contextmanager
def refused(code: str, where: str | None = None) -> Iterator[None]:
    """The block raises BadInput with this code and, if given, this place."""
    with pytest.raises(BadInput) as caught:
        yield
    assert caught.value.code == code, caught.value
    assert where is None or caught.value.where == where


def accepts(check: Callable[..., object], *arguments: object) -> bool:
    """Whether a check does not raise BadInput for these arguments."""
    try:
        check(*arguments)
    except BadInput:
        return False
    return True

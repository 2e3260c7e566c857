"""Words near another one, against the recursive definition of the distance."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from quorank.search.index.candidates import near_words


@cache
def distance(one: str, other: str) -> int:
    """Levenshtein 1966, as it is defined."""
    if not one or not other:
        return len(one) + len(other)
    if one[0] == other[0]:
        return distance(one[1:], other[1:])
    return 1 + min(distance(one[1:], other), distance(one, other[1:]), distance(one[1:], other[1:]))


WORDS = st.text(alphabet="abcä漢", min_size=1, max_size=9)


@given(word=WORDS, known=st.lists(WORDS, unique=True, max_size=12))
def test_near_words_are_those_within_the_distance(word: str, known: list[str]) -> None:
    most = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
    expected = [(distance(word, other), other) for other in known if 0 < distance(word, other) <= most]
    assert near_words(word, known) == [other for _, other in sorted(expected)]

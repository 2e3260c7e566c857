"""Words of file names that are nearly the one that was typed (Levenshtein distance), all compared at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quorank.kernels.arrays import Integers

SHORTEST, LONG = 4, 8
"""Letters of the shortest word that may have a typo, and of one that may have two."""


def allowed_distance(word: str) -> int:
    """Return how many letters may be wrong: 1 of 4 to 7, 2 of 8 or more."""
    return 0 if len(word) < SHORTEST else 1 if len(word) < LONG else 2


class NameWords:
    """Words that occur in names, arranged so that those near another one are found in about a millisecond.

    A letter that is inserted, deleted or exchanged changes at most two bits of the set of a word's letters, so few
    words are left to be compared letter by letter.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        longest = max(map(len, words), default=1)
        self._letters = np.array(words, dtype=f"<U{longest}").view("<u4").reshape(len(words), longest)
        self._lengths = np.array([len(word) for word in words], dtype=np.int64)
        self._sets = np.zeros(len(words), dtype=np.uint64)
        for column in self._letters.T:
            self._sets |= np.where(column > 0, _bit(column), np.uint64(0))

    def near(self, word: str) -> list[str]:
        """Return the other words within the allowed distance, the nearest first, then by the alphabet."""
        most = allowed_distance(word)
        if most == 0 or not len(self._words):
            return []
        letters = np.frombuffer(word.encode("utf-32-le"), dtype="<u4")
        own = np.bitwise_or.reduce(_bit(letters))
        likely = (np.abs(self._lengths - len(word)) <= most) & (np.bitwise_count(self._sets ^ own) <= 2 * most)
        chosen = np.flatnonzero(likely)
        distances = _edit_distances(letters, self._letters[chosen], self._lengths[chosen])
        near = sorted((int(d), self._words[int(i)]) for d, i in zip(distances, chosen, strict=True) if 0 < d <= most)
        return [other for _, other in near]


def _bit(letters: Any) -> Any:
    return np.uint64(1) << (letters.astype(np.uint64) & np.uint64(63))


def _edit_distances(word: Any, others: Any, lengths: Integers) -> Integers:
    """Compute (others,) the least number of letters to insert, delete or exchange (Levenshtein 1966)."""
    longest = others.shape[1]
    previous = np.broadcast_to(np.arange(longest + 1), (len(others), longest + 1))
    for row, letter in enumerate(word, 1):
        current = np.empty_like(previous)
        current[:, 0] = row
        cheapest = np.minimum(previous[:, :-1] + (others != letter), previous[:, 1:] + 1)
        for column in range(longest):
            current[:, column + 1] = np.minimum(cheapest[:, column], current[:, column] + 1)
        previous = current
    return np.asarray(previous[np.arange(len(others)), lengths])

"""Words of file names that are nearly the one that was typed (Levenshtein distance), all compared at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quorank.arrays import Integers

SHORTEST, LONG = 4, 8
"""Letters of the shortest word that may have a typo, and of one that may have two."""


def allowed_distance(word: str) -> int:
    """Return how many letters may be wrong: 1 of 4 to 7, 2 of 8 or more."""
    return 0 if len(word) < SHORTEST else 1 if len(word) < LONG else 2


def near_words(word: str, known: Sequence[str]) -> list[str]:
    """Return the other words within the allowed distance, the nearest first, then by the alphabet."""
    most = allowed_distance(word)
    if most == 0:
        return []
    chosen = [other for other in known if abs(len(other) - len(word)) <= most and other != word]
    if not chosen:
        return []
    distances = edit_distances(word, chosen)
    near = sorted((int(distances[i]), chosen[i]) for i in np.flatnonzero(distances <= most))
    return [other for _, other in near]


def edit_distances(word: str, others: Sequence[str]) -> Integers:
    """Compute (others,) the least number of letters to insert, delete or exchange (Levenshtein 1966)."""
    longest = max(map(len, others))
    letters = np.array(others, dtype=f"<U{longest}").view("<u4").reshape(len(others), longest)
    lengths = np.array([len(other) for other in others])
    previous = np.broadcast_to(np.arange(longest + 1, dtype=np.int64), (len(others), longest + 1)).copy()
    for row, letter in enumerate(word, 1):
        current = np.empty_like(previous)
        current[:, 0] = row
        exchanged = previous[:, :-1] + (letters != ord(letter))
        cheapest = np.minimum(exchanged, previous[:, 1:] + 1)
        for column in range(longest):
            current[:, column + 1] = np.minimum(cheapest[:, column], current[:, column] + 1)
        previous = current
    return previous[np.arange(len(others)), lengths]

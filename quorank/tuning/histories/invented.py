"""Invented words, and addresses and titles made of them.

A page's text is the name of its site and three words of its title. Words are made of syllables and are used as often
as Zipf's law says, one over their rank, so sites and words recur among the pages of a person, and beginnings are shared.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from quorank.arrays import Bytes, Integers, Uint64s
from quorank.compiled import kernel
from quorank.draws import Purpose, key_of, uniform_pair, uniforms

SPACE = 32
WORDS = 4  # of a page: the site's name and three of its title
VOCABULARY = 600
_TEXT, _WORD = 2, 3  # rounds of Purpose.HISTORY
_CONSONANTS, _VOWELS = "strnlcmpdbgfhvwkzjqx", "eaoiu"


def page_texts(seed: int, first: int, offsets: Integers) -> tuple[Bytes, Integers]:
    """The letters of all pages of persons `first`, `first + 1`, …, and where each page begins.

    offsets: (persons + 1,), the pages of each person.
    """
    key = key_of(seed, Purpose.HISTORY)
    words, ends = vocabulary(seed)
    texts = np.zeros(int(offsets[-1]) + 1, np.int64)
    _lengths(key, first, offsets, ends, texts[1:])
    np.cumsum(texts, out=texts)
    letters = np.empty(int(texts[-1]), np.uint8)
    _write(key, first, offsets, words, ends, texts, letters)
    return letters, texts


@lru_cache(maxsize=4)
def vocabulary(seed: int) -> tuple[Bytes, Integers]:
    """The invented words of a population, the commonest first, and where each ends."""
    draws = uniforms(seed, Purpose.HISTORY, VOCABULARY * 12, round_=_WORD).reshape(VOCABULARY, 12)
    words = []
    for row in draws:
        syllables = 2 + int(row[0] * 2.5)
        pairs = row[1 : 1 + 2 * syllables].reshape(-1, 2) ** (1.5, 1.0)  # some consonants are commoner
        words.append("".join(_CONSONANTS[int(c * 20)] + _VOWELS[int(v * 5)] for c, v in pairs))
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    return np.frombuffer("".join(words).encode(), np.uint8), ends


@kernel
def _word(u: float, count: int) -> int:
    """The number of a word whose frequency falls as one over its rank: Zipf's law, by inversion of 1/x."""
    return min(int(math.exp(u * math.log(count + 1.0))) - 1, count - 1)


@kernel
def _words_of(key: Uint64s, client: int, page: int, count: int, out: Integers) -> None:
    for pair in range(WORDS // 2):
        u, v = uniform_pair(key, page * (WORDS // 2) + pair, client, 0, _TEXT)
        out[2 * pair], out[2 * pair + 1] = _word(u, count), _word(v, count)


@kernel
def _lengths(key: Uint64s, first: int, offsets: Integers, ends: Integers, lengths: Integers) -> None:
    chosen = np.empty(WORDS, np.int64)
    for q in range(len(offsets) - 1):
        for x in range(offsets[q], offsets[q + 1]):
            _words_of(key, first + q, x - offsets[q], len(ends), chosen)
            lengths[x] = WORDS - 1
            for word in chosen:
                lengths[x] += ends[word] - (ends[word - 1] if word > 0 else 0)


@kernel
def _write(
    key: Uint64s,
    first: int,
    offsets: Integers,
    words: Bytes,
    ends: Integers,
    texts: Integers,
    letters: Bytes,
) -> None:
    chosen = np.empty(WORDS, np.int64)
    for q in range(len(offsets) - 1):
        for x in range(offsets[q], offsets[q + 1]):
            _words_of(key, first + q, x - offsets[q], len(ends), chosen)
            at = texts[x]
            for j in range(WORDS):
                if j > 0:
                    letters[at] = SPACE
                    at += 1
                for i in range(ends[chosen[j] - 1] if chosen[j] > 0 else 0, ends[chosen[j]]):
                    letters[at] = words[i]
                    at += 1

"""What an owner learns of a question: with blocks drawn anew the term, with keyed blocks its block."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.kernels.draws import Purpose, uniforms
from quorank.silos.count_sketch import Hashing
from quorank.silos.sketch.questions import KeyedBlocks

KEY = bytes(range(32))
PUBLISHED = Hashing(KEY, 30, 200)  # z and w of the paper
NARROW = Hashing(KEY, 5, 2000)
WORDS = tuple(f"word{i}" for i in range(3000))
ASKED = tuple(WORDS[int(u * len(WORDS))] for u in uniforms(1, Purpose.OBFUSCATION, 60, client=7))


def blocks(among: int = 3, real: int = 10, words: tuple[str, ...] = WORDS) -> KeyedBlocks:
    return KeyedBlocks(b"the asker's own key of 32 bytes!", words, among, real)


def is_true_to_the_term(hidden, term, hashing) -> bool:
    columns, signs = hashing.places([term])
    rows = hidden.rows
    return (
        np.array_equal(hidden.columns[hidden.vector, rows], columns[0, rows])
        and np.array_equal(hidden.signs, signs[0])
        and len(set(rows.tolist())) == len(rows)
        and hidden.columns.shape[1] == hashing.rows
        and hidden.columns.min() >= 0
        and hidden.columns.max() < hashing.columns
    )


@pytest.mark.parametrize("hashing", [PUBLISHED, NARROW])
def test_real_rows_hold_the_columns_of_the_term(hashing) -> None:
    parts = [blocks(3, 2), blocks(7, 5), blocks(1, 5)]
    for part in parts:
        for term in [*ASKED[:10], "unknown"]:
            hidden = part.hide(term, hashing)
            assert is_true_to_the_term(hidden, term, hashing)
            assert len(hidden.columns) == part.vectors(hashing.rows)


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 30), st.integers(1, 14), st.integers(0, 10**6))
def test_every_member_of_a_block_gets_its_rows_and_one_question_serves_all(among, real, size, seed) -> None:
    words = tuple(f"w{i}" for i in range(max(size, among)))
    part = KeyedBlocks(seed.to_bytes(16, "little"), words, among, real)
    seen = set()
    for term in words:
        block, hidden = part.block(term), part.hide(term, PUBLISHED)
        assert term in block and among <= len(block) < 2 * among
        assert is_true_to_the_term(hidden, term, PUBLISHED)
        if len(block) == among:
            assert len(hidden.rows) >= real
        for other in block:
            assert part.block(other) == block
            assert np.array_equal(part.hide(other, PUBLISHED).columns, hidden.columns)
        seen |= {block}
    assert sorted(term for block in seen for term in block) == sorted(words)  # a partition


# ---------------------------------------------------------------- the owner's attack


@cache
def dictionary(hashing: Hashing) -> np.ndarray:
    """The columns of all words."""
    return hashing.places(WORDS)[0]


def guesses(part, hashing, repeats: int = 1) -> float:
    """The share of terms that the owner names, by the dictionary, from `repeats` questions about each.

    It names the term that fits most rows of the question that it fits worst.
    """
    right, places = 0.0, dictionary(hashing)
    for term in ASKED:
        questions = [part.hide(term, hashing).columns for _ in range(repeats)]
        fits = np.min([np.max([(places == v).sum(axis=1) for v in q], axis=0) for q in questions], axis=0)
        best = np.flatnonzero(fits == fits.max())
        if term in {WORDS[i] for i in best}:
            right += 1 / len(best)
    return right / len(ASKED)


class FreshBlocks:
    """Blocks that are drawn anew for each question: what keyed blocks would be without a key."""

    def __init__(self) -> None:
        self.number = 0

    def hide(self, term, hashing):
        number, self.number = self.number, self.number + 1
        u = uniforms(5, Purpose.OBFUSCATION, 3, interaction=number)
        words = tuple(dict.fromkeys((term, *(WORDS[int(x * len(WORDS))] for x in u))))
        return KeyedBlocks(number.to_bytes(16, "little"), words[:3], 3, 10).hide(term, hashing)


def test_fresh_blocks_hide_one_question_and_not_two() -> None:
    assert guesses(FreshBlocks(), PUBLISHED) == pytest.approx(1 / 3, abs=0.05)
    assert guesses(FreshBlocks(), PUBLISHED, repeats=2) > 0.95


@pytest.mark.parametrize(
    ("among", "real", "hashing"), [(3, 10, PUBLISHED), (6, 5, PUBLISHED), (5, 5, NARROW), (4, 2, NARROW)]
)
def test_the_owner_learns_the_block_and_no_more_however_often_it_is_asked(among, real, hashing) -> None:
    part = blocks(among, real)
    for repeats in (1, 20):
        assert guesses(part, hashing, repeats) <= 1 / among + 0.02


def test_terms_of_a_block_are_about_equally_frequent() -> None:
    """Blocks are made within strata of the order of frequency, so a guess by frequency gains little."""
    part = blocks(4, 5)
    rank = {term: at for at, term in enumerate(WORDS)}
    spread = [max(map(rank.get, b)) - min(map(rank.get, b)) for b in map(part.block, WORDS)]
    assert max(spread) < 64 * 4
    frequency = 1 / (1 + np.arange(len(WORDS)))  # Zipf
    by_prior = [frequency[rank[t]] / sum(frequency[rank[o]] for o in part.block(t)) for t in WORDS]
    first = [min(map(rank.get, part.block(t))) == rank[t] for t in WORDS]  # the owner names the most frequent member
    expected = float(np.dot(first, frequency) / frequency.sum())
    assert np.median(by_prior) == pytest.approx(1 / 4, abs=0.03)
    assert expected < 0.75  # all the same: the few most frequent terms are far apart, and there a prior tells a lot


def test_another_key_makes_other_blocks() -> None:
    mine, other = blocks(), KeyedBlocks(b"another key of 32 bytes, quite so", WORDS)
    shared = sum(set(mine.block(t)) == set(other.block(t)) for t in WORDS)
    assert shared < 30
    assert b"asker" not in repr(mine).encode() and "word1" not in repr(mine)


def test_blocks_take_as_many_vectors_as_they_need() -> None:
    for among, real, rows in ((3, 10, 30), (4, 10, 30), (1, 30, 30), (5, 5, 5), (4, 2, 5), (8, 1, 5)):
        assert blocks(among, real).vectors(rows) == math.ceil(among / (rows // real))

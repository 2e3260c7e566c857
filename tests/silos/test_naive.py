"""NAIVE against one sketch per document, asked one after another (algorithm 3)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.silos.hashing import Hashing
from quorank.silos.sketch import count_sketch as naive
from quorank.silos.sketch.count_sketch import (
    Naive,
    count_min_estimate,
    count_min_table,
    count_sketch_estimate,
    count_sketch_table,
    sketch_cells,
)

KEY = bytes(range(32))
TERMS = [f"t{i}" for i in range(12)]
DOCUMENT = st.dictionaries(st.sampled_from(TERMS), st.integers(1, 9), min_size=1)


def add(naive_: Naive, document: int, terms: list[str], counts: list[int]) -> None:
    naive_.add_many([0, len(terms)], range(len(terms)), counts, terms, [document])


@settings(max_examples=40)
@given(st.lists(DOCUMENT, min_size=1, max_size=12), st.sampled_from(["count", "count-min"]), st.integers(1, 5))
def test_algorithm_3(documents, sketch: Literal["count", "count-min"], k: int) -> None:
    hashing = Hashing(KEY, 3, 7)
    group, naive.GROUP = naive.GROUP, 4  # so that few documents fill several groups
    try:
        fast = Naive(hashing, sketch)
        held = {}
        for number, document in enumerate(documents):
            add(fast, 10 * number, list(document), list(document.values()))
            held[10 * number] = document
        assert fast.documents.tolist() == list(held)
        assert fast.memory_bytes == len(held) * 21 * 4
        for term in TERMS[:4]:
            places, sides = hashing.places([term])
            wanted = {}
            for number, document in held.items():
                columns, signs = hashing.places(list(document))
                counts = list(document.values())
                if sketch == "count":
                    cells = sketch_cells(count_sketch_table(columns, signs, counts, 7), places[0])
                    wanted[number] = float(count_sketch_estimate(cells, sides[0]))
                else:
                    cells = sketch_cells(count_min_table(columns, counts, 7), places[0])
                    wanted[number] = float(count_min_estimate(cells))
            ids, estimates = fast.top(term, k)
            assert [wanted[int(i)] for i in ids] == list(estimates)
            assert list(estimates) == sorted(wanted.values(), reverse=True)[:k]
            assert len(set(ids.tolist())) == min(k, len(held))
    finally:
        naive.GROUP = group


def test_many_at_once_is_one_after_another() -> None:
    hashing = Hashing(KEY, 2, 9)
    one, many = Naive(hashing), Naive(hashing, counter=np.int16)
    many.add_many([0, 2, 3, 6], [0, 1, 1, 2, 0, 5], [1, 2, 3, 4, 5, 6], TERMS, [4, 2, 9])
    add(one, 4, ["t0", "t1"], [1, 2])
    add(one, 2, ["t1"], [3])
    add(one, 9, ["t2", "t0", "t5"], [4, 5, 6])
    assert many.memory_bytes * 2 == one.memory_bytes
    for j in range(9):
        assert np.array_equal(one.cells([j, 8 - j]), many.cells([j, 8 - j]))


def test_refusals() -> None:
    naive_ = Naive(Hashing(KEY, 2, 9), counter=np.int16)
    add(naive_, 1, ["a"], [1])
    with pytest.raises(BadInput, match="already here"):
        add(naive_, 1, ["b"], [1])
    with pytest.raises(BadInput, match="at least one term"):
        add(naive_, 2, [], [])
    with pytest.raises(BadInput, match="int32"):
        add(naive_, 2, ["a"], [40_000])
    assert naive_.documents.tolist() == [1]
    assert naive_.top("a", 3)[1].tolist() == [1.0]

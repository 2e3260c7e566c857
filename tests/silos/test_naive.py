"""NAIVE against one sketch per document, asked one after another (algorithm 3)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.silos.sketch import count_min, count_sketch, naive
from quorank.silos.sketch.hashing import Hashing
from quorank.silos.sketch.naive import Naive

KEY = bytes(range(32))
TERMS = [f"t{i}" for i in range(12)]
DOCUMENT = st.dictionaries(st.sampled_from(TERMS), st.integers(1, 9), min_size=1)


@settings(max_examples=40)
@given(
    st.lists(DOCUMENT, min_size=1, max_size=12),
    st.data(),
    st.sampled_from(["count", "count-min"]),
    st.integers(1, 5),
)
def test_algorithm_3(documents, data, sketch: Literal["count", "count-min"], k: int) -> None:
    hashing = Hashing(KEY, 3, 7)
    group, naive.GROUP = naive.GROUP, 4  # so that few documents fill several groups
    try:
        fast = Naive(hashing, sketch)
        held = {}
        for number, document in enumerate(documents):
            fast.add(10 * number, list(document), list(document.values()))
            held[10 * number] = document
            if data.draw(st.integers(0, 3)) == 0:
                gone = data.draw(st.sampled_from(sorted(held)))
                fast.remove(gone)
                del held[gone]
        assert sorted(fast.documents) == sorted(held)
        assert fast.memory_bytes == len(held) * 21 * 4
        for term in TERMS[:4]:
            places, sides = hashing.places([term])
            wanted = {}
            for number, document in held.items():
                columns, signs = hashing.places(list(document))
                counts = list(document.values())
                if sketch == "count":
                    cells = count_sketch.sketch_cells(count_sketch.count_sketch_table(columns, signs, counts, 7), places[0])
                    wanted[number] = float(count_sketch.count_sketch_estimate(cells, sides[0]))
                else:
                    cells = count_sketch.sketch_cells(count_min.count_min_table(columns, counts, 7), places[0])
                    wanted[number] = float(count_min.count_min_estimate(cells))
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
    one.add(4, ["t0", "t1"], [1, 2])
    one.add(2, ["t1"], [3])
    one.add(9, ["t2", "t0", "t5"], [4, 5, 6])
    assert many.memory_bytes * 2 == one.memory_bytes
    for j in range(9):
        assert np.array_equal(one.cells([j, 8 - j]), many.cells([j, 8 - j]))


def test_refusals() -> None:
    naive_ = Naive(Hashing(KEY, 2, 9), counter=np.int16)
    naive_.add(1, ["a"], [1])
    with pytest.raises(BadInput, match="already here"):
        naive_.add(1, ["b"], [1])
    with pytest.raises(BadInput, match="empty"):
        naive_.add(2, [], [])
    with pytest.raises(BadInput, match="int32"):
        naive_.add(2, ["a"], [40_000])
    with pytest.raises(BadInput, match="not here"):
        naive_.remove(2)
    assert naive_.documents.tolist() == [1]
    assert naive_.top("a", 3)[1].tolist() == [1.0]

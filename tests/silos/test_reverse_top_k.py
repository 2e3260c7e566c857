"""The RTK-Sketch against a slow one in plain Python, against every document's own sketch, and against exact counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_sketches import SlowReverseTopK

from quorank.errors import BadInput
from quorank.parts import Family
from quorank.silos.sketch.cell_pool import (
    ABSOLUTE,
    POSITIVE,
    SIGNED,
    document_of,
    entry_of,
    gather,
    scatter,
    select,
    value_of,
)
from quorank.silos.sketch.count_sketch import count_min_table, count_sketch_table
from quorank.silos.sketch.reverse_top_k import Cells, ReverseTopK, Shape, rank

KEY = bytes(range(32))
TERMS = [f"t{i}" for i in range(25)]
SHAPES = [
    Shape("count", "recommended", 2, 5, 6, 40),
    Shape("count", "recommended", 3, 4, 40, 60),
    Shape("count-min", "recommended", 2, 5, 4, 40),
    Shape("count", "literal", 2, 5, 3, 30),
    Shape("count-min", "literal", 3, 3, 4, 36),
]
DOCUMENT = st.dictionaries(st.sampled_from(TERMS), st.integers(1, 6), min_size=1, max_size=10)
DOCUMENTS = st.lists(DOCUMENT, min_size=1, max_size=25)


def table_of(shape: Shape, document: dict[str, int]):
    columns, signs = shape.hashing(KEY).places(list(document))
    counts = list(document.values())
    if shape.sketch == "count":
        return count_sketch_table(columns, signs, counts, shape.columns)
    return count_min_table(columns, counts, shape.columns)


def played(shape: Shape, documents, others=()):
    """Documents added one by one."""
    fast, held = ReverseTopK(shape.hashing(KEY), shape), {}
    for number, document in enumerate(documents):
        for sketch in (fast, *others):
            sketch.add(3 * number, list(document), list(document.values()))
        held[3 * number] = document
    return fast, held


def cell_of(cells: Cells, a: int) -> dict[int, int]:
    part = slice(cells.offsets[a], cells.offsets[a + 1])
    return dict(zip(cells.documents[part].tolist(), cells.values[part].tolist(), strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@settings(max_examples=30)
@given(DOCUMENTS)
def test_adding_is_what_the_slow_one_does(shape: Shape, documents) -> None:
    slow = SlowReverseTopK(shape.hashing(KEY), shape)
    fast, held = played(shape, documents, [slow])
    assert len(fast) == len(held)
    assert fast.stored == slow.stored()
    assert fast.limit == slow.limit
    for j in range(shape.columns):
        cells = fast.cells([j] * shape.rows)
        for a in range(shape.rows):
            documents, floor = slow.read(a, j)
            assert cell_of(cells, a) == documents
            assert cells.floors[a] == floor


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
@settings(max_examples=30)
@given(DOCUMENTS)
def test_absence_means_what_the_floor_says(shape: Shape, documents) -> None:
    fast, held = played(shape, documents)
    assert fast.stored <= shape.entries
    tables = {number: table_of(shape, document) for number, document in held.items()}
    for j in range(shape.columns):
        cells = fast.cells([j] * shape.rows)
        for a in range(shape.rows):
            there = cell_of(cells, a)
            assert len(there) <= shape.capacity
            for number, table in tables.items():
                if number in there:
                    assert there[number] == table[a, j]
                else:
                    assert abs(table[a, j]) <= cells.floors[a]


@settings(max_examples=30)
@given(st.lists(DOCUMENT, min_size=1, max_size=40), st.integers(2, 6))
def test_a_literal_cell_is_a_heap_of_the_largest(documents, capacity: int) -> None:
    """Algorithm 4 with nothing removed: the αK largest values, zeros and negative ones among them."""
    shape = Shape("count", "literal", 2, 4, capacity, 8 * capacity)
    sketch = ReverseTopK(shape.hashing(KEY), shape)
    for number, document in enumerate(documents):
        sketch.add(number, list(document), list(document.values()))
    tables = [table_of(shape, document) for document in documents]
    for j in range(4):
        cells = sketch.cells([j, j])
        for a in range(2):
            wanted = sorted((int(table[a, j]) for table in tables), reverse=True)[:capacity]
            assert sorted(cell_of(cells, a).values(), reverse=True) == wanted


def test_many_at_once_one_after_another_and_as_finished_sketches() -> None:
    random = np.random.default_rng(1)
    for shape in (*SHAPES, replace(SHAPES[0], capacity=40, entries=400)):
        many, single, made = (ReverseTopK(shape.hashing(KEY), shape) for _ in range(3))
        documents = [
            dict(zip(random.permutation(TERMS)[:n], random.integers(1, 9, n).tolist(), strict=True))
            for n in random.integers(1, 9, 30)
        ]
        offsets = np.cumsum([0, *map(len, documents)])
        terms = [TERMS.index(term) for document in documents for term in document]
        counts = [count for document in documents for count in document.values()]
        many.add_many(offsets, terms, counts, TERMS, range(5, 35))
        for number, document in enumerate(documents):
            single.add(5 + number, list(document), list(document.values()))
            made.add_sketch(5 + number, table_of(shape, document))
        for j in range(shape.columns):
            one, other = single.cells([j] * shape.rows), many.cells([j] * shape.rows)
            assert np.array_equal(one.floors, other.floors)
            for a in range(shape.rows):
                assert cell_of(one, a) == cell_of(other, a)
            if shape.entries == 400:  # nothing is turned away, so room was never made at another moment
                finished = made.cells([j] * shape.rows)
                assert [cell_of(finished, a) for a in range(2)] == [cell_of(one, a) for a in range(2)]
                assert not finished.floors.any()
        assert len(many) == len(made) == 30


def test_without_pressure_the_top_k_is_exact() -> None:
    random = np.random.default_rng(2)
    for sketch in ("count", "count-min"):
        shape = Shape(sketch, "recommended", 3, 4096, 100, 40_000)  # type: ignore[arg-type]
        structure = ReverseTopK(shape.hashing(KEY), shape)
        counts = random.integers(0, 20, (60, len(TERMS)))
        counts[:, 0] += 1
        for number, row in enumerate(counts):
            there = np.flatnonzero(row)
            structure.add(number, [TERMS[i] for i in there], row[there])
        for i, term in enumerate(TERMS):
            ids, estimates = structure.top(term, 10)
            assert estimates.tolist() == sorted(counts[:, i].tolist(), reverse=True)[:10]
            assert counts[ids, i].tolist() == estimates.tolist()


@settings(max_examples=60)
@given(st.lists(st.dictionaries(st.integers(0, 12), st.integers(-5, 9), max_size=9), min_size=1, max_size=9), st.data())
def test_ranking_is_by_the_lower_quartile_of_what_rows_say(rows, data) -> None:
    """s_a = g_a·v_a, or F_a / 2; their lower quartile, then cells, then the smaller sum, then the document."""
    z = len(rows)
    floors = data.draw(st.lists(st.integers(0, 6), min_size=z, max_size=z))
    signs = data.draw(st.lists(st.sampled_from([-1, 1]), min_size=z, max_size=z))
    real = data.draw(st.lists(st.sampled_from(range(z)), min_size=1, max_size=z, unique=True))
    offsets = np.cumsum([0, *map(len, rows)])
    cells = Cells(
        offsets,
        np.array([d for row in rows for d in row], dtype=np.int32),
        np.array([v for row in rows for v in row.values()], dtype=np.int32),
        np.array(floors, dtype=np.int32),
    )
    wanted = []
    for document in {d for a in real for d in rows[a]}:
        said = sorted(signs[a] * rows[a][document] if document in rows[a] else floors[a] / 2 for a in real)
        worst = said[(len(real) - 1) // 4]
        there = [abs(rows[a][document]) for a in real if document in rows[a]]
        wanted.append((-worst, -len(there), sum(there), document))
    ids, estimates = rank(cells, signs, real, 5, Shape(rows=z, columns=8, entries=10_000))
    assert ids.tolist() == [entry[3] for entry in sorted(wanted)[:5]]
    assert estimates.tolist() == [-entry[0] for entry in sorted(wanted)[:5]]

    for sketch, estimate in (("count", np.median), ("count-min", min)):
        shape = Shape(sketch, "literal", z, 8, 5, z * 40, beta=0.5)  # type: ignore[arg-type]
        sides = signs if sketch == "count" else [1] * z
        found = {d: [sides[a] * rows[a][d] for a in real if d in rows[a]] for a in real for d in rows[a]}
        best = sorted((-float(estimate(v)), d) for d, v in found.items() if len(v) >= 0.5 * len(real))
        ids, estimates = rank(cells, signs, real, 5, shape)
        assert ids.tolist() == [d for _, d in best[:5]]
        assert estimates.tolist() == [-e for e, _ in best[:5]]


@given(st.integers(0, 2**31 - 1), st.integers(-(2**30) + 1, 2**30 - 1))
def test_entries_can_be_read_back(document: int, value: int) -> None:
    assert gather(scatter(document)) == document
    for kept in (ABSOLUTE, POSITIVE, SIGNED):
        entry = entry_of(value, scatter(document), kept)
        if (kept == ABSOLUTE and value == 0) or (kept == POSITIVE and value <= 0):
            assert entry == -1
        else:
            assert 0 <= entry < 2**63
            assert value_of(entry, kept) == value
            assert document_of(entry) == document


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=60), st.data())
def test_selection_puts_the_right_one_there(numbers, data) -> None:
    at = data.draw(st.integers(0, len(numbers) - 1))
    array = np.array(numbers, dtype=np.int64)
    select(array, at)
    assert sorted(array.tolist()) == sorted(numbers)
    assert array[at] == sorted(numbers)[at]
    assert all(array[:at] <= array[at])
    assert all(array[at + 1 :] >= array[at])


def test_memory_is_bounded_and_shapes_have_the_paper_s_size() -> None:
    assert Shape.published().entries == 30 * 200 * 5 * 150 == Shape().entries == Shape.recommended().entries
    assert Shape.published().capacity == 750
    shape = Shape("count", "recommended", 2, 64, 1000, 2000)
    sketch = ReverseTopK(shape.hashing(KEY), shape)
    random = np.random.default_rng(3)
    sizes = []
    for number in range(1500):
        sketch.add(number, [f"w{i}" for i in random.permutation(500)[:40]], [1] * 40)
        assert sketch.stored <= 2000
        sizes.append(sketch.memory_bytes)
    assert sizes[-1] == sizes[500] <= (2000 + 16 * 128) * 8.25 + 128 * 20 + 16_384
    family = Family("shape", Shape)
    assert family.parse(str(shape)) == shape


def test_refusals_change_nothing() -> None:
    shape = SHAPES[0]
    sketch = ReverseTopK(shape.hashing(KEY), shape)
    sketch.add(7, ["a", "b"], [2, 1])
    before = sketch.cells([0, 0])
    for said, act in [
        ("already in this sketch", lambda: sketch.add(7, ["c"], [1])),
        ("already in this sketch", lambda: sketch.add_many([0, 1, 2], [0, 0], [1, 1], ["c"], [8, 7])),
        ("twice", lambda: sketch.add_many([0, 1, 2], [0, 0], [1, 1], ["c"], [8, 8])),
        ("stands twice", lambda: sketch.add(8, ["c", "c"], [1, 1])),
        ("is empty", lambda: sketch.add(8, [], [])),
        ("document 9 is empty", lambda: sketch.add_many([0, 1, 1], [0], [1], ["c"], [8, 9])),
        ("counts", lambda: sketch.add(8, ["c"], [0])),
        ("counts", lambda: sketch.add_many([0, 1], [0], [-1], ["c"], [8])),
        ("vocabulary", lambda: sketch.add_many([0, 1], [1], [1], ["c"], [8])),
        ("integers from 0", lambda: sketch.add(-1, ["c"], [1])),
        ("2 columns", lambda: sketch.cells([0])),
        ("2 columns", lambda: sketch.cells([0, 5])),
        ("2 rows and 5 columns", lambda: sketch.add_sketch(8, np.zeros((2, 6)))),
        ("take shape.hashing", lambda: ReverseTopK(shape.hashing(KEY), replace(shape, columns=6))),
        ("rows", lambda: rank(before, [1, 1], [0, 0], 3, shape)),
        ("numbered", lambda: rank(before, [1, 1], [2], 3, shape)),
        ("sign", lambda: rank(before, [1, 0], [0], 3, shape)),
        ("fit together", lambda: rank(before._replace(floors=before.floors[:1]), [1, 1], [0], 3, shape)),
    ]:
        with pytest.raises(BadInput, match=said):
            act()
    after = sketch.cells([0, 0])
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))
    assert len(sketch) == 1
    assert 7 in sketch
    assert 8 not in sketch

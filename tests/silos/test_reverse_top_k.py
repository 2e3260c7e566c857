"""The RTK-Sketch against every document's own sketch, and against exact counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.parts import Family
from quorank.silos.sketch.reverse_top_k import Cells, ReverseTopK, Shape, rank
from quorank.text import Document, Index, Tokeniser

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


def table_of(shape: Shape, document: dict[str, int]) -> np.ndarray:
    """Return the (z, w) cells of one document by eq. 2, or those of Count-Min."""
    columns, signs = shape.hashing(KEY).places(list(document))
    table = np.zeros((shape.rows, shape.columns), dtype=np.int32)
    for term, count in enumerate(document.values()):
        for row in range(shape.rows):
            table[row, columns[term, row]] += count * (signs[term, row] if shape.sketch == "count" else 1)
    return table


def index_of(documents: list[dict[str, int]]) -> Index:
    texts = [" ".join(f"{term} " * count for term, count in document.items()) for document in documents]
    return Index.build([Document(str(d), "", text) for d, text in enumerate(texts)], Tokeniser(stop_words="none"))


def cell_of(cells: Cells, a: int) -> dict[int, int]:
    part = slice(cells.offsets[a], cells.offsets[a + 1])
    return dict(zip(cells.documents[part].tolist(), cells.values[part].tolist(), strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@settings(max_examples=30)
@given(DOCUMENTS)
def test_cells_hold_the_largest_values_and_floors_bound_the_others(shape: Shape, documents) -> None:
    held = {number: table_of(shape, document) for number, document in enumerate(documents)}
    sketch = ReverseTopK(KEY, shape, index_of(documents))
    finished = ReverseTopK(KEY, shape, index_of(documents), lambda number, table: held[number])
    assert sketch.documents == len(documents)
    size = (lambda v: v) if shape.reading == "literal" else abs
    for j in range(shape.columns):
        cells = sketch.cells([j] * shape.rows)
        assert all(np.array_equal(x, y) for x, y in zip(cells, finished.cells([j] * shape.rows), strict=True))
        for a in range(shape.rows):
            there = cell_of(cells, a)
            values = {d: int(table[a, j]) for d, table in held.items() if shape.reading == "literal" or table[a, j]}
            assert len(there) == min(len(values), sketch.limit)
            assert there.items() <= values.items()
            dropped = [size(v) for d, v in values.items() if d not in there]
            assert cells.floors[a] == max(dropped, default=0)
            assert min(map(size, there.values())) >= max(dropped) if dropped else True


def test_one_limit_fills_the_entries_and_equal_values_keep_the_same_documents() -> None:
    shape = Shape("count", "recommended", 2, 64, 1000, 2000)
    random = np.random.default_rng(3)
    words = [f"w{i}" for i in range(500)]
    index = index_of([{words[i]: 1 for i in random.permutation(500)[:40]} for _ in range(1500)])
    sketch = ReverseTopK(KEY, shape, index)
    assert 2000 - 128 < sketch.stored <= 2000
    assert sketch.limit == 2000 // 128
    assert sketch.memory_bytes <= 2000 * 8 + 128 * 20
    assert ReverseTopK(KEY, replace(shape, entries=128 * 1000), index).limit == 1000

    same = ReverseTopK(KEY, SHAPES[0], index_of([{"a": 1}] * 100))
    cells = same.cells(same.hashing.places(["a"])[0][0])
    assert set(cell_of(cells, 0)) == set(cell_of(cells, 1)) != set(range(6))


def test_shapes_have_the_paper_s_size() -> None:
    assert Shape.published().entries == 30 * 200 * 5 * 150 == Shape().entries == Shape.recommended().entries
    assert Shape.published().capacity == 750
    assert Family("shape", Shape).parse(str(SHAPES[2])) == SHAPES[2]


def test_without_pressure_the_top_k_is_exact() -> None:
    counts = np.random.default_rng(2).integers(0, 20, (60, len(TERMS)))
    counts[:, 0] += 1
    index = index_of([{TERMS[i]: int(row[i]) for i in np.flatnonzero(row)} for row in counts])
    for sketch in ("count", "count-min"):
        shape = Shape(sketch, "recommended", 3, 4096, 100, 40_000)  # type: ignore[arg-type]
        structure = ReverseTopK(KEY, shape, index)
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

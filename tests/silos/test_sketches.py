"""Count Sketch and Count-Min of one document, NAIVE (algorithm 3) and keyed places, against their definitions."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pytest
from chance import assert_mean
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from quorank.errors import BadInput
from quorank.silos.count_sketch import Hashing, Naive, count_min_estimate, count_sketch_estimate, sketch_rows
from quorank.silos.generated import TermCounts
from quorank.silos.holdings import index_of
from quorank.text import Document, Index, Tokeniser

KEY = bytes(range(32))
TERMS = [f"t{i}" for i in range(40)]
COUNTS = [1 + i * i % 13 for i in range(40)]


def document_of(counts: dict[str, int]) -> Index:
    """Return an index of one document."""
    terms = TermCounts(np.array([0, len(counts)]), np.arange(len(counts)), np.array(list(counts.values())))
    return index_of(terms, list(counts))


DOCUMENT = document_of(dict(zip(TERMS, COUNTS, strict=True)))


def table_of(index: Index, hashing: Hashing, sketch) -> np.ndarray:
    """Return the (z, w) cells of the only document of an index."""
    return np.concatenate([row.toarray() for row in sketch_rows(index, hashing, sketch)])


def test_eq_2_occurrence_by_occurrence() -> None:
    hashing = Hashing(KEY, 5, 11)
    columns, signs = hashing.places(TERMS)
    signed, plain = np.zeros((5, 11), dtype=int), np.zeros((5, 11), dtype=int)
    for i, count in enumerate(COUNTS):
        for _ in range(count):
            for a in range(5):
                signed[a, columns[i, a]] += signs[i, a]
                plain[a, columns[i, a]] += 1
    assert np.array_equal(table_of(DOCUMENT, hashing, "count"), signed)
    assert np.array_equal(table_of(DOCUMENT, hashing, "count-min"), plain)


def test_count_sketch_is_unbiased_over_keys_and_its_variance_is_bounded() -> None:
    rows, width = 3, 16
    single, medians, unsigned = [], [], []
    for number in range(3000):
        hashing = Hashing(number.to_bytes(16, "little"), rows, width)
        columns, signs = hashing.places(TERMS)
        cells = table_of(DOCUMENT, hashing, "count")[np.arange(rows), columns[7]]
        single.append(cells[0] * signs[7, 0])
        medians.append(count_sketch_estimate(cells, signs[7]))
        unsigned.append(np.median(cells))
    assert_mean(single, COUNTS[7])
    assert_mean(medians, COUNTS[7])
    others = sum(c * c for i, c in enumerate(COUNTS) if i != 7)
    assert abs(np.var(single) / (others / width) - 1) < 0.15
    assert abs(np.mean(unsigned)) < COUNTS[7] / 2, "eq. 3 as printed, without the sign, estimates nothing"


@given(st.dictionaries(st.sampled_from(TERMS), st.integers(1, 50), min_size=1), st.integers(1, 6), st.integers(2, 20))
def test_count_min_never_underestimates(document: dict[str, int], rows: int, width: int) -> None:
    hashing = Hashing(KEY, rows, width)
    table = table_of(document_of(document), hashing, "count-min")
    estimates = count_min_estimate(table[np.arange(rows), hashing.places(TERMS)[0]])
    for term, estimate in zip(TERMS, estimates, strict=True):
        assert estimate >= document.get(term, 0)


@settings(max_examples=40)
@given(
    st.lists(st.dictionaries(st.sampled_from(TERMS[:12]), st.integers(1, 9), min_size=1), min_size=1, max_size=12),
    st.sampled_from(["count", "count-min"]),
    st.integers(1, 5),
)
def test_algorithm_3(documents, sketch, k: int) -> None:
    hashing = Hashing(KEY, 3, 7)
    texts = [" ".join(f"{term} " * count for term, count in document.items()) for document in documents]
    index = Index.build([Document(str(d), "", text) for d, text in enumerate(texts)], Tokeniser(stop_words="none"))
    naive = Naive(hashing, index, sketch)
    assert naive.table.nbytes == len(documents) * 21 * 2
    for term in TERMS[:4]:
        places, sides = hashing.places([term])
        wanted = []
        for document in documents:
            cells = table_of(document_of(document), hashing, sketch)[np.arange(3), places[0]]
            found = count_sketch_estimate(cells, sides[0]) if sketch == "count" else count_min_estimate(cells)
            wanted.append(float(found))
        ids, estimates = naive.top(term, k)
        assert [wanted[i] for i in ids] == list(estimates) == sorted(wanted, reverse=True)[:k]
        assert len(set(ids.tolist())) == min(k, len(documents))


MANY_TERMS = [f"term{i}" for i in range(20_000)]
SHAPES = [(30, 200), (2, 12_288), (5, 2_000), (16, 7), (40, 4_096)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_columns_and_signs_are_uniform_in_every_row(rows: int, columns: int) -> None:
    places, signs = Hashing(KEY, rows, columns).places(MANY_TERMS)
    assert places.shape == signs.shape == (len(MANY_TERMS), rows)
    assert places.min() >= 0
    assert places.max() < columns
    assert set(np.unique(signs)) == {-1, 1}
    for a in range(rows):
        group = places[:, a].astype(np.int64) * min(columns, 200) // columns  # chi-square needs enough in each
        observed = np.bincount(group * 2 + (signs[:, a] > 0), minlength=2 * min(columns, 200))
        edges = np.bincount(np.arange(columns) * min(columns, 200) // columns)
        expected = np.repeat(edges / columns / 2 * len(MANY_TERMS), 2)
        assert stats.chisquare(observed, expected).pvalue > 1e-4 / rows


def test_rows_are_independent() -> None:
    places, signs = Hashing(KEY, 30, 8).places(MANY_TERMS)
    for a, b in [(0, 1), (0, 29), (14, 15), (28, 29)]:
        table = np.zeros((16, 16))
        both = zip(places[:, a] * 2 + (signs[:, a] > 0), places[:, b] * 2 + (signs[:, b] > 0), strict=True)
        for pair, times in Counter(both).items():
            table[pair] = times
        assert stats.chi2_contingency(table).pvalue > 1e-4


def test_places_are_cut_from_one_keyed_output() -> None:
    prefix = hashlib.blake2b(key=KEY, digest_size=32, person=b"quorank term").digest()
    output = hashlib.shake_256(prefix + b"word").digest(4 * 30)
    columns, signs = Hashing(KEY, 30, 200).places(["word"])
    for a in range(30):
        cut = int.from_bytes(output[4 * a : 4 * a + 4], "little")
        assert columns[0, a] == (cut >> 1) * 200 >> 31
        assert signs[0, a] == (-1 if cut & 1 else 1)


def test_another_key_gives_other_places_and_another_fingerprint() -> None:
    one, two = Hashing(KEY, 3, 64), Hashing(bytes(32), 3, 64)
    same = (one.places(MANY_TERMS)[0] == two.places(MANY_TERMS)[0]).mean(axis=0)
    assert np.all(np.abs(same - 1 / 64) < 5 * np.sqrt(1 / 64 / len(MANY_TERMS)))
    prints = {h.fingerprint() for h in (one, two, Hashing(KEY, 4, 64), Hashing(KEY, 3, 65))}
    assert len(prints) == 4
    assert one.fingerprint() == Hashing(KEY, 3, 64).fingerprint()
    assert KEY.hex() not in repr(one)
    assert "\\x01" not in repr(one)


@pytest.mark.parametrize(
    ("key", "rows", "columns", "said"),
    [(b"short", 3, 10, "16 to 64 bytes"), (KEY, 0, 10, "rows"), (KEY, 3, 1, "columns"), (KEY, 300, 10, "rows")],
)
def test_refusals(key: bytes, rows: int, columns: int, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Hashing(key, rows, columns)

"""Places of terms: uniform, independent, keyed, and one digest each."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quorank.errors import BadInput
from quorank.silos.hashing import Hashing, RememberedPlaces, bits_of, column_of

KEY = bytes(range(32))
TERMS = [f"term{i}" for i in range(20_000)]
SHAPES = [(30, 200), (2, 12_288), (5, 2_000), (16, 7), (40, 4_096)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_columns_and_signs_are_uniform_in_every_row(rows: int, columns: int) -> None:
    places, signs = Hashing(KEY, rows, columns).places(TERMS)
    assert places.shape == signs.shape == (len(TERMS), rows)
    assert places.min() >= 0
    assert places.max() < columns
    assert set(np.unique(signs)) == {-1, 1}
    for a in range(rows):
        group = places[:, a].astype(np.int64) * min(columns, 200) // columns  # chi-square needs enough in each
        observed = np.bincount(group * 2 + (signs[:, a] > 0), minlength=2 * min(columns, 200))
        edges = np.bincount(np.arange(columns) * min(columns, 200) // columns)
        expected = np.repeat(edges / columns / 2 * len(TERMS), 2)
        assert stats.chisquare(observed, expected).pvalue > 1e-4 / rows


def test_rows_are_independent() -> None:
    places, signs = Hashing(KEY, 30, 8).places(TERMS)
    for a, b in [(0, 1), (0, 29), (14, 15), (28, 29)]:
        table = np.zeros((16, 16))
        both = zip(places[:, a] * 2 + (signs[:, a] > 0), places[:, b] * 2 + (signs[:, b] > 0), strict=True)
        for pair, times in Counter(both).items():
            table[pair] = times
        assert stats.chi2_contingency(table).pvalue > 1e-4


def test_places_are_cut_from_one_blake2b_digest() -> None:
    hashing = Hashing(KEY, 30, 200)
    assert hashing.digests == 1
    assert hashing.bits == 17
    number = int.from_bytes(hashlib.blake2b(b"word", key=KEY, person=b"quorank term", salt=bytes(4)).digest(), "little")
    columns, signs = hashing.places(["word"])
    for a in range(30):
        cut = number >> 17 * a & (1 << 17) - 1
        assert columns[0, a] == (cut >> 1) * 200 >> 16
        assert signs[0, a] == (-1 if cut & 1 else 1)


@given(st.integers(1, 256), st.integers(2, 1 << 20))
def test_the_bias_of_a_column_is_bounded(rows: int, columns: int) -> None:
    hashing = Hashing(KEY, rows, columns)
    assert columns / 2 ** (hashing.bits - 1) <= 2**-8 * 1.0000001
    each = -(-rows // hashing.digests)
    assert each * hashing.bits <= 512
    if rows * (1 + (columns - 1).bit_length() + 8) <= 512:
        assert hashing.digests == 1


@given(st.integers(2, 300), st.integers(9, 12))
def test_no_column_has_more_than_its_share_of_values(columns: int, bits: int) -> None:
    values = column_of(np.arange(1 << bits, dtype=np.uint64), bits, columns)
    times = np.bincount(values, minlength=columns)
    assert len(times) == columns
    assert set(times) <= {(1 << bits) // columns, -(-(1 << bits) // columns)}


@given(st.binary(min_size=72, max_size=72), st.integers(0, 500), st.integers(1, 32))
def test_bits_are_those_of_the_number(digest: bytes, start: int, bits: int) -> None:
    number = int.from_bytes(digest, "little")
    found = bits_of(np.frombuffer(digest, dtype=np.uint8)[None, :], np.array([start]), bits)
    assert int(found[0, 0]) == number >> start & (1 << bits) - 1


def test_another_key_gives_other_places_and_another_fingerprint() -> None:
    one, two = Hashing(KEY, 3, 64), Hashing(bytes(32), 3, 64)
    same = (one.places(TERMS)[0] == two.places(TERMS)[0]).mean(axis=0)
    assert np.all(np.abs(same - 1 / 64) < 5 * np.sqrt(1 / 64 / len(TERMS)))
    prints = {h.fingerprint() for h in (one, two, Hashing(KEY, 4, 64), Hashing(KEY, 3, 65))}
    assert len(prints) == 4
    assert one.fingerprint() == Hashing(KEY, 3, 64).fingerprint()
    assert KEY.hex() not in repr(one)
    assert "\\x01" not in repr(one)


def test_remembered_places_are_the_same_and_bounded() -> None:
    hashing = Hashing(KEY, 4, 50)
    places = RememberedPlaces(hashing)
    for first in (0, 30, 5):
        terms = [*TERMS[first : first + 40], TERMS[first]]
        found, wanted = places.places(terms), hashing.places(terms)
        assert np.array_equal(found[0], wanted[0])
        assert np.array_equal(found[1], wanted[1])


@pytest.mark.parametrize(
    ("key", "rows", "columns", "said"),
    [(b"short", 3, 10, "16 to 64 bytes"), (KEY, 0, 10, "rows"), (KEY, 3, 1, "columns"), (KEY, 300, 10, "rows")],
)
def test_refusals(key: bytes, rows: int, columns: int, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Hashing(key, rows, columns)

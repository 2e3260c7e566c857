"""Places of terms: uniform, independent and keyed."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from quorank.errors import BadInput
from quorank.silos.count_sketch import Hashing

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
    same = (one.places(TERMS)[0] == two.places(TERMS)[0]).mean(axis=0)
    assert np.all(np.abs(same - 1 / 64) < 5 * np.sqrt(1 / 64 / len(TERMS)))
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

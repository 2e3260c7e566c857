"""Shamir's shares: the field against schoolbook polynomials, every t of n, and t − 1 shares that say nothing."""

from __future__ import annotations

import os
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.privacy.secure_sum.shamir import join_shares, split_secret, times


def product(a: int, b: int) -> int:
    """a·b as polynomials over GF(2), then the remainder modulo z⁸ + z⁴ + z³ + z + 1."""
    full = 0
    for bit in range(8):
        if b >> bit & 1:
            full ^= a << bit
    for bit in range(14, 7, -1):
        if full >> bit & 1:
            full ^= 0b100011011 << (bit - 8)
    return full


def test_the_field_is_that_of_aes() -> None:
    assert product(0x57, 0x83) == 0xC1  # the example of FIPS 197, §4.2
    for a in range(0, 256, 8):
        word = np.frombuffer(bytes(range(a, a + 8)), dtype=np.uint64)[0]
        for b in range(256):
            got = np.uint64(times(word, np.uint64(b))).tobytes()
            assert list(got) == [product(a + i, b) for i in range(8)]


@given(st.binary(min_size=16, max_size=16), st.integers(1, 40), st.data())
def test_a_share_is_the_polynomial_at_its_place(secret, threshold, data) -> None:
    holders = data.draw(st.integers(threshold, 60))
    given_out: list[bytes] = []
    shares = split_secret(secret, threshold, holders, lambda n: given_out.append(os.urandom(n)) or given_out[0])
    terms = [secret] + [given_out[0][16 * i : 16 * i + 16] for i in range(threshold - 1)]
    place = data.draw(st.integers(1, holders))
    for byte in (0, 7, 15):
        value, power = 0, 1
        for term in terms:
            value ^= product(term[byte], power)
            power = product(power, place)
        assert shares[place - 1][byte] == value


@pytest.mark.parametrize(("threshold", "holders"), [(1, 1), (1, 4), (2, 3), (3, 5), (4, 6), (6, 6)])
def test_any_threshold_of_shares_gives_the_secret(threshold, holders) -> None:
    secret = os.urandom(64)
    shares = split_secret(secret, threshold, holders, os.urandom)
    for chosen in combinations(range(holders), threshold):
        assert join_shares([shares[i] for i in chosen], [i + 1 for i in chosen]) == secret
        assert join_shares([shares[i] for i in chosen[::-1]], [i + 1 for i in chosen[::-1]]) == secret


@pytest.mark.parametrize("secret", [0, 1, 0xA7])
def test_two_shares_of_three_are_uniform_whatever_the_secret(secret) -> None:
    """All 65,536 polynomials of degree 2 over one byte: each pair of shares takes each value exactly once."""
    every = 65_536
    linear, square = np.divmod(np.arange(every), 256)
    coefficients = linear.astype(np.uint8).tobytes() + square.astype(np.uint8).tobytes()
    shares = split_secret(bytes([secret]) * every, 3, 4, lambda n: coefficients)
    values = [np.frombuffer(share, dtype=np.uint8).astype(int) for share in shares]
    for a, b in combinations(values, 2):
        assert len(np.unique(a * 256 + b)) == every

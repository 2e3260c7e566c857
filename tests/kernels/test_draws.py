"""Addressed draws: the published generator, the right distributions, and nothing shared between addresses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from chance import UNLIKELY
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quorank.kernels.compiled import interpreted, kernel
from quorank.kernels.draws import BATCH, Purpose, fill_batch, key_of, normals, philox, uniform_pair, uniforms

WORD = st.integers(0, 2**32 - 1)
ONES = 0xFFFFFFFF

# Random123 (Salmon et al. 2011), kat_vectors, philox4x32 with 10 rounds
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_published_vectors(counter, key, words) -> None:
    assert generated(counter, key) == words
    with interpreted():
        assert generated(counter, key) == words


def generated(counter, key) -> tuple[int, ...]:
    return tuple(map(int, philox(*counter, *key)))


@given(st.tuples(WORD, WORD, WORD, WORD), st.tuples(WORD, WORD))
def test_the_compiled_generator_equals_the_interpreted_one(counter, key) -> None:
    with interpreted():
        words = generated(counter, key)
    assert generated(counter, key) == words


@given(WORD, WORD, WORD, WORD, st.integers(0, 2**63 - 1), st.sampled_from(list(Purpose)))
def test_a_uniform_is_53_bits_of_its_address(block, interaction, client, round_, seed, purpose) -> None:
    key = generated((int(purpose), 0x51554F52, 0x414E4B, 0), (seed & ONES, seed >> 32))[:2]
    w0, w1, w2, w3 = generated((block, interaction, client, round_), key)
    first, second = uniform_pair(key_of(seed, purpose), block, interaction, client, round_)
    assert first == ((w0 >> 5) * 2**26 + (w1 >> 6)) / 2**53
    assert second == ((w2 >> 5) * 2**26 + (w3 >> 6)) / 2**53
    assert 0 <= first < 1
    assert 0 <= second < 1


@kernel
def batch(key, block, interaction, client, round_, out) -> None:
    fill_batch(key, block, interaction, client, round_, out)


@given(st.integers(0, 2**32 - BATCH), WORD, WORD, WORD, st.integers(0, 2**63 - 1))
def test_a_batch_is_its_draws_one_by_one(block, interaction, client, round_, seed) -> None:
    key, drawn = key_of(seed, Purpose.CLICK), np.full(BATCH + 1, -1.0)
    batch(key, block, interaction, client, round_, drawn)
    expected = [u for i in range(BATCH // 2) for u in uniform_pair(key, block + i, interaction, client, round_)]
    assert drawn[:BATCH].tolist() == expected
    assert drawn[BATCH] == -1.0


def test_draws_of_an_address_do_not_depend_on_how_many_are_asked_for() -> None:
    for make in (uniforms, normals):
        many = make(5, Purpose.CLICK, 1001, round_=2, client=3, interaction=4)
        for count in (0, 1, 2, 3, 10, 1000):
            few = make(5, Purpose.CLICK, count, round_=2, client=3, interaction=4)
            assert np.array_equal(few, many[:count])


def test_normals_are_box_muller_of_the_uniforms() -> None:
    u = uniforms(7, Purpose.INITIAL, 1000, client=1)
    z = normals(7, Purpose.INITIAL, 1000, client=1)
    radius = np.sqrt(-2 * np.log1p(-u[::2]))
    np.testing.assert_allclose(z[::2], radius * np.cos(2 * math.pi * u[1::2]), atol=1e-13)
    np.testing.assert_allclose(z[1::2], radius * np.sin(2 * math.pi * u[1::2]), atol=1e-13)


# Each stream holds one draw of many addresses, or many draws of one: the two ways in which kernels read.
STREAMS = {
    "one address": lambda n, purpose: uniforms(11, purpose, n),
    "clients": lambda n, purpose: column(n, purpose, lambda i: (0, 0, i, 0)),
    "rounds": lambda n, purpose: column(n, purpose, lambda i: (0, 0, 0, i)),
    "interactions": lambda n, purpose: column(n, purpose, lambda i: (0, i, 0, 0)),
}


def column(n, purpose, address) -> np.ndarray:
    key = key_of(11, purpose)
    return np.array([uniform_pair(key, *address(i))[0] for i in range(n)])


@pytest.mark.parametrize("stream", STREAMS)
def test_uniform_along_every_axis_of_the_address(stream) -> None:
    u = STREAMS[stream](20_000, Purpose.RANKING)
    assert stats.kstest(u, "uniform").pvalue > UNLIKELY
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) * math.sqrt(len(u)) < 4  # neighbours know nothing of each other


def test_streams_of_different_addresses_are_independent() -> None:
    n = 20_000
    base = {"round_": 1, "client": 1, "interaction": 1}
    streams = [uniforms(1, Purpose.QUERY, n, **base), uniforms(2, Purpose.QUERY, n, **base)]
    streams += [uniforms(1, purpose, n, **base) for purpose in Purpose if purpose != Purpose.QUERY]
    streams += [uniforms(1, Purpose.QUERY, n, **{**base, name: 2}) for name in base]
    streams += [uniforms(1 + (1 << 32), Purpose.QUERY, n, **base)]
    correlations = np.corrcoef(np.array(streams)) - np.eye(len(streams))
    pairs = len(streams) * (len(streams) - 1) / 2
    assert np.abs(correlations).max() * math.sqrt(n) < stats.norm.isf(UNLIKELY / 2 / pairs)
    together = np.concatenate(streams)
    assert len(np.unique(together)) == len(together)

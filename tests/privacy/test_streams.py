"""What noise is drawn from: the cipher against its standard and a library; one transformation under both kinds of key."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from quorank.errors import BadInput
from quorank.kernels import draws
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, key_of, philox
from quorank.member.client_privacy import with_fresh_secret
from quorank.privacy import ClippedGaussian, PublishedLaplace, SecureSum, Setting, Signs, streams
from quorank.privacy.streams import chacha20, key_for, uniform_pair

WORD = st.integers(0, 2**32 - 1)
SETTING = Setting(20, 20, 5, parameters=6)
SECRET = bytes(range(100, 132))


def cipher_words(key: bytes, address: tuple[int, int, int, int]) -> tuple[int, ...]:
    """The first four words of a block of ChaCha20, by the library."""
    encryptor = Cipher(ChaCha20(key, struct.pack("<4I", *address)), mode=None).encryptor()
    return struct.unpack("<4I", encryptor.update(bytes(16)))


def pair_of(words: tuple[int, ...]) -> tuple[float, float]:
    """Two numbers with 53 bits: 27 of one word and 26 of the next."""
    first, second = (((words[i] >> 5) << 26) + (words[i + 1] >> 6) for i in (0, 2))
    return first / 2**53, second / 2**53


# the cipher


@settings(max_examples=60)
@given(st.binary(min_size=32, max_size=32), st.tuples(WORD, WORD, WORD, WORD))
def test_the_cipher_is_the_library_s(key: bytes, address: tuple[int, int, int, int]) -> None:
    words = cipher_words(key, address)
    held = np.frombuffer(key, dtype="<u4").astype(np.uint32)
    assert tuple(map(int, chacha20(held, *address))) == words
    assert tuple(uniform_pair(held, *address)) == pair_of(words)


def test_the_kind_of_the_key_chooses_the_generator_in_and_out_of_kernels() -> None:
    @kernel
    def compiled(key: Any, block: int, interaction: int, client: int, round_: int) -> Any:
        return uniform_pair(key, block, interaction, client, round_)

    seeded_key, secret_key = key_for(9, Purpose.NOISE), key_for(SECRET, Purpose.NOISE)
    assert np.array_equal(seeded_key, key_of(9, Purpose.NOISE)) and seeded_key.dtype == np.uint64
    address = (4, 3, 2, 1)
    words = tuple(map(int, philox(*address, *seeded_key)))
    assert compiled(seeded_key, *address) == uniform_pair(seeded_key, *address) == pair_of(words)
    assert compiled(seeded_key, *address) == draws.uniform_pair(seeded_key, *address)
    expected = pair_of(cipher_words(secret_key.astype("<u4").tobytes(), address))
    assert compiled(secret_key, *address) == uniform_pair(secret_key, *address) == expected


def test_every_byte_of_a_secret_counts_and_purposes_share_nothing() -> None:
    keys = [key_for(SECRET, Purpose.NOISE_SHARE).tobytes()]
    for at in range(32):
        changed = bytearray(SECRET)
        changed[at] ^= 1
        keys.append(key_for(bytes(changed), Purpose.NOISE_SHARE).tobytes())
    keys += [key_for(SECRET, purpose).tobytes() for purpose in Purpose if purpose != Purpose.NOISE_SHARE]
    assert len(set(keys)) == len(keys) and all(len(key) == 32 for key in keys)
    for length in (0, 8, 31, 33):
        with pytest.raises(BadInput, match="32 bytes"):
            key_for(bytes(length), Purpose.NOISE)


# what a device releases


def test_a_mechanism_takes_32_bytes_for_each_release_and_the_last_of_them_matters() -> None:
    asked: list[int] = []

    def entropy(last: int) -> Callable[[int], bytes]:
        def give(count: int) -> bytes:
            asked.append(count)
            return SECRET[: count - 1] + bytes([last])

        return give

    for part in (PublishedLaplace(), Signs(p=0.6), SecureSum(clip=0.05, masks=False)):
        mechanism, found = part.mechanism(SETTING, 0), []
        for last in (0, 1, 0):
            rows = np.full((1, 400), 0.0017)
            own = with_fresh_secret(mechanism, entropy(last))
            own.release(rows, np.zeros(400), 0, np.array([4]), mechanism.start())
            found.append(rows.tobytes())
        assert found[0] == found[2] != found[1], part
    assert asked == [32] * 9


def test_the_coordinator_s_noise_under_a_secret() -> None:
    """The same every time for a round, by all of the secret's bytes, and normal with the deviation that is stated."""
    part, size = ClippedGaussian(noise_multiplier=1.0, clip=0.5), 20_000
    many = Setting(10_000, 10_000, 5, parameters=size)

    def noise(seed: int | bytes, round_: int) -> np.ndarray:
        mechanism = part.mechanism(many, seed)
        found = mechanism.finish(np.zeros(size), 1.0, 1, 1, round_, mechanism.start())
        return np.asarray(found.total) / found.noise

    first = noise(SECRET, 1)
    assert np.array_equal(first, noise(SECRET, 1))
    for other in (noise(SECRET, 0), noise(SECRET[:-1] + bytes([SECRET[-1] ^ 1]), 1), noise(3, 1)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.05
        assert not np.any(first == other)
    assert stats.kstest(first, "norm").pvalue > 1e-4


def test_words_are_those_of_the_generator_that_the_key_is_of() -> None:
    """Four 32-bit words an address, the same from Python as in a kernel, and behind `uniform_pair`."""
    for seed in (9, SECRET):
        key = streams.key_for(seed, Purpose.NOISE)
        found = [int(word) for word in streams.words(key, 5, 4, 3, 2)]
        assert all(0 <= word < 2**32 for word in found)
        first, second = streams.uniform_pair(key, 5, 4, 3, 2)
        assert first == ((found[0] >> 5) * 2**26 + (found[1] >> 6)) / 2**53
        assert second == ((found[2] >> 5) * 2**26 + (found[3] >> 6)) / 2**53

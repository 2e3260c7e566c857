"""Random streams of the privacy mechanisms: addressed draws under a seed in simulations, ChaCha20 under a secret.

A mechanism's kernels draw uniform numbers by address (block, interaction, client, round). Under a seed, an integer, the
generator is that of all simulations (`draws`): repeatable, and no secret. Under a secret of 32 bytes it is ChaCha20
(Bernstein 2008, "ChaCha, a variant of Salsa20"; RFC 8439, §2.3), whose four words of counter and nonce are the address.
The key's type selects the generator when a kernel is compiled, so simulations pay nothing.

Each purpose has a key derived from the secret by keyed BLAKE2b. A device has a secret for each release, a coordinator
one for its run. The coordinator's noise on a sum is a pseudorandom function of the sum (`seed_for_sum`): a round repeated
after a crash has the same noise, and two sums never share theirs, even in copies of one service.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import numpy as np

from quorank.errors import require
from quorank.kernels import draws
from quorank.kernels.arrays import Doubles, Integers, Uint32s, Uint64s
from quorank.kernels.compiled import Intrinsic, kernel
from quorank.kernels.draws import Purpose

Seed = int | bytes  # a simulation's seed, or a secret
SeedKind = TypeVar("SeedKind", bound=Seed)
Key = Uint64s | Uint32s  # key of the simulations' generator (64-bit numbers), or of the cipher (32-bit numbers)

SECRET_BYTES = 32
_LOW = np.uint64(0xFFFFFFFF)
_CONSTANTS = tuple(np.uint64(word) for word in (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574))
_C0, _C1, _C2, _C3 = _CONSTANTS
_5, _6 = np.uint64(5), np.uint64(6)
_7, _8, _12, _16, _20, _24, _25 = (np.uint64(n) for n in (7, 8, 12, 16, 20, 24, 25))


def key_for(seed: Seed, purpose: Purpose) -> Key:
    """Return the key of one purpose's draws."""
    if isinstance(seed, int):
        return draws.key_of(seed, purpose)
    require(len(seed) == SECRET_BYTES, "secret.length", f"a secret has {SECRET_BYTES} bytes, got {len(seed)}")
    name = f"quorank {purpose.name.lower()}".encode()
    derived = hashlib.blake2b(name, key=seed, digest_size=SECRET_BYTES).digest()
    return np.frombuffer(derived, dtype="<u4").astype(np.uint32)


def derive_seed(seed: SeedKind, purpose: bytes) -> SeedKind:
    """Return a seed for another purpose: 32 bytes of a secret, by keyed BLAKE2b; 64 bits of a simulation's seed."""
    if isinstance(seed, int):
        return int.from_bytes(hashlib.blake2b(b"%d %b" % (seed, purpose), digest_size=8).digest(), "big")  # type: ignore[return-value]
    return hashlib.blake2b(purpose, key=seed, digest_size=SECRET_BYTES).digest()  # type: ignore[return-value]


def seed_for_sum(seed: Seed, total: Doubles, *numbers: float) -> Seed:
    """Return the seed of the noise on a sum of integers: a simulation's own, or one that a secret gives to this sum."""
    if isinstance(seed, int):
        return seed
    return derive_seed(seed, (np.concatenate((numbers, total)) + 0.0).astype("<f8").tobytes())


@kernel
def quarter_round(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Compute ChaCha's quarter round on 32-bit words held in uint64 (RFC 8439, §2.1)."""
    a = (a + b) & _LOW
    d ^= a
    d = ((d << _16) | (d >> _16)) & _LOW
    c = (c + d) & _LOW
    b ^= c
    b = ((b << _12) | (b >> _20)) & _LOW
    a = (a + b) & _LOW
    d ^= a
    d = ((d << _8) | (d >> _24)) & _LOW
    c = (c + d) & _LOW
    b ^= c
    b = ((b << _7) | (b >> _25)) & _LOW
    return a, b, c, d


@kernel
def chacha20(key: Uint32s, n0: Any, n1: Any, n2: Any, n3: Any) -> Any:
    """Compute the first four words of ChaCha20's block for a counter n0 and a nonce (n1, n2, n3) (RFC 8439, §2.3)."""
    a0, a1, a2, a3 = _C0, _C1, _C2, _C3
    b0, b1, b2, b3 = np.uint64(key[0]), np.uint64(key[1]), np.uint64(key[2]), np.uint64(key[3])
    c0, c1, c2, c3 = np.uint64(key[4]), np.uint64(key[5]), np.uint64(key[6]), np.uint64(key[7])
    d0, d1, d2, d3 = np.uint64(n0), np.uint64(n1), np.uint64(n2), np.uint64(n3)
    for _ in range(10):
        a0, b0, c0, d0 = quarter_round(a0, b0, c0, d0)
        a1, b1, c1, d1 = quarter_round(a1, b1, c1, d1)
        a2, b2, c2, d2 = quarter_round(a2, b2, c2, d2)
        a3, b3, c3, d3 = quarter_round(a3, b3, c3, d3)
        a0, b1, c2, d3 = quarter_round(a0, b1, c2, d3)
        a1, b2, c3, d0 = quarter_round(a1, b2, c3, d0)
        a2, b3, c0, d1 = quarter_round(a2, b3, c0, d1)
        a3, b0, c1, d2 = quarter_round(a3, b0, c1, d2)
    return (a0 + _C0) & _LOW, (a1 + _C1) & _LOW, (a2 + _C2) & _LOW, (a3 + _C3) & _LOW


@kernel
def _seeded_words(key: Uint64s, block: int, interaction: int, client: int, round_: int) -> Any:
    return draws.philox(block, interaction, client, round_, key[0], key[1])


@Intrinsic
def words(key: Any, block: int, interaction: int, client: int, round_: int) -> Any:
    """Return four random 32-bit words (held in uint64) of an address, from the generator that the key is of."""
    generator = chacha20 if key.dtype == np.uint32 else _seeded_words
    return generator(key, block, interaction, client, round_)


@words.overload
def _choose_words(key: Any, block: Any, interaction: Any, client: Any, round_: Any) -> Any:
    """Select the generator at compile time; return the function itself, since a call in between costs time."""
    chosen: Any = chacha20 if key.dtype.bitwidth == 32 else _seeded_words
    return chosen.py_func


@kernel
def uniform_pair(key: Key, block: int, interaction: int, client: int, round_: int) -> tuple[float, float]:
    """Return draws 2·block and 2·block + 1 of an address, made from `words` as `draws.uniform_pair` makes them."""
    w0, w1, w2, w3 = words(key, block, interaction, client, round_)
    scale = 1.0 / 9007199254740992.0
    first = (np.float64(w0 >> _5) * 67108864.0 + np.float64(w1 >> _6)) * scale
    second = (np.float64(w2 >> _5) * 67108864.0 + np.float64(w3 >> _6)) * scale
    return first, second


@kernel
def client_draws(key: Key, interaction: int, round_: int, clients: Integers) -> Doubles:
    """Draw one uniform number for each of these clients in a round, (clients,)."""
    out = np.empty(len(clients))
    for i in range(len(clients)):
        out[i], _ = uniform_pair(key, 0, interaction, clients[i], round_)
    return out

"""Keyed hash functions of a sketch: h_a(t) ∈ {0, …, w − 1} and g_a(t) ∈ {−1, +1} of each row a (CS-F-LTR §IV-A).

The paper hashes each term z times with MD5. Here a term costs one SHAKE-256 output of 32·z bits (FIPS 202), keyed by a
prefix. Row a takes 32 of them: the lowest for g_a, the others, x, for h_a = ⌊x·w / 2^31⌋. The probability of a column
differs from 1/w by a share of less than w / 2^31 of itself. Without the key the output is indistinguishable from the
values of a random function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Int8s, Int32s

VERSION = 2
"""Version of the hash functions; parties of different versions must not meet."""
MOST_ROWS = 256
MOST_COLUMNS = 1 << 20


@dataclass(frozen=True)
class Hashing:
    """The z pairs of hash functions that all parties of a group share, under one secret key."""

    key: bytes = field(repr=False)
    rows: int  # z
    columns: int  # w

    def __post_init__(self) -> None:
        sound = isinstance(self.key, bytes) and 16 <= len(self.key) <= 64
        require(sound, "sketch.bad-key", "the key of a hashing must have 16 to 64 bytes; take 32 random ones")
        require_range("rows", self.rows, least=1, most=MOST_ROWS)
        require_range("columns", self.columns, least=2, most=MOST_COLUMNS)

    def places(self, terms: Sequence[str]) -> tuple[Int32s, Int8s]:
        """Return the (terms, z) columns h_a(t) and the (terms, z) signs g_a(t)."""
        prefix, size = hashlib.blake2b(key=self.key, digest_size=32, person=b"quorank term").digest(), 4 * self.rows
        outputs = [hashlib.shake_256(prefix + t.encode("utf-8", "surrogatepass")).digest(size) for t in terms]
        words = np.frombuffer(b"".join(outputs), dtype="<u4").reshape(len(terms), self.rows)
        columns = ((words >> 1).astype(np.uint64) * np.uint64(self.columns)) >> np.uint64(31)
        return columns.astype(np.int32), 1 - 2 * (words & 1).astype(np.int8)

    def fingerprint(self) -> str:
        """Return a public 128-bit digest of version, key, z and w, as hex."""
        stated = f"{VERSION} {self.rows} {self.columns}".encode()
        return hashlib.blake2b(stated, key=self.key, digest_size=16, person=b"quorank print").hexdigest()


def seeded_secret(seed: int, purpose: str) -> bytes:
    """Return 32 bytes for a simulation: the same for the same seed, and therefore not secret."""
    return hashlib.blake2b(f"{seed} {purpose}".encode(), digest_size=32, person=b"quorank seeded").digest()

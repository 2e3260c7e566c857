"""Keyed hash functions of a sketch: h_a(t) ∈ {0, …, w − 1} and g_a(t) ∈ {−1, +1} of each row a (CS-F-LTR §IV-A).

The paper hashes each term z times with MD5. Here a term costs one keyed BLAKE2b digest of 512 bits (RFC 7693), and rows
are cut from its bits: row a takes the next b bits, the lowest for g_a, the others, x, for h_a = ⌊x·w / 2^(b−1)⌋. A column
then has ⌊2^(b−1)/w⌋ or ⌈2^(b−1)/w⌉ of the values of x, so its probability differs from 1/w by less than 2^(1−b): a share
of less than w / 2^(b−1) of itself. b is 32, or less where z rows must share the digest, but never so little that this
share passes 2^−8; a second digest is taken before that. (z, w) = (30, 200) gives b = 17 and 0.3 %, (3, 8192) gives b = 32
and 0.0004 %. Without the key the digests are indistinguishable from the values of a random function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Bytes, Int8s, Int32s, Integers, Uint64s

VERSION = 1
"""Version of the hash functions; parties of different versions must not meet."""
MOST_ROWS = 256
MOST_COLUMNS = 1 << 20
_DIGEST = 64  # bytes
_BITS = 8 * _DIGEST
_TERMS = 4096  # hashed at once, which bounds the memory of the digests
_BIAS = 8  # a column's probability differs from 1/w by a share of less than 2^−8


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

    @property
    def digests(self) -> int:
        """Number of digests per term: one, unless z rows of w columns need more than 512 bits."""
        needed = 1 + (self.columns - 1).bit_length() + _BIAS
        return -(-self.rows // (_BITS // needed))

    @property
    def bits(self) -> int:
        """b, the bits per row."""
        return min(32, _BITS // -(-self.rows // self.digests))

    def places(self, terms: Sequence[str]) -> tuple[Int32s, Int8s]:
        """Return the (terms, z) columns h_a(t) and the (terms, z) signs g_a(t)."""
        rows_each, bits = -(-self.rows // self.digests), self.bits
        columns = np.empty((len(terms), self.rows), dtype=np.int32)
        signs = np.empty((len(terms), self.rows), dtype=np.int8)
        encoded = [term.encode("utf-8", "surrogatepass") for term in terms]
        for number in range(self.digests):
            first = number * rows_each
            rows = slice(first, min(first + rows_each, self.rows))
            starts = bits * np.arange(rows.stop - first)
            for at in range(0, len(terms), _TERMS):
                some = slice(at, at + _TERMS)
                cut = bits_of(self._digest(encoded[some], number), starts, bits)
                columns[some, rows] = column_of(cut >> np.uint64(1), bits - 1, self.columns)
                signs[some, rows] = 1 - 2 * (cut & np.uint64(1)).astype(np.int8)
        return columns, signs

    def fingerprint(self) -> str:
        """Return a public 128-bit digest of version, key, z and w, as hex."""
        stated = f"{VERSION} {self.rows} {self.columns}".encode()
        return hashlib.blake2b(stated, key=self.key, digest_size=16, person=b"quorank print").hexdigest()

    def _digest(self, terms: list[bytes], number: int) -> Bytes:
        """Return the (terms, 64 + 8) digests, padded with zeros for reading words across the end."""
        keyed = hashlib.blake2b(
            key=self.key, digest_size=_DIGEST, person=b"quorank term", salt=number.to_bytes(4, "little")
        )
        parts = []
        for term in terms:
            digest = keyed.copy()
            digest.update(term)
            parts.append(digest.digest())
        out = np.zeros((len(terms), _DIGEST + 8), dtype=np.uint8)
        out[:, :_DIGEST] = np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(len(terms), _DIGEST)
        return out


def bits_of(digests: Bytes, starts: Integers, bits: int) -> Uint64s:
    """Return the (digests, starts) bits start, …, start + bits − 1 of each digest, lowest first, as numbers."""
    count, size = digests.shape
    words = np.ndarray((count, size - 7), "<u8", np.ascontiguousarray(digests), strides=(size, 1))
    shifts = (starts & 7).astype(np.uint64)
    return np.asarray((words[:, starts >> 3] >> shifts) & np.uint64((1 << bits) - 1), dtype=np.uint64)


def column_of(cut: Uint64s, bits: int, columns: int) -> Int32s:
    """Compute h = ⌊x·w / 2^bits⌋."""
    return ((cut * np.uint64(columns)) >> np.uint64(bits)).astype(np.int32)


class RememberedPlaces:
    """Cache of the places of single terms."""

    def __init__(self, hashing: Hashing) -> None:
        self.hashing, self.rows = hashing, hashing.rows
        self._known: dict[str, tuple[Int32s, Int8s]] = {}

    def places(self, terms: Sequence[str]) -> tuple[Int32s, Int8s]:
        """Return the (terms, z) columns and the (terms, z) signs of one term or more."""
        new = [term for term in dict.fromkeys(terms) if term not in self._known]
        if new:
            self._known.update(zip(new, zip(*self.hashing.places(new), strict=True), strict=True))
        known = [self._known[term] for term in terms]
        return np.stack([columns for columns, _ in known]), np.stack([signs for _, signs in known])


def seeded_secret(seed: int, purpose: str) -> bytes:
    """Return 32 bytes for a simulation: the same for the same seed, and therefore not secret."""
    return hashlib.blake2b(f"{seed} {purpose}".encode(), digest_size=32, person=b"quorank seeded").digest()

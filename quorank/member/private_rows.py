"""Interactions as they lie in a client's private file, and back: to the bit.

Beside the features, the order and the clicks of a list, the scores, weights and parameters of the ranker that showed it
are kept: PDGD's weights are of the distribution that a list was drawn from (`late_learning`), and learning again after a
restart gives the bits that learning at once gave.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import numpy as np

from quorank.data.ranking import pad
from quorank.kernels.arrays import Booleans
from quorank.learning import Shown

_SIZES = struct.Struct(
    "<IIId"
)  # numbers of the scores, the weights and the packed parameters; what the list left behind


@dataclass(frozen=True, eq=False)
class Interaction:
    """One query shown and clicked."""

    at: float  # seconds since 1970
    run: str
    round: int  # rounds done before the ranker that showed it
    shown: Shown
    clicks: Booleans
    query: str | None = None  # only where the application asks for it to be kept

    def blobs(self, n_features: int) -> tuple[int, bytes, bytes, bytes, bytes]:
        """(documents, features, order, clicks, circumstances) for the columns of the file."""
        shown = self.shown
        dense = np.ascontiguousarray(shown.padded_features[:, :n_features], dtype="<f4")
        sizes = _SIZES.pack(len(shown.scores), len(shown.weights), len(shown.packed_parameters), shown.rest)
        return (
            len(dense),
            dense.tobytes(),
            shown.order.astype("<i8").tobytes(),
            self.clicks.astype(np.uint8).tobytes(),
            b"".join(
                [
                    sizes,
                    shown.scores.astype("<f4").tobytes(),
                    shown.weights.astype("<f8").tobytes(),
                    shown.packed_parameters.astype("<f4").tobytes(),
                ]
            ),
        )


def shown_from(features: bytes, documents: int, order: bytes, circumstances: bytes, at: int) -> Shown:
    """The list again, as it was shown."""
    dense = np.frombuffer(features, dtype="<f4").reshape(documents, -1)
    scores, weights, packed, rest = _SIZES.unpack_from(circumstances)
    numbers = circumstances[_SIZES.size :]
    ends = (4 * scores, 4 * scores + 8 * weights)
    return Shown(
        np.frombuffer(order, dtype="<i8").astype(np.int64),
        at,
        pad(dense.astype(np.float32)),
        np.frombuffer(numbers[ends[1] : ends[1] + 4 * packed], dtype="<f4").astype(np.float32),
        np.frombuffer(numbers[: ends[0]], dtype="<f4").astype(np.float32),
        np.frombuffer(numbers[ends[0] : ends[1]], dtype="<f8").astype(np.float64),
        rest,
    )


def checksum(*parts: bytes) -> bytes:
    """Sixteen bytes that tell whether any bit of the parts has changed on disk."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()

"""Sums of clients' integers under masks: 64-bit numbers in limbs, each summed modulo 2^32.

The secure sum adds vectors modulo 2^32 (`privacy.secure_sum`). A number is therefore sent as limbs of b bits, so few that n
clients' limbs add up below 2^31: b = 31 − ⌈log2 n⌉. The last limb has the sign. The total is that of the numbers
themselves, to the last bit, so a tree does not change when its histograms are summed under masks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Integers, Uint32s
from quorank.privacy.secure_sum.in_process import secure_sum

LEAST_BITS = 40
"""Of a client's own number, with its sign: more limbs are sent where fewer would hold less."""
SESSION = b"quorank trees"


def limb_bits(clients: int) -> int:
    """Return the bits of a limb that this number of clients may sum."""
    bits = 31 - max(1, (clients - 1).bit_length())
    require(bits >= 8, "trees.too-many-clients", "these are too many clients for one secure sum of histograms")
    return bits


def to_limbs(numbers: Integers, clients: int) -> Uint32s:
    """Return a client's numbers (n,) as limbs (limbs·n,), modulo 2^32."""
    bits = limb_bits(clients)
    count = -(-LEAST_BITS // bits)
    sentence = "a client's sums are too large for the limbs of a secure sum; divide its lists among several clients"
    fits = not len(numbers) or int(np.abs(numbers).max()) < 1 << (bits * count - 1)
    require(fits, "trees.sum-too-large", sentence)
    limbs = [(numbers >> (bits * i)) & ((1 << bits) - 1) for i in range(count - 1)]
    limbs.append(numbers >> (bits * (count - 1)))
    return np.concatenate(limbs).astype(np.uint32)


def from_limbs(total: Uint32s, clients: int) -> Integers:
    """Return the sums (n,) of which these are the summed limbs."""
    bits = limb_bits(clients)
    count = -(-LEAST_BITS // bits)
    limbs = total.reshape(count, -1)
    whole = sum(limbs[i].astype(np.int64) << (bits * i) for i in range(count - 1))
    return np.asarray(whole + (limbs[-1].view(np.int32).astype(np.int64) << (bits * (count - 1))), dtype=np.int64)


def masked_sum(vectors: Mapping[int, Integers], round_: int, masks: bool = True) -> Integers:
    """Return Σ vectors (n,), by the messages of a secure sum; without `masks` by the same limbs, added in the open."""
    clients = len(vectors)
    limbs = {client: to_limbs(vector, clients) for client, vector in vectors.items()}
    if masks:
        return from_limbs(secure_sum(limbs, round_=round_, session=SESSION).total, clients)
    total = np.zeros(len(next(iter(limbs.values()))), dtype=np.uint32)
    for limb in limbs.values():
        total += limb
    return from_limbs(total, clients)

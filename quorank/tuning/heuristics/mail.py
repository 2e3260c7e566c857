"""Mail search by recency, folder and sender: an example of a heuristic that is not a browser's.

    score(x) = age(x) + folder(x) + sender · log₂(1 + messages exchanged) + answered + flagged

It is a sum, where frecency is a product, and plain NumPy: any vectorised code is a heuristic. The weights and the
generated mail are invented; the example shows the form of a heuristic.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Int8s, Int32s, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, key_of, uniform_pair
from quorank.tuning.heuristics.heuristic import Heuristic, Order, Weight

AGES = {"day": 60.0, "week": 40.0, "month": 25.0, "year": 10.0, "older": 0.0}  # with the shipped weights
FOLDERS = {"inbox": 30.0, "sent": 10.0, "archive": 15.0, "lists": 5.0}
_AGE_LIMITS = np.cumsum((0.10, 0.20, 0.25, 0.30, 0.15))
_FOLDER_LIMITS = np.cumsum((0.45, 0.15, 0.20, 0.20))
_FEWEST, _MOST = 3, 18  # hits of a search


class Mails(NamedTuple):
    """Hits of many searches, in columns."""

    offsets: Integers
    age: Int8s  # index into AGES
    folder: Int8s  # index into FOLDERS
    exchanged: Int32s  # messages between this sender and the person
    answered: Booleans
    flagged: Booleans
    chosen: Integers


@kernel
def _fill(key: Any, first: int, ages: Doubles, folders: Doubles, mails: Mails) -> None:
    for q in range(len(mails.offsets) - 1):
        low, high = (first + q) & 0xFFFFFFFF, (first + q) >> 32
        for x in range(mails.offsets[q], mails.offsets[q + 1]):
            block = 1 + 3 * (x - mails.offsets[q])
            u, v = uniform_pair(key, block, low, high, 2)
            mails.age[x] = min(np.searchsorted(ages, u, side="right"), len(ages) - 1)
            mails.folder[x] = min(np.searchsorted(folders, v, side="right"), len(folders) - 1)
            u, v = uniform_pair(key, block + 1, low, high, 2)
            mails.exchanged[x] = int(min(0.5 * (1.0 - u) ** -1.0, 1e4))  # a few senders write most mail
            mails.answered[x] = v < 0.25
            u, _ = uniform_pair(key, block + 2, low, high, 2)
            mails.flagged[x] = u < 0.05


@kernel
def _sizes(key: Any, first: int, out: Any) -> None:
    for q in range(len(out)):
        u, _ = uniform_pair(key, 0, (first + q) & 0xFFFFFFFF, (first + q) >> 32, 2)
        out[q] = _FEWEST + int(u * (_MOST - _FEWEST + 1))


def generate_mails(seed: int, searches: int, first: int = 0) -> Mails:
    """Generate the hits of searches `first` to `first + searches` under a seed; nothing is chosen yet."""
    key = key_of(seed, Purpose.HISTORY)
    offsets = np.zeros(searches + 1, np.int64)
    _sizes(key, first, offsets[1:])
    np.cumsum(offsets, out=offsets)
    n = int(offsets[-1])
    age, folder, exchanged = *np.empty((2, n), np.int8), np.empty(n, np.int32)
    answered, flagged = np.empty((2, n), np.bool_)
    mails = Mails(offsets, age, folder, exchanged, answered, flagged, np.full(searches, -1, np.int64))
    _fill(key, first, _AGE_LIMITS, _FOLDER_LIMITS, mails)
    return mails


def score(weights: Doubles, items: Mails) -> Doubles:
    """Compute the score (m, items) of every mail under m weight vectors."""
    folders = weights[:, len(AGES) : len(AGES) + len(FOLDERS)]
    sender, answered, flagged = weights[:, -3, None], weights[:, -2, None], weights[:, -1, None]
    known = np.log2(1.0 + items.exchanged)
    return np.asarray(
        weights[:, items.age] + folders[:, items.folder] + sender * known
        + answered * items.answered + flagged * items.flagged,
        dtype=np.float64,
    )  # fmt: skip


MAIL = Heuristic(
    "mail",
    (
        *(Weight(f"age.{age}", shipped, 0.0, 100.0, 5.0) for age, shipped in AGES.items()),
        *(Weight(f"folder.{folder}", shipped, 0.0, 50.0, 3.0) for folder, shipped in FOLDERS.items()),
        Weight("sender", 5.0, 0.0, 20.0, 1.0),
        Weight("answered", 10.0, 0.0, 50.0, 3.0),
        Weight("flagged", 20.0, 0.0, 50.0, 3.0),
    ),
    (
        *(Order(f"age.{newer}", f"age.{older}") for newer, older in pairwise(AGES)),
        Order("folder.inbox", "folder.lists"),
        Order("folder.archive", "folder.lists"),
    ),
    score,
)

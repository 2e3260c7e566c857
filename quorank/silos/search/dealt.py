"""Parties of a search from text collections: one that is dealt out, or several, a party each."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from quorank.errors import require
from quorank.kernels.draws import Purpose, uniforms
from quorank.silos.learning.holdings import DOCUMENT_DEAL, Holding, make_holding, party_letter
from quorank.text import TextCollection

_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


def dealt_parties(collections: Sequence[TextCollection], parties: int = 4, seed: int = 1) -> tuple[Holding, ...]:
    """Make a party of each of several collections, or deal the documents of one out by an addressed shuffle."""
    if len(collections) == 1:
        one = collections[0]
        count = len(one.documents)
        said = f"{count} documents are too few for {parties} parties; take fewer parties or another collection"
        require(count >= parties >= 2, "collection.too-small", said, one.name)
        order = np.argsort(uniforms(seed, Purpose.PARTITION, count, round_=DOCUMENT_DEAL), kind="stable")
        parts = [np.sort(part).tolist() for part in np.array_split(order, parties)]
        return tuple(make_holding(party_letter(p), one, part, ()) for p, part in enumerate(parts))
    names = [party_name(each.name) for each in collections]
    said = f"two collections have the same name: {', '.join(names)}; rename one"
    require(len(set(names)) == len(names), "collection.repeated-name", said)
    return tuple(
        make_holding(name, each, range(len(each.documents)), ()) for name, each in zip(names, collections, strict=True)
    )


def party_name(text: str) -> str:
    """Return a name that a party may have, from a folder's: other letters become '-'.

    >>> party_name("annual reports")
    'annual-reports'
    """
    return _OTHER.sub("-", text).strip("-._")[:64] or "party"

"""The ranker file `ranker.json`: written, and read back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from quorank.arrays import Doubles
from quorank.documents import ANYTHING, Either, Items, Number, Table, Text, Whole, check_shape, json_bytes, parse_json
from quorank.errors import BadInput, require
from quorank.files import read_whole
from quorank.manifest import read_manifest
from quorank.parts import to_table
from quorank.rankers import RANKERS, Ranker

FORMAT = "quorank-ranker/1"
FILE = "ranker.json"
LARGEST = 1 << 28
"""Bytes of a ranker file."""
MOST_FEATURES = 1 << 24
_SHAPE = Table(
    {
        "ranker": Either((Text(longest=100), Table({"kind": Text(longest=100)}))),
        "n_features": Whole(1, MOST_FEATURES),
        "normalize": Text(("query", "none")),
        "parameters": Items(Number()),
    },
    {"format": ANYTHING},
)


@dataclass(frozen=True, eq=False)
class SavedRanker:
    """A ranker with its parameters, and how its features are to be prepared."""

    ranker: Ranker
    n_features: int
    normalize: Literal["query", "none"]
    theta: Doubles


def ranker_bytes(ranker: Ranker, n_features: int, theta: Doubles, normalize: Literal["query", "none"]) -> bytes:
    """Encode a ranker with parameters (parameters,), and nothing else, so that equal rankers are equal bytes."""
    table = to_table(ranker.with_prior(None))
    # files of before activation was a choice name none
    content = {
        "format": FORMAT,
        "ranker": {name: value for name, value in table.items() if (name, value) != ("activation", "relu")},
        "n_features": n_features,
        "normalize": normalize,
        "parameters": theta.tolist(),
    }
    return json_bytes(content)


def read_ranker(path: Path) -> SavedRanker:
    """From the file, or from the directory of a run that holds it."""
    try:
        file = path / FILE if path.is_dir() else path
    except OSError:  # a name that is too long for one
        file = path
    try:
        digest = (read_manifest(file.parent) or {}).get(FILE) if file.name == FILE else None
        raw = read_whole(file, LARGEST, digest, "ranker-file.damaged")
    except BadInput as error:
        if error.code != "file.missing":
            raise
        missing = "no ranker here; expected ranker.json or the directory of a finished run"
        raise BadInput("ranker-file.missing", missing, str(path)) from None
    content = parse_json(raw, ANYTHING, str(file), code="ranker-file.unreadable", advice="; not a ranker file")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadInput("ranker-file.other-format", f'not a ranker file; expected "format": "{FORMAT}"', str(file))
    code = "ranker-file.damaged"
    check_shape(content, _SHAPE, str(file), code=code)
    try:
        ranker = RANKERS.read(content["ranker"], "ranker")
    except BadInput as error:
        raise BadInput(code, f"damaged ranker file ({error})", str(file)) from None
    n_features, theta = content["n_features"], np.array(content["parameters"], dtype=np.float64)
    complete = theta.shape == (ranker.size(n_features),) and np.isfinite(theta).all()
    wrong = f"damaged ranker file; expected {ranker.size(n_features)} finite parameters"
    require(complete, code, wrong, str(file))
    try:
        ranker.check_size(theta, n_features)
    except BadInput as error:
        raise BadInput(code, f"damaged ranker file ({error.sentence})", str(file)) from None
    return SavedRanker(ranker, n_features, content["normalize"], theta)

"""The ranker file `ranker.json`, read back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import BadInput, require
from quorank.rankers import RANKERS, Ranker

FORMAT = "quorank-ranker/1"


@dataclass(frozen=True, eq=False)
class SavedRanker:
    """A ranker with its parameters, and how its features are to be prepared."""

    ranker: Ranker
    n_features: int
    normalize: Literal["query", "none"]
    theta: Doubles


def read_ranker(path: Path) -> SavedRanker:
    """From the file, or from the directory of a run that holds it."""
    file = path / "ranker.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        missing = "no ranker here; expected ranker.json or the directory of a finished run"
        raise BadInput("ranker-file.missing", missing, str(path)) from None
    except (OSError, ValueError) as error:
        raise BadInput("ranker-file.unreadable", f"not a ranker file ({error})", str(file)) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadInput("ranker-file.other-format", f'not a ranker file; expected "format": "{FORMAT}"', str(file))
    try:
        ranker = RANKERS.read(content["ranker"], "ranker")
        n_features, normalize = int(content["n_features"]), content["normalize"]
        theta = np.array(content["parameters"], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError, BadInput) as error:
        raise BadInput("ranker-file.damaged", f"damaged ranker file ({error})", str(file)) from None
    wrong = f'damaged ranker file; expected "normalize": "query" or "none", got {normalize!r}'
    require(normalize in ("query", "none"), "ranker-file.damaged", wrong, str(file))
    complete = theta.shape == (ranker.size(n_features),) and np.isfinite(theta).all()
    wrong = f"damaged ranker file; expected {ranker.size(n_features)} finite parameters"
    require(complete, "ranker-file.damaged", wrong, str(file))
    return SavedRanker(ranker, n_features, normalize, theta)

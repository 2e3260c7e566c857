"""What readers of exported files share: the refusal of a damaged one, JSON, numbers, names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from quorank.errors import BadInput, brief, require
from quorank.files.untrusted import parse_json
from quorank.kernels.arrays import Floats


def damaged(file: str, sentence: str) -> BadInput:
    """Return the refusal of an exported file."""
    return BadInput("export.damaged", sentence, file)


def content_of(files: Mapping[str, bytes], file: str) -> bytes:
    """Return the content of a file of the export."""
    require(file in files, "export.damaged", "is missing; export the ranker again", file)
    return files[file]


def text_of(files: Mapping[str, bytes], file: str) -> str:
    """Return the content of a text file of the export."""
    try:
        return content_of(files, file).decode()
    except UnicodeDecodeError:
        raise damaged(file, "is not a text in UTF-8") from None


def json_of(files: Mapping[str, bytes], file: str) -> Any:
    """Return what a JSON file of the export holds."""
    return json_in(text_of(files, file), file)


def json_in(text: str, file: str) -> Any:
    """Return what a JSON text holds."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise damaged(file, f"is not readable as JSON ({brief(str(error))})") from None


def entry(table: object, key: str, kind: type, file: str) -> Any:
    """Return the value of a table's key, which must be of a type."""
    value = table.get(key) if isinstance(table, dict) else None
    if not isinstance(value, kind):
        raise damaged(file, f"expected a {kind.__name__} as {key}, got {brief(value)}")
    return value


def float32_of(value: object, file: str, what: str) -> np.float32:
    """Return a number as float32, also one that is written as a text; what is none, or not finite there, is refused."""
    number = math.nan
    if isinstance(value, str) and len(value) <= 40:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        number = float(value)
    with np.errstate(over="ignore"):
        found = np.float32(number)
    if not np.isfinite(found):
        raise damaged(file, f"expected a number as {what}, got {brief(value)}")
    return found


def filled(features: Floats, missing: Floats | float) -> Floats:
    """Return features with what is missing in them filled, for all columns or each."""
    return np.where(np.isnan(features), np.asarray(missing, dtype=np.float32), features)


def sum_of_products(features: Floats, weights: Floats, start: float = 0.0) -> Floats:
    """(rows,) Σ_i features[:, i]·weights[i] in float32, one product after the other, as a loop in Java does."""
    total = np.full(len(features), np.float32(start))
    with np.errstate(all="ignore"):
        for column, weight in zip(features.T, weights, strict=True):
            total = total + column * weight
    return total

"""Contents of exported files: JSON, numbers and names, written and read, and arithmetic that checkers share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from quorank.errors import BadInput, brief, require
from quorank.files.documents import load_json
from quorank.kernels.arrays import Doubles, Floats


def short_floats(values: Floats | Doubles) -> list[float]:
    """Return float32 numbers as doubles with few digits that round to them: 0.1 and not 0.10000000149011612."""
    return [float(str(value)) for value in np.asarray(values, dtype=np.float32).ravel()]


def next_float32(values: list[float]) -> Floats:
    """Return the next float32 above each value; x < that number is the same as x ≤ value."""
    return np.nextafter(np.array(values, dtype=np.float32), np.float32(np.inf))


def json_file(content: Any) -> bytes:
    """Encode an indented JSON file."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def damaged(file: str, sentence: str) -> BadInput:
    """Return the error for a damaged file of an export."""
    return BadInput("export.damaged", sentence, file)


def content_of(files: Mapping[str, bytes], file: str) -> bytes:
    """Return the content of a file of the export."""
    require(file in files, "export.damaged", "is missing; export the ranker again", file)
    return files[file]


def text_of(files: Mapping[str, bytes], file: str) -> str:
    """Decode a UTF-8 file of the export."""
    try:
        return content_of(files, file).decode()
    except UnicodeDecodeError:
        raise damaged(file, "is not UTF-8 text") from None


def json_of(files: Mapping[str, bytes], file: str) -> Any:
    """Parse a JSON file of the export."""
    return json_in(text_of(files, file), file)


def json_in(text: str, file: str) -> Any:
    """Parse a JSON string that stands in a file."""
    try:
        return load_json(text)
    except ValueError as error:
        raise damaged(file, f"is not readable as JSON ({brief(str(error))})") from None


def entry(table: object, key: str, kind: type, file: str) -> Any:
    """Return the value of a table's key, which must have a type."""
    value = table.get(key) if isinstance(table, dict) else None
    if not isinstance(value, kind):
        raise damaged(file, f"expected a {kind.__name__} as {key}, got {brief(value)}")
    return value


def names_of(listed: list[Any], columns: Mapping[str, int], file: str) -> list[str]:
    """Return the names of listed features, each of which is a column of the export and occurs once."""
    names = [entry(each, "name", str, file) for each in listed]
    known = len(set(names)) == len(names) and set(names) <= set(columns)
    require(known, "export.damaged", "expected features of the export, each once", file)
    return names


def finite(value: object, file: str, quantity: str, kind: type = np.float32) -> Any:
    """Return a number of a type, which may be written as a string; raise BadInput unless it is finite in it."""
    number = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value)) <= 400:
        with suppress(ValueError, OverflowError):
            number = float(value)
    if not abs(number) <= np.finfo(kind).max:
        raise damaged(file, f"expected a number as {quantity}, got {brief(value)}")
    return kind(number)


def fill_missing(features: Floats, missing: Floats | float) -> Floats:
    """Return features with NaN replaced, by one value or one for each column."""
    return np.where(np.isnan(features), np.asarray(missing, dtype=np.float32), features)


def sum_of_products(features: Any, weights: Any, start: Any = np.float32(0.0)) -> Any:  # noqa: B008 - immutable
    """Compute (rows,) start + Σ_i features[:, i]·weights[i] one product after the other, in the precision of `start`."""
    total = np.full(len(features), start)
    with np.errstate(all="ignore"):
        for column, weight in zip(features.T, weights, strict=True):
            total = total + column * weight
    return total

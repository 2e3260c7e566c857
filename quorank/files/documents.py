"""JSON and TOML files, checked before anything in them is believed: size, nesting, numbers, and the shape that is expected.

A shape is a value: `Table({"rounds": Whole(1), "seconds": Each(Number(0.0))})`. What does not fit is one sentence with the
file and the key. `read_json` reads a file, `parse_json` and `parse_toml` a content that is in memory already.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from quorank.errors import BadInput, brief
from quorank.files.atomic import read_whole
from quorank.files.codec import decode, encode

LARGEST = 1 << 26
"""Bytes of a JSON file, unless its reader knows better."""
LARGEST_TOML = 1 << 21
"""Bytes of a TOML file: people write these, or a run does whose ranker starts from 50,000 parameters."""
DEEPEST = 32
"""Lists and tables inside each other."""
LONGEST_NUMBER, LONGEST_TEXT = 40, 1 << 12
"""Digits of an integer, and characters of a text in a TOML file."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Misfit(Exception):
    """A value that does not fit its shape: the keys that lead to it, and what was expected there."""

    def __init__(self, sentence: str, keys: tuple[str, ...] = (), *, absent: bool = False) -> None:
        super().__init__(sentence, keys)
        self.sentence, self.keys, self.absent = sentence, keys, absent


class DocumentShape:
    """What a value of a document must be; the base class takes anything."""

    def check(self, value: object) -> None:
        """Raise Misfit where the value does not fit."""


ANYTHING = DocumentShape()


@dataclass(frozen=True)
class Whole(DocumentShape):
    """A whole number, no boolean."""

    least: int = -(2**63)
    most: int = 2**64 - 1

    def check(self, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Misfit(f"expected an integer, got {brief(value)}")
        if not self.least <= value <= self.most:
            raise Misfit(f"expected an integer from {self.least} to {self.most}, got {brief(value)}")


@dataclass(frozen=True)
class Number(DocumentShape):
    """A finite number, whole or not."""

    least: float = -math.inf
    most: float = math.inf

    def check(self, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Misfit(f"expected a number, got {brief(value)}")
        if not self.least <= value <= self.most or abs(value) > 1e308:
            raise Misfit(f"expected a number from {self.least:g} to {self.most:g}, got {brief(value)}")


@dataclass(frozen=True)
class Text(DocumentShape):
    """A text; `choices` are those that it may be."""

    choices: tuple[str, ...] = ()
    longest: int = LARGEST

    def check(self, value: object) -> None:
        if not isinstance(value, str):
            raise Misfit(f"expected a text, got {brief(value)}")
        if self.choices and value not in self.choices:
            raise Misfit(f"expected {' or '.join(map(repr, self.choices))}, got {brief(value)}")
        if len(value) > self.longest:
            raise Misfit(f"expected at most {self.longest} characters, got {len(value)}")


@dataclass(frozen=True)
class Flag(DocumentShape):
    """true or false."""

    def check(self, value: object) -> None:
        if not isinstance(value, bool):
            raise Misfit(f"expected true or false, got {brief(value)}")


@dataclass(frozen=True)
class Maybe(DocumentShape):
    """null, or what another shape says."""

    shape: DocumentShape

    def check(self, value: object) -> None:
        if value is not None:
            self.shape.check(value)


@dataclass(frozen=True)
class Either(DocumentShape):
    """What any of several shapes says."""

    shapes: tuple[DocumentShape, ...]

    def check(self, value: object) -> None:
        for shape in self.shapes[:-1]:
            try:
                return shape.check(value)
            except Misfit:
                continue
        return self.shapes[-1].check(value)


@dataclass(frozen=True)
class Items(DocumentShape):
    """A list whose items all have one shape."""

    shape: DocumentShape = ANYTHING
    most: int | None = None

    def check(self, value: object) -> None:
        if not isinstance(value, list):
            raise Misfit(f"expected a list, got {brief(value)}")
        if self.most is not None and len(value) > self.most:
            raise Misfit(f"expected at most {self.most} items, got {len(value)}")
        for number, item in enumerate(value):
            _check_below(self.shape, item, str(number))


@dataclass(frozen=True)
class Each(DocumentShape):
    """A table of any keys whose values all have one shape."""

    shape: DocumentShape = ANYTHING

    def check(self, value: object) -> None:
        if not isinstance(value, dict):
            raise Misfit(f"expected a table, got {brief(value)}")
        for key, item in value.items():
            _check_below(self.shape, item, key)


@dataclass(frozen=True)
class Table(DocumentShape):
    """A table that has these keys, may have those of `optional`, and others too unless it is `closed`."""

    keys: dict[str, DocumentShape]
    optional: dict[str, DocumentShape] = field(default_factory=dict)
    closed: bool = False

    def check(self, value: object) -> None:
        if not isinstance(value, dict):
            raise Misfit(f"expected a table, got {brief(value)}")
        for key, shape in self.keys.items():
            if key not in value:
                raise Misfit("is missing", (key,), absent=True)
            _check_below(shape, value[key], key)
        for key, shape in self.optional.items():
            if key in value:
                _check_below(shape, value[key], key)
        if self.closed:
            for key in value:
                if key not in self.keys and key not in self.optional:
                    raise Misfit("is no key of this file", (key,), absent=True)


def shape_of(cls: type[Any]) -> Table:
    """Return the shape of a table that holds the fields of a dataclass; fields with a default may be absent."""
    hints = get_type_hints(cls)
    needed: dict[str, DocumentShape] = {}
    optional: dict[str, DocumentShape] = {}
    for each in fields(cls):
        absent = each.default is not MISSING or each.default_factory is not MISSING
        (optional if absent else needed)[each.name] = _shape_of_hint(hints[each.name])
    return Table(needed, optional, closed=True)


def _shape_of_hint(hint: Any) -> DocumentShape:
    if get_origin(hint) in (Union, UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        return Maybe(_shape_of_hint(options[0])) if len(options) == 1 else ANYTHING
    if get_origin(hint) is Literal:
        return Text(get_args(hint))
    return {int: Whole(), float: Number(), str: Text(), bool: Flag()}.get(hint, ANYTHING)


def _check_below(shape: DocumentShape, value: object, key: str) -> None:
    try:
        shape.check(value)
    except Misfit as misfit:
        raise Misfit(misfit.sentence, (key, *misfit.keys), absent=misfit.absent) from None


def json_bytes(content: Any) -> bytes:
    """Encode a value or a dataclass as the JSON files of a run are written."""
    return (json.dumps(encode(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(
    path: Path,
    hint: Any = dict[str, Any],
    *,
    most: int = LARGEST,
    digest: str | None = None,
    code: str = "file.damaged",
    advice: str = "",
) -> Any:
    """Read a JSON file; the arguments beside `path`, `most` and `digest` are those of `parse_json`."""
    content = read_whole(path, most, digest, code, advice)
    return parse_json(content, hint, str(path), code=code, advice=advice)


def parse_json(
    content: bytes | str, hint: Any = dict[str, Any], where: str = "", *, code: str = "file.damaged", advice: str = ""
) -> Any:
    """Parse JSON from an untrusted source and decode it.

    Args:
        content: The document; bytes must be UTF-8.
        hint: A dataclass or annotation for `codec.decode`; by default a table of anything.
        where: Name of the file in errors.
        code: Code of every error.
        advice: End of every error's sentence.

    Raises:
        BadInput: The content is not JSON, repeats a key, holds NaN, infinity or a number of too many digits, is nested
            too deeply, or does not fit `hint`.

    >>> parse_json(b'{"rounds": 1, "rounds": 2}', where="run.json")
    Traceback (most recent call last):
    quorank.errors.BadInput: run.json: damaged: the key 'rounds' occurs twice
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_not_a_number, parse_int=_parse_integer, parse_float=_finite
        )
        _check_nesting(value)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise BadInput(code, f"damaged: not a text in UTF-8{advice}", where) from None
    except json.JSONDecodeError as error:
        raise BadInput(code, f"damaged: not readable as JSON ({error}){advice}", where) from None
    except ValueError as error:
        raise BadInput(code, f"damaged: {error}{advice}", where) from None
    except (RecursionError, MemoryError):
        raise BadInput(code, f"damaged: nested too deep{advice}", where) from None
    return decode_document(hint, value, where, code=code, advice=advice)


def load_json(text: str | bytes) -> Any:
    """Parse JSON of another program, in which keys may repeat; raise ValueError for anything else.

    Nesting is limited by Python's recursion limit and integers by its limit of digits. Memory is up to thirty times the
    text's, which callers bound.
    """
    try:
        return json.loads(text, parse_constant=_not_a_number, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def decode_document(hint: Any, value: object, where: str, *, code: str = "file.damaged", advice: str = "") -> Any:
    """Decode a parsed document of the file `where`; every error has the same code and names the key."""
    if isinstance(hint, DocumentShape):
        check_shape(value, hint, where, code=code, advice=advice)
        return value
    try:
        return decode(hint, value)
    except BadInput as error:
        raise BadInput(code, f"damaged: {error}{advice}", where) from None


def check_shape(
    value: object, shape: DocumentShape, where: str, *, code: str = "file.damaged", advice: str = ""
) -> None:
    """Refuse a value that does not fit its shape, with the keys that lead to the misfit."""
    try:
        shape.check(value)
    except Misfit as misfit:
        place = ".".join(key if len(key) <= 60 and key.isprintable() else brief(key) for key in misfit.keys)
        what = f"{place}{' ' if misfit.absent else ': '}{misfit.sentence}" if place else misfit.sentence
        raise BadInput(code, f"damaged: {what}{advice}", where) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {brief(twice)} occurs twice")
    return table


def _not_a_number(word: str) -> float:
    raise ValueError(f"{word} is no number here")


def _parse_integer(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is too large a number")
    return value


def _check_nesting(value: object) -> None:
    """Refuse what is nested deeper than any file of ours, without going down by recursion."""
    level: list[object] = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise RecursionError


def parse_toml(text: str, where: str, code: str = "file.not-toml") -> dict[str, Any]:
    """Parse TOML that a person wrote, within bounds of size, nesting, digits and texts."""
    if len(text) > LARGEST_TOML:
        raise BadInput("toml.too-large", f"larger than {LARGEST_TOML:,} characters, which no such file is", where)
    if _longest_key(text) > DEEPEST:
        raise BadInput("toml.too-deep", f"has a key of more than {DEEPEST} parts", where)
    try:
        tables = tomllib.loads(text)
        _check_nesting(tables)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(code, f"not a TOML file: {error}", where) from None
    except (RecursionError, MemoryError):
        raise BadInput("toml.too-deep", "is nested too deep", where) from None
    except ValueError:  # Python's own limit for the digits of a number
        raise BadInput("toml.too-many-digits", "holds a number of too many digits", where) from None
    _check_scalars(tables, where)
    return tables


def _longest_key(text: str) -> int:
    """How many parts the longest dotted key has at most; tomllib takes the square of that many steps.

    Keys stand before = and in the heads of tables; dots in texts and in numbers mean nothing.
    """
    plain = re.sub(r"\"(?:[^\"\\\n]|\\.)*\"?|'[^'\n]*'?", "", text)
    pieces = re.split(r"[\n,{]", plain)
    keys = (piece.partition("=")[0] for piece in pieces if "=" in piece or piece.lstrip().startswith("["))
    return max((key.count(".") + 1 for key in keys), default=0)


def _check_scalars(value: object, where: str, key: str = "") -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_scalars(inner, where, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            _check_scalars(inner, where, key)
    elif isinstance(value, int) and abs(value) >= 1 << 64:
        raise BadInput("value.out-of-range", f"{brief(value)} is too large a number", key).at(where)
    elif isinstance(value, str) and len(value) > LONGEST_TEXT:
        sentence = f"a text of {len(value):,} characters; expected at most {LONGEST_TEXT:,}"
        raise BadInput("value.out-of-range", sentence, key).at(where)

"""Conversion between dataclasses and the plain values of JSON and TOML, driven by type annotations.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Krum:
    ...     byzantine: Annotated[int, Range(0, 100)]
    ...     rule: Literal["single", "multi"] = "single"
    >>> decode(Krum, {"byzantine": 3})
    Krum(byzantine=3, rule='single')
    >>> encode(Krum(3))
    {'byzantine': 3, 'rule': 'single'}
    >>> decode(Krum, {"byzantine": 300}, "aggregation")
    Traceback (most recent call last):
    quorank.errors.BadInput: aggregation.byzantine: must be at least 0 and at most 100, got 300

Annotations: `bool`, `int`, `float` (finite; an integer is accepted), `str`, `bytes` (as hexadecimal), `None`, `Literal`,
unions, `list[T]`, `tuple[T, ...]`, `tuple[T, U]`, `dict[str, T]`, dataclasses (unknown keys are rejected), `TypedDict`
(unknown keys are kept) and `Any`. `Annotated` adds a `Range`, a `Length` or a `Pattern`. Any other class decodes itself
with a class method `decode_value(value)`.

Not msgspec 0.22: it accepts repeated keys and unknown keys of a dataclass, loses the key of a dataclass's own checks, and
states the place of an error in its sentence only.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
    overload,
)

import numpy as np

from quorank.errors import BadInput, brief, require_range, suggest

T = TypeVar("T")
Decoder = Callable[[Any], Any]

LARGEST_FLOAT = 1e308


@dataclass(frozen=True)
class Range:
    """Bounds on a number; `above` and `below` exclude the bound itself."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def check(self, value: Any) -> None:
        least, most = self.least, self.most
        if least is not None and most is not None and self.above is None is self.below and least <= value <= most:
            return  # fast path: messages hold millions of integers
        require_range("", value, above=self.above, least=self.least, below=self.below, most=self.most)


@dataclass(frozen=True)
class Length:
    """Bounds on the characters of a string, the bytes of `bytes`, or the items of a list or table."""

    most: int
    least: int = 0

    def check(self, value: Any) -> None:
        if not self.least <= len(value) <= self.most:
            unit = "characters" if isinstance(value, str) else "bytes" if isinstance(value, bytes) else "items"
            bounds = f"at most {self.most:,}" if self.least == 0 else f"{self.least:,} to {self.most:,}"
            bounds = f"{self.most:,}" if self.least == self.most else bounds
            raise BadInput("value.out-of-range", f"expected {bounds} {unit}, got {len(value):,}")


@dataclass(frozen=True)
class Pattern:
    """Regular expression that a whole string must match; `expected` describes it in the error."""

    pattern: str
    expected: str

    def check(self, value: str) -> None:
        if not re.fullmatch(self.pattern, value):
            raise BadInput("value.out-of-range", f"expected {self.expected}, got {brief(value)}")


ANY_INTEGER = Range(-(2**63), 2**64 - 1)


@overload
def decode(hint: type[T], value: object, where: str = "") -> T: ...
@overload
def decode(hint: Any, value: object, where: str = "") -> Any: ...
def decode(hint: Any, value: object, where: str = "") -> Any:
    """Check a plain value against an annotation and build its dataclasses.

    Args:
        hint: A dataclass or another supported annotation.
        value: Content of a parsed document.
        where: Dotted key of the value, which precedes the key in errors.

    Raises:
        BadInput: `value.wrong-type`, `value.out-of-range`, `value.not-a-choice`, `value.missing` or `part.unknown-key`,
            or an error of the dataclass's own `__post_init__`; `where` is the dotted key.

    >>> decode(dict[str, list[int]], {"rounds": [1, "2"]})
    Traceback (most recent call last):
    quorank.errors.BadInput: rounds.1: expected an integer, got '2'
    """
    try:
        return _decoder(hint)(value)
    except BadInput as error:
        raise error.under(where) from None


def encode(value: Any, *, defaults: bool = True) -> Any:
    """Return the plain value of a dataclass, array, mapping or sequence; `decode` reads it back.

    Args:
        value: Anything that `decode` can build.
        defaults: Include fields that equal their default.

    A dataclass with a class variable `kind` begins with it.
    """
    if is_dataclass(value) and not isinstance(value, type):
        kind = getattr(type(value), "kind", None)
        table = {"kind": kind} if isinstance(kind, str) else {}
        for field in fields(value):
            if field.init and (defaults or not _is_default(field, getattr(value, field.name))):
                table[field.name] = encode(getattr(value, field.name), defaults=defaults)
        return table
    if isinstance(value, Mapping):
        return {key: encode(item, defaults=defaults) for key, item in value.items()}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [encode(item, defaults=defaults) for item in value]
    return value


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default_factory is not MISSING:
        return bool(value == field.default_factory())
    return field.default is not MISSING and bool(value == field.default)


@cache
def _decoder(hint: Any) -> Decoder:
    """Return the function that decodes values of an annotation."""
    if (origin := get_origin(hint)) in _BY_ORIGIN:
        return _BY_ORIGIN[origin](*get_args(hint))
    if "decode_value" in getattr(hint, "__dict__", {}):  # not inherited: members of a family decode by their fields
        return hint.decode_value  # type: ignore[no-any-return]
    if is_typeddict(hint) or is_dataclass(hint):
        return _record(hint)
    return _SCALARS.get(hint) or _typed(hint, f"a {getattr(hint, '__name__', hint)}")


def _wrong(expected: str, value: object) -> BadInput:
    return BadInput("value.wrong-type", f"expected {expected}, got {brief(value)}")


def _typed(kinds: Any, expected: str) -> Decoder:
    """Return the decoder of the instances of some classes; a boolean is no integer."""

    def decode_typed(value: Any) -> Any:
        if isinstance(value, kinds) and (value.__class__ is not bool or kinds is bool):
            return value
        raise _wrong(expected, value)

    return decode_typed


_integer, _number = _typed(int, "an integer"), _typed((int, float), "a number")
_list, _table = _typed((list, tuple), "a list"), _typed(Mapping, "a table")


def _float(value: Any) -> float:
    if not -LARGEST_FLOAT <= _number(value) <= LARGEST_FLOAT:
        raise BadInput("value.out-of-range", f"expected a finite number, got {brief(value)}")
    return float(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or len(value) % 2 or not re.fullmatch("[0-9a-f]*", value):
        raise BadInput("value.wrong-type", "expected bytes in lowercase hexadecimal")  # keys: never quoted
    return bytes.fromhex(value)


def _annotated(hint: Any, *bounds: Any) -> Decoder:
    checks = [bound.check for bound in bounds if isinstance(bound, Range | Length | Pattern)]
    inner = _integer if hint is int and any(isinstance(bound, Range) for bound in bounds) else _decoder(hint)

    def decode_annotated(value: Any) -> Any:
        decoded = inner(value)
        for check in checks:
            if decoded is not None:
                check(decoded)
        return decoded

    return decode_annotated


def _union(*hints: Any) -> Decoder:
    *first, last = [_decoder(hint) for hint in hints if hint is not NoneType]

    def decode_union(value: Any) -> Any:
        if value is None and NoneType in hints:
            return None
        for option in first:
            try:
                return option(value)
            except BadInput:
                continue
        return last(value)

    return decode_union


def _choice(*choices: Any) -> Decoder:
    def decode_choice(value: Any) -> Any:
        if any(type(value) is type(choice) and value == choice for choice in choices):
            return value
        known = ", ".join(map(repr, choices))
        expected = f"one of {known}" if len(choices) > 1 else known
        raise BadInput("value.not-a-choice", f"expected {expected}, got {brief(value)}{suggest(value, choices)}")

    return decode_choice


def _below(key: object, decoder: Decoder, value: Any) -> Any:
    """Decode the value of one key; errors are about that key."""
    try:
        return decoder(value)
    except BadInput as error:
        name = str(key)
        raise error.under(name if len(name) <= 60 and name.isprintable() else brief(name)) from None


def _items(hint: Any, make: Callable[[Any], Any] = tuple) -> Decoder:
    decoder = _decoder(hint)

    def decode_items(value: Any) -> Any:
        try:
            return make(map(decoder, _list(value)))
        except BadInput:  # decode again with positions, which cost time
            return make([_below(position, decoder, item) for position, item in enumerate(_list(value))])

    return decode_items


def _tuple(*hints: Any) -> Decoder:
    if hints[1:] == (Ellipsis,):
        return _items(hints[0])
    decoders = [_decoder(hint) for hint in hints]

    def decode_tuple(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(decoders):
            raise _wrong(f"a list of {len(decoders)} values", value)
        return tuple(map(_below, range(len(decoders)), decoders, value))

    return decode_tuple


def _mapping(_: Any, hint: Any) -> Decoder:
    decoder = _decoder(hint)
    return lambda value: {key: _below(key, decoder, item) for key, item in _table(value).items()}


def _record(cls: Any) -> Decoder:
    """Return the decoder of a dataclass, which rejects unknown keys, or of a `TypedDict`, which keeps them."""
    is_open = is_typeddict(cls)
    kind = getattr(cls, "kind", None)

    def decode_record(value: Any) -> Any:
        if not is_open and isinstance(value, cls):
            return value
        hints, required = field_hints(cls)
        values = {}
        for key, item in _table(value).items():
            if key in hints:
                values[key] = _below(key, _decoder(hints[key]), item)
            elif is_open:
                values[key] = item
            elif key == "kind" and isinstance(kind, str):
                _below(key, _choice(kind), item)
            else:
                sentence = f"unknown key {brief(key)}{suggest(key, hints)}; known: {', '.join(hints) or 'none'}"
                raise BadInput("part.unknown-key", sentence, str(key)[:100])
        for name in required:
            if name not in values:
                raise BadInput("value.missing", "is missing", name)
        return values if is_open else cls(**values)

    return decode_record


@cache
def field_hints(cls: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the annotations of a class's fields, which are strings until they are resolved, and the required ones."""
    hints = get_type_hints(cls, include_extras=True)
    if is_typeddict(cls):  # NotRequired stays in __required_keys__ where annotations are strings
        return hints, [n for n in hints if n in cls.__required_keys__ and get_origin(hints[n]) is not NotRequired]
    named = [field for field in fields(cls) if field.init]
    required = [each.name for each in named if each.default is MISSING and each.default_factory is MISSING]
    return {field.name: hints[field.name] for field in named}, required


_SCALARS: dict[Any, Decoder] = {
    int: _annotated(int, ANY_INTEGER),
    float: _float,
    str: _typed(str, "a string"),
    bool: _typed(bool, "true or false"),
    bytes: _bytes,
    None: _typed(NoneType, "null"),
    NoneType: _typed(NoneType, "null"),
    Any: lambda value: value,
    object: lambda value: value,
}
_BY_ORIGIN: dict[Any, Callable[..., Decoder]] = {
    Annotated: _annotated,
    Required: _decoder,
    NotRequired: _decoder,
    Union: _union,
    UnionType: _union,
    Literal: _choice,
    list: lambda hint: _items(hint, list),
    Sequence: _items,
    tuple: _tuple,
    dict: _mapping,
    Mapping: _mapping,
}

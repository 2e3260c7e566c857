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

Not msgspec 0.22, which was tried: a repeated key and an unknown key of a dataclass pass unnoticed, a dataclass's own checks
lose the key that they are about, and the place of an error is part of its sentence only.
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
            return  # quickly, since messages hold millions of integers
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
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _checked(args[0], [bound for bound in args[1:] if isinstance(bound, Range | Length | Pattern)])
    if origin in (Required, NotRequired):
        return _decoder(args[0])
    if origin in (Union, UnionType):
        return _union(args)
    if origin is Literal:
        return _choice(args)
    if origin is tuple and (len(args) != 2 or args[1] is not Ellipsis):
        return _fixed_tuple(args)
    if origin in (list, tuple, Sequence):
        return _items(args[0], list if origin is list else tuple)
    if origin in (dict, Mapping):
        return _mapping(args[1])
    if "decode_value" in getattr(hint, "__dict__", {}):  # its own: members of a family decode by their fields
        return hint.decode_value  # type: ignore[no-any-return]
    if is_typeddict(hint):
        return _typed_dict(hint)
    if is_dataclass(hint):
        return _dataclass(hint)
    return _SCALARS.get(hint) or _instance(hint)


def _wrong(expected: str, value: object) -> BadInput:
    return BadInput("value.wrong-type", f"expected {expected}, got {brief(value)}")


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong("an integer", value)
    return value


def _bounded_integer(value: Any) -> int:
    ANY_INTEGER.check(_integer(value))
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong("a number", value)
    if not -LARGEST_FLOAT <= value <= LARGEST_FLOAT:
        raise BadInput("value.out-of-range", f"expected a finite number, got {brief(value)}")
    return float(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong("a string", value)
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong("true or false", value)
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or len(value) % 2 or not re.fullmatch("[0-9a-f]*", value):
        raise BadInput("value.wrong-type", "expected bytes in lowercase hexadecimal")  # keys: never quoted
    return bytes.fromhex(value)


def _nothing(value: Any) -> None:
    if value is not None:
        raise _wrong("null", value)


_SCALARS: dict[Any, Decoder] = {
    int: _bounded_integer,
    float: _float,
    str: _string,
    bool: _boolean,
    bytes: _bytes,
    None: _nothing,
    NoneType: _nothing,
    Any: lambda value: value,
    object: lambda value: value,
}


def _checked(hint: Any, bounds: list[Any]) -> Decoder:
    inner = _integer if hint is int and any(isinstance(bound, Range) for bound in bounds) else _decoder(hint)

    def decode_checked(value: Any) -> Any:
        decoded = inner(value)
        for bound in bounds:
            if decoded is not None:
                bound.check(decoded)
        return decoded

    return decode_checked


def _union(args: tuple[Any, ...]) -> Decoder:
    optional = NoneType in args
    *first, last = [_decoder(arg) for arg in args if arg is not NoneType]

    def decode_union(value: Any) -> Any:
        if optional and value is None:
            return None
        for option in first:
            try:
                return option(value)
            except BadInput:
                continue
        return last(value)

    return decode_union


def _choice(choices: tuple[Any, ...]) -> Decoder:
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


def _items(hint: Any, make: Callable[[Any], Any]) -> Decoder:
    decoder = _decoder(hint)

    def decode_items(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _wrong("a list", value)
        try:
            return make(map(decoder, value))
        except BadInput:  # again with the positions, which the usual case does without
            return make([_below(position, decoder, item) for position, item in enumerate(value)])

    return decode_items


def _fixed_tuple(args: tuple[Any, ...]) -> Decoder:
    decoders = [_decoder(arg) for arg in args]

    def decode_tuple(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(decoders):
            raise _wrong(f"a list of {len(decoders)} values", value)
        pairs = zip(decoders, value, strict=True)
        return tuple(_below(position, decoder, item) for position, (decoder, item) in enumerate(pairs))

    return decode_tuple


def _mapping(hint: Any) -> Decoder:
    decoder = _decoder(hint)

    def decode_mapping(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _wrong("a table", value)
        return {key: _below(key, decoder, item) for key, item in value.items()}

    return decode_mapping


def _typed_dict(hint: Any) -> Decoder:
    hints = get_type_hints(hint, include_extras=True)
    # NotRequired stays in __required_keys__ where annotations are strings
    required = [key for key in hints if key in hint.__required_keys__ and get_origin(hints[key]) is not NotRequired]

    def decode_typed_dict(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _wrong("a table", value)
        _require_keys(required, value)
        known = {key: _below(key, _decoder(hints[key]), item) for key, item in value.items() if key in hints}
        return {**value, **known}

    return decode_typed_dict


def _dataclass(cls: Any) -> Decoder:
    named = [field for field in fields(cls) if field.init]
    required = [f.name for f in named if f.default is MISSING and f.default_factory is MISSING]
    kind = getattr(cls, "kind", None)

    def decode_dataclass(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise _wrong("a table", value)
        hints = field_hints(cls)
        if isinstance(kind, str) and "kind" not in hints and "kind" in value:
            _below("kind", _choice((kind,)), value["kind"])
            value = {key: item for key, item in value.items() if key != "kind"}
        values = {}
        for key, item in value.items():
            if key not in hints:
                sentence = f"unknown key {brief(key)}{suggest(key, hints)}; known: {', '.join(hints) or 'none'}"
                raise BadInput("part.unknown-key", sentence, str(key)[:100])
            values[key] = _below(key, _decoder(hints[key]), item)
        _require_keys(required, value)
        return cls(**values)

    return decode_dataclass


@cache
def field_hints(cls: type[Any]) -> dict[str, Any]:
    """Return the annotations of a dataclass's fields, which are strings until they are resolved."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls) if field.init}


def _require_keys(names: Any, table: Mapping[str, Any]) -> None:
    for name in names:
        if name not in table:
            raise BadInput("value.missing", "is missing", name)


def _instance(hint: Any) -> Decoder:
    def decode_instance(value: Any) -> Any:
        if isinstance(hint, type) and isinstance(value, hint):
            return value
        raise _wrong(f"a {getattr(hint, '__name__', hint)}", value)

    return decode_instance

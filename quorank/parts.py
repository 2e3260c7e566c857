"""Parts are values.

Each method is a small frozen dataclass. It prints as its own spec, `PDGD(eta=0.1)`, is read back from it, and is
written in an experiment file as a table, `{ kind = "pdgd", eta = 0.1 }`, or as the bare word when nothing differs
from the defaults. A `Family` lists the parts that may stand in one place; adding a part is one file and one line.
"""

from __future__ import annotations

import ast
import dataclasses
import types
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from quorank.errors import BadInput


class Part(Protocol):
    """What every part has: a dataclass with a `kind`, the word that names it in experiment files."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


P = TypeVar("P", bound=Part)


class Family(Generic[P]):
    """The parts that may stand in one place of a federation."""

    def __init__(self, name: str, *members: type[P]) -> None:
        self.name = name
        self.members: dict[str, type[P]] = {member.kind: member for member in members}

    def read(self, spec: object, where: str) -> P:
        """A part from a table or a word of an experiment file; `where` names the place in messages."""
        if isinstance(spec, str):
            spec = {"kind": spec}
        if not isinstance(spec, Mapping):
            raise BadInput(
                f"{where}: expected a {self.name} ({', '.join(self.members)}) or a table with kind = …, got {spec!r}"
            )
        table = dict(spec)
        kind = table.pop("kind", next(iter(self.members)))
        if not isinstance(kind, str) or kind not in self.members:
            raise BadInput(
                f"{where}.kind: unknown {self.name} {kind!r}{suggest(kind, self.members)}; known: {', '.join(self.members)}"
            )
        return read_fields(self.members[kind], table, where)

    def parse(self, text: str) -> P:
        """A part from its printed form: parse(str(part)) == part."""
        by_class = {member.__name__: member for member in self.members.values()}
        try:
            call = ast.parse(text, mode="eval").body
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
                raise ValueError
            table = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
            member = by_class[call.func.id]
        except (SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
            raise BadInput(
                f"{text!r} is not a {self.name}; expected for example {next(iter(by_class))}()"
            ) from None
        return read_fields(member, table, text)


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    """The types of a class's fields; they are strings until somebody asks, and to find them takes a while."""
    return get_type_hints(cls)


def read_fields(cls: type[P], table: Mapping[str, object], where: str) -> P:
    """A dataclass from a table: unknown keys and wrong types are refused by name."""
    hints = _hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]
    values = {}
    for key, value in table.items():
        if key not in names:
            raise BadInput(
                f"{where}.{key}: unknown key {key!r}{suggest(key, names)}; known: {', '.join(names) or 'none'}"
            )
        values[key] = _convert(value, hints[key], f"{where}.{key}")
    try:
        return cls(**values)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def to_table(part: Part) -> dict[str, Any]:
    """The table that an experiment file holds for this part, complete with defaults."""
    table: dict[str, Any] = {"kind": part.kind} if hasattr(part, "kind") else {}
    for f in dataclasses.fields(part):
        value = getattr(part, f.name)
        if dataclasses.is_dataclass(value):
            value = to_table(value)  # type: ignore[arg-type]
        if value is not None:
            table[f.name] = list(value) if isinstance(value, tuple) else value
    return table


def suggest(word: object, known: object) -> str:
    """', did you mean …?' when the word is close to a known one."""
    close = get_close_matches(str(word), [str(k) for k in known], n=1)  # type: ignore[attr-defined]
    return f" (did you mean {close[0]!r}?)" if close else ""


_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def _convert(value: object, hint: Any, where: str) -> object:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        if value is None:
            return None
        for option in options[:-1]:
            try:
                return _convert(value, option, where)
            except BadInput:
                continue
        return _convert(value, options[-1], where)
    if origin is Literal:
        choices = get_args(hint)
        if any(type(value) is type(choice) and value == choice for choice in choices):
            return value
        raise BadInput(
            f"{where}: expected one of {', '.join(map(repr, choices))}, got {value!r}{suggest(value, choices)}"
        )
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise BadInput(f"{where}: expected a list, got {value!r}")
        return tuple(_convert(v, get_args(hint)[0], where) for v in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise BadInput(f"{where}: {str(value)[:12]}… is too large a number") from None
    if (
        isinstance(hint, type)
        and isinstance(value, hint)
        and not (hint is not bool and isinstance(value, bool))
    ):
        return value
    raise BadInput(f"{where}: expected {_WORDS.get(hint, hint)}, got {value!r}")

"""Experiment files as tables that know where each of their keys was written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorank.errors import BadInput

_NAME = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_\-]+)"""
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_HEADER = re.compile(rf"^\s*\[\s*({_DOTTED})\s*\]\s*(#.*)?$")
_KEY = re.compile(rf"^\s*({_DOTTED})\s*=")


@dataclass(frozen=True)
class Document:
    """The tables of an experiment file, and a place for every dotted key: "name.toml line 7", or "--set"."""

    tables: dict[str, Any]
    name: str
    places: Mapping[str, str] = field(default_factory=dict)

    def locate(self, message: str) -> str:
        """The message with the place of the key that it starts with, as exactly as it is known."""
        path, _, sentence = message.partition(": ")
        first_word = sentence.split(" ", 1)[0].rstrip(":")
        below = (key for key in self.places if key.startswith(f"{path}."))
        for key in (f"{path}.{first_word}", path, *below, *_parents(path)):
            if key in self.places:
                return f"{self.places[key]}: {message}"
        return f"{self.name}: {message}"


def read_document(path: Path) -> Document:
    """A TOML file; BadInput names the file and the line where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such experiment file") from None
    except IsADirectoryError:
        raise BadInput(
            f"{path}: this is a folder; expected an experiment file such as experiment.toml"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read as text ({error})") from None
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{name}: not a TOML file: {error}") from None
    return Document(tables, name, _places(text, name))


def set_value(document: Document, key: str, value: Any, place: str) -> Document:
    """The document with one key changed; `place` says where that was asked for."""
    tables = _copy(document.tables)
    put(tables, key, value)
    return Document(tables, document.name, {**document.places, key: place})


def set_values(document: Document, assignments: Sequence[str]) -> Document:
    """The document with `a.b=value` assignments from the command line; values are TOML, bare words are texts."""
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip()
        if not equals or not re.fullmatch(r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*", key):
            raise BadInput(
                f"--set {assignment}: expected KEY=VALUE, for example --set federation.clients=100"
            )
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        document = set_value(document, key, value, f"--set {assignment}")
    return document


def put(tables: dict[str, Any], dotted: str, value: Any) -> None:
    """Set a dotted key; a word in its way (server = "momentum") becomes the table that it stands for."""
    *path, last = dotted.split(".")
    for key in path:
        inner = tables.get(key, {})
        tables[key] = tables = {"kind": inner} if isinstance(inner, str) else inner
        if not isinstance(inner, dict | str):
            raise BadInput(f"{dotted}: {key} is {inner!r}, which has no keys")
    tables[last] = value


def write_toml(tables: Mapping[str, Any]) -> str:
    """TOML text of tables whose values are scalars, lists and inline tables."""
    lines = [f"{_name(k)} = {_value(v)}" for k, v in tables.items() if not isinstance(v, Mapping)]
    for section, table in tables.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{_name(section)}]", *(f"{_name(k)} = {_value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _name(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_\-]+", key) else _text(key)


def _text(value: str) -> str:
    """A quoted text, with what TOML does not take as it is written as \\uXXXX or \\UXXXXXXXX."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    codes = (
        c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) <= 0xFFFF else f"\\U{ord(c):08x}"
        for c in escaped
    )
    return '"' + "".join(codes) + '"'


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_name(k)} = {_value(v)}" for k, v in value.items()) + " }"
    return repr(value)


def _copy(tables: dict[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, dict) else v for k, v in tables.items()}


def _parents(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:i]) for i in range(len(parts) - 1, 0, -1)]


def _places(text: str, name: str) -> dict[str, str]:
    places: dict[str, str] = {}
    section, quotes = "", ""
    for number, line in enumerate(text.split("\n"), start=1):
        if quotes:  # inside a text of several lines
            quotes = "" if quotes in line else quotes
            continue
        if header := _HEADER.match(line):
            section = _plain(header.group(1)) + "."
            places.setdefault(section[:-1], f"{name} line {number}")
        elif key := _KEY.match(line):
            places.setdefault(section + _plain(key.group(1)), f"{name} line {number}")
            quotes = next((q for q in ('"""', "'''") if line.count(q) == 1), "")
    return places


def _plain(dotted: str) -> str:
    """`"a" . b` → a.b"""
    return ".".join(word.strip("\"'") for word in re.findall(_NAME, dotted))

"""Experiment files as tables that know where each of their keys was written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorank.errors import BadInput

_HEADER = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"""^\s*(?:"([^"]+)"|'([^']+)'|([A-Za-z0-9_\-.]+))\s*=""")


@dataclass(frozen=True)
class Document:
    """The tables of an experiment file, and a place for every dotted key: "name.toml line 7", or "--set"."""

    tables: dict[str, Any]
    name: str
    places: Mapping[str, str] = field(default_factory=dict)

    def locate(self, message: str) -> str:
        """The message with the place of the key that it starts with, as exactly as it is known."""
        path, _, sentence = message.partition(": ")
        first_word = sentence.split(" ", 1)[0]
        for key in (f"{path}.{first_word}", path, *_parents(path)):
            if key in self.places:
                return f"{self.places[key]}: {message}"
        return f"{self.name}: {message}"


def read_document(path: Path) -> Document:
    """A TOML file; BadInput names the file and the line where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
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


def set_values(document: Document, assignments: Sequence[str]) -> Document:
    """The document with `a.b=value` assignments from the command line; values are TOML, bare words are texts."""
    tables, places = _copy(document.tables), dict(document.places)
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
        put(tables, key, value)
        places[key] = f"--set {assignment}"
    return Document(tables, document.name, places)


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
            lines += ["", f"[{section}]", *(f"{_name(k)} = {_value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _name(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_\-]+", key) else f'"{key}"'


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
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
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            section = header.group(1).replace(" ", "") + "."
            places.setdefault(section[:-1], f"{name} line {number}")
        elif key := _KEY.match(line):
            places.setdefault(section + next(g for g in key.groups() if g), f"{name} line {number}")
    return places

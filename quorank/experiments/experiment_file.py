"""Experiment files: TOML tables in which every key knows the line that it was written on.

`read_experiment_file` reads one, `set_values` applies `--set KEY=VALUE`, `write_toml` writes one back. The files that
come with Quorank lie in `files/`; `find_experiment_file` finds them by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, brief, require, suggest
from quorank.files.documents import DEEPEST, LONGEST_STRING, parse_toml, read_toml_text
from quorank.parts import to_table

SHIPPED = Path(__file__).parent / "files"
_NAME = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_\-]+)"""
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_HEADER = re.compile(rf"^\s*\[\s*({_DOTTED})\s*\]\s*(#.*)?$")
_KEY = re.compile(rf"^\s*({_DOTTED})\s*=")


@dataclass(frozen=True)
class ExperimentFile:
    """Tables of an experiment file, and the place of every dotted key: "name.toml line 7", or "--set KEY=VALUE"."""

    tables: dict[str, Any]
    name: str
    places: Mapping[str, str] = field(default_factory=dict)

    def located(self, error: BadInput) -> BadInput:
        """Return the error, whose `where` is a dotted key, with the place of that key before it."""
        return error.at(self.place_of(error.where))

    def place_of(self, key: str) -> str:
        """Return the place of a dotted key; else of a key below it, of its nearest parent, or the file's name."""
        parts = key.split(".")
        below = (known for known in self.places if known.startswith(f"{key}."))
        parents = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
        return next((self.places[k] for k in (key, *below, *parents) if k in self.places), self.name)


def shipped_names() -> list[str]:
    """Return the names of the shipped files that `quorank run` takes, in order; a silo group's is for `quorank silo`."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml") if not path.stem.startswith("silo-"))


def find_experiment_file(name: Path | str) -> ExperimentFile:
    """Read an experiment file, else the shipped one of that name (`fpdgd`, `recommended`).

    Raises:
        BadInput: `file.missing`, with the names of the shipped files, or what `read_experiment_file` refuses.
    """
    path, shipped = Path(name), SHIPPED / f"{name}.toml"
    if not path.is_file() and shipped.is_file():
        return read_experiment_file(shipped)
    if not (path.exists() or path.is_symlink()):
        known = shipped_names()
        sentence = f"no such experiment file{suggest(path.name, known)}; these are shipped: {', '.join(known)}"
        raise BadInput("file.missing", sentence, str(path))
    return read_experiment_file(path)


def with_seed(file: ExperimentFile, seed: int, place: str) -> ExperimentFile:
    """Return the file with another seed, in place of those that its grid lists; `place` says where that was asked for."""
    changed = set_value(file, "seed", seed, place)
    if isinstance(changed.tables.get("grid"), dict):
        changed.tables["grid"].pop("seed", None)
    return changed


def read_experiment_file(path: Path) -> ExperimentFile:
    """Read a TOML file; BadInput names the file, and the line where it is no TOML."""
    sentence = "this is a folder; expected an experiment file such as experiment.toml"
    require(not path.is_dir(), "file.is-folder", sentence, str(path))
    return parse_experiment_file(read_toml_text(path), str(path))


def parse_experiment_file(text: str, name: str) -> ExperimentFile:
    """Parse TOML text; `name` is what errors call it."""
    tables = parse_toml(text.replace("\r\n", "\n"), name, "experiment-file.not-toml")
    return ExperimentFile(tables, name, _places(text, name))


def set_value(file: ExperimentFile, key: str, value: Any, place: str) -> ExperimentFile:
    """Return the file with one dotted key changed; `place` says where that was asked for."""
    tables = copied(file.tables)
    set_key(tables, key, value)
    places = {known: at for known, at in file.places.items() if not known.startswith(f"{key}.")}
    return ExperimentFile(tables, file.name, {**places, key: place})


def set_values(file: ExperimentFile, assignments: Sequence[str]) -> ExperimentFile:
    """Return the file with `a.b=value` assignments applied; values are TOML, bare words are strings."""
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip()
        well_formed = equals and re.fullmatch(r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*", key)
        example = "expected KEY=VALUE, for example --set federation.clients=100"
        shown = assignment if len(assignment) <= 200 else f"{assignment[:200]}…"
        place = f"--set {shown if shown.isprintable() else brief(shown, 200)}"
        require(well_formed and key.count(".") < DEEPEST, "option.malformed", example, place)
        file = set_value(file, key, _set_to(text, place), place)
    return file


def _set_to(text: str, place: str) -> Any:
    """Return the value of an assignment: TOML, or a bare word."""
    try:
        found = parse_toml(f"value = {text}", place, "option.not-toml")
    except BadInput as error:
        if error.code != "option.not-toml":
            raise
        require(len(text) <= LONGEST_STRING, "value.out-of-range", f"a string of {len(text):,} characters", place)
        return text.strip()
    return found["value"] if set(found) == {"value"} else text.strip()


def set_key(tables: dict[str, Any], dotted: str, value: Any) -> None:
    """Set a dotted key; a word (server = "momentum") or a part in its way becomes the table that it stands for."""
    *path, last = dotted.split(".")
    for key in path:
        inner = tables.get(key, {})
        inner = to_table(inner) if hasattr(inner, "__dataclass_fields__") and not isinstance(inner, type) else inner
        tables[key] = tables = {"kind": inner} if isinstance(inner, str) else inner
        if not isinstance(inner, dict | str):
            raise BadInput("value.wrong-type", f"{key} is {brief(inner)}, which has no keys", dotted)
    tables[last] = value


def check_keys(
    table: Mapping[str, Any], known: tuple[str, ...], above: str = "", code: str = "experiment.unknown-key"
) -> None:
    """Refuse an unknown key of a section, or an unknown section."""
    for key, value in table.items():
        if key not in known:  # a suggestion takes as long as all the rest of a file
            what = "section" if isinstance(value, Mapping) and not above else "key"
            sentence = f"unknown {what} {brief(key)}{suggest(key, known)}; known: {', '.join(known)}"
            raise BadInput(code, sentence, f"{above}{key[:100]}")


def section_of(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section; an empty one where a file has none."""
    section: Mapping[str, Any] = tables.get(name, {})
    if not isinstance(section, Mapping):
        raise BadInput("experiment.not-a-section", f"expected a section [{name}], got {brief(section)}", name)
    return section


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a table by dotted keys: {"a": {"b": 1}} is {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def copied(value: Any) -> Any:
    """Copy a table with the tables in it; other values are shared."""
    return {k: copied(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def write_toml(tables: Mapping[str, Any]) -> str:
    """Write tables whose values are scalars, lists and inline tables as TOML text.

    Not tomli-w: that makes a sub-table of every part, where experiment files and run.toml have one part on one line.
    """
    lines = [f"{_name(k)} = {_value(v)}" for k, v in tables.items() if not isinstance(v, Mapping)]
    for section, table in tables.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{_name(section)}]", *(f"{_name(k)} = {_value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _name(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_\-]+", key) else _text(key)


def _text(value: str) -> str:
    r"""Quote a string, with characters that TOML does not take as \uXXXX or \UXXXXXXXX."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    codes = (c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) <= 0xFFFF else f"\\U{ord(c):08x}" for c in escaped)
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


def _places(text: str, name: str) -> dict[str, str]:
    places: dict[str, str] = {}
    section, quotes = "", ""
    for number, line in enumerate(text.split("\n"), start=1):
        if quotes:  # inside a multi-line string
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
    """Return a dotted key without quotes and blanks: `"a" . b` is a.b."""
    return ".".join(word.strip("\"'") for word in re.findall(_NAME, dotted))

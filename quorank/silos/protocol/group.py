"""Settings that the parties of a group agree on before they meet: their names, and how each field is sketched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from quorank.errors import BadInput, require
from quorank.silos.sketch.hashing import MOST_COLUMNS, MOST_ROWS

MOST_ENTRIES = 1 << 22
MOST_PARTIES = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(name: str) -> str:
    """Return a party's or a field's name, or refuse it."""
    said = f"{name!r} is no name of a party; expected 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"
    require(isinstance(name, str) and _NAME.fullmatch(name), "silo-group.bad-name", said)
    return name


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of parties, or refuse a bad or repeated one."""
    found = tuple(check_name(name) for name in names)
    require(len(set(found)) == len(found), "silo-group.repeated-name", f"a party stands twice in {', '.join(found)}")
    return found


@dataclass(frozen=True)
class Field:
    """One sketched part of a document, such as its title or its body."""

    name: str = "body"
    rows: int = 30  # z
    columns: int = 200  # w
    entries: int = 750  # αK: the most documents that an answer names for one cell

    def __post_init__(self) -> None:
        check_name(self.name)
        for what, least, most in (("rows", 1, MOST_ROWS), ("columns", 2, MOST_COLUMNS), ("entries", 1, MOST_ENTRIES)):
            value = getattr(self, what)
            said = f"the field {self.name!r} must have {least} to {most:,} {what}, got {value}"
            require(isinstance(value, int) and least <= value <= most, "value.out-of-range", said)


@dataclass(frozen=True)
class Group:
    """Parties, in the order in which their contributions enter the group key, and the fields of their documents."""

    parties: tuple[str, ...]
    fields: tuple[Field, ...] = (Field(),)
    text: str = ""  # fingerprint of the tokeniser as it acts on this machine

    def __post_init__(self) -> None:
        check_names(self.parties)
        n = len(self.parties)
        require(2 <= n <= MOST_PARTIES, "silo-group.bad-size", f"a group has 2 to {MOST_PARTIES} parties, got {n}")
        names = [field.name for field in self.fields]
        said = f"a group sketches 1 to 16 fields with different names, got {', '.join(names) or 'none'}"
        require(1 <= len(names) <= 16 and len(set(names)) == len(names), "silo-group.bad-fields", said)

    def field(self, name: str) -> Field:
        """Return the field of this name."""
        for field in self.fields:
            if field.name == name:
                return field
        known = ", ".join(field.name for field in self.fields)
        raise BadInput("silo-group.unknown-field", f"this group sketches no field {name!r}; its fields are {known}")

    def others(self, name: str) -> tuple[str, ...]:
        """Return all parties but one."""
        return tuple(party for party in self.parties if party != name)

    def check_other(self, name: str, me: str) -> None:
        """Refuse a name that is of no party of this group but `me`."""
        require(name in self.others(me), "silo-group.unknown-party", f"{name} is no other party of this group")

    def settings(self) -> dict[str, int | str]:
        """Return what every hello states, so that parties with different settings find out by name."""
        sizes = {f"{f.name}.{size}": getattr(f, size) for f in self.fields for size in ("rows", "columns", "entries")}
        text = {"text": self.text} if self.text else {}
        return {"parties": " ".join(self.parties), **sizes, **text}


def check_settings(own: dict[str, int | str], theirs: dict[str, int | str], sender: str) -> None:
    """Refuse a party with other settings, naming the first difference."""
    for key in sorted(own.keys() | theirs.keys()):
        here, there = own.get(key, "missing"), theirs.get(key, "missing")
        said = (
            f"{sender} makes other terms of the same texts; install the same versions of Quorank and PyStemmer at both"
        )
        require(key != "text" or here == there, "silo-group.other-tokeniser", said)
        said = f"{sender} has {key} = {there} and this party {here}; settle on the same settings and start again"
        require(type(here) is type(there) and here == there, "silo-group.other-settings", said)

"""What the parties of a group settle before they meet: who they are, and how they sketch each field of a document."""

from __future__ import annotations

from dataclasses import dataclass

from quorank.errors import BadInput, require
from quorank.silos.protocol.messages import MOST_PARTIES, check_name
from quorank.silos.sketch.hashing import MOST_COLUMNS, MOST_ROWS

MOST_ENTRIES = 1 << 22


@dataclass(frozen=True)
class Field:
    """One sketched part of a document, such as its title or its body."""

    name: str = "body"
    rows: int = 30  # z
    columns: int = 200  # w
    entries: int = 750  # αK: the most documents that an answer names for one cell

    def __post_init__(self) -> None:
        check_name(self.name)
        for what, value, least, most in (
            ("rows", self.rows, 1, MOST_ROWS),
            ("columns", self.columns, 2, MOST_COLUMNS),
            ("entries", self.entries, 1, MOST_ENTRIES),
        ):
            require(
                isinstance(value, int) and least <= value <= most,
                f"the field {self.name!r} must have {least} to {most:,} {what}, got {value}",
            )


@dataclass(frozen=True)
class Group:
    """The parties, in the order in which their contributions enter the group key, and the fields of their documents."""

    parties: tuple[str, ...]
    fields: tuple[Field, ...] = (Field(),)

    def __post_init__(self) -> None:
        for name in self.parties:
            check_name(name)
        require(
            2 <= len(self.parties) <= MOST_PARTIES,
            f"a group has 2 to {MOST_PARTIES} parties, got {len(self.parties)}",
        )
        require(
            len(set(self.parties)) == len(self.parties), f"a party stands twice in {', '.join(self.parties)}"
        )
        names = [field.name for field in self.fields]
        require(
            1 <= len(names) <= 16 and len(set(names)) == len(names),
            f"a group sketches 1 to 16 fields with different names, got {', '.join(names) or 'none'}",
        )

    def field(self, name: str) -> Field:
        """The field of this name."""
        for field in self.fields:
            if field.name == name:
                return field
        known = ", ".join(field.name for field in self.fields)
        raise BadInput(f"this group sketches no field {name!r}; its fields are {known}")

    def others(self, name: str) -> tuple[str, ...]:
        """Everybody but one."""
        return tuple(party for party in self.parties if party != name)

    def settings(self) -> dict[str, int | str]:
        """What every hello states: two parties that would not understand each other find out by name."""
        table: dict[str, int | str] = {"parties": " ".join(self.parties)}
        for field in self.fields:
            table |= {
                f"{field.name}.rows": field.rows,
                f"{field.name}.columns": field.columns,
                f"{field.name}.entries": field.entries,
            }
        return table


def check_settings(own: dict[str, int | str], theirs: dict[str, int | str], sender: str) -> None:
    """Refuse a party with other settings, naming the first difference."""
    for key in sorted(own.keys() | theirs.keys()):
        here, there = own.get(key, "missing"), theirs.get(key, "missing")
        require(
            type(here) is type(there) and here == there,
            f"{sender} has {key} = {there} and this party {here}; settle on the same settings and start again",
        )

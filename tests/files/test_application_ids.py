"""SQLite application ids of Quorank's files."""

from __future__ import annotations

import re
from pathlib import Path

import quorank
from quorank.search.index.writing import INDEX
from quorank.service.store.sqlite import APPLICATION

_ID = re.compile(r"(?:FileKind\(\s*|APPLICATION = )(0x[0-9A-Fa-f]{8})")


def test_no_two_kinds_of_file_share_an_application_id() -> None:
    """A file of one kind would be opened, and changed, as one of the other."""
    package = Path(quorank.__file__).parent
    found = [int(number, 16) for path in package.rglob("*.py") for number in _ID.findall(path.read_text())]
    assert {INDEX.application, APPLICATION} <= {*found} and len(found) >= 6
    assert len({*found}) == len(found)

"""Searches of a party's own people: a folder where the process that plays the party finds and answers them.

A search is a file that appears whole, `NAME.json`; its result another, `NAME.found.json`, which appears when the search is
gone. Both are for their owner's eyes, inside the party's folder of mode 0700. So a command can ask while another process
plays the party, or play it itself.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quorank.errors import BadInput
from quorank.files.documents import ANYTHING, Number, Table, Text, Whole, read_json
from quorank.protocol.certificates import write_private

MOST_WAITING = 64
"""Searches that are looked at in one go."""
_SHAPE = Table(
    {"name": Text(longest=64), "query": Text(longest=10_000), "top": Whole(1, 1000), "patience": Number()}, {}
)


@dataclass(frozen=True)
class SearchRequest:
    """One search: the query, how many documents are wanted, and for how many seconds others are waited for."""

    name: str
    query: str
    top: int = 10
    patience: float = 60.0


@dataclass(frozen=True)
class FolderDesk:
    """The searches of one party's folder."""

    folder: Path

    def leave(self, query: str, top: int, patience: float) -> str:
        """Leave a search; returns the name that its result will have."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        request = SearchRequest(secrets.token_hex(8), query, top, patience)
        write_private(self.folder / f"{request.name}.json", json.dumps(asdict(request)).encode())
        return request.name

    def wanted(self) -> list[SearchRequest]:
        """Searches that wait, oldest name first; a file that is none is passed over."""
        if not self.folder.is_dir():
            return []
        found = []
        files = sorted(file for file in self.folder.glob("*.json") if not file.name.endswith(".found.json"))
        for file in files[:MOST_WAITING]:
            with contextlib.suppress(BadInput, OSError):
                request = SearchRequest(**read_json(file, _SHAPE))
                if file.stem == request.name:
                    found.append(request)
        return found

    def hand_out(self, name: str, found: Mapping[str, Any]) -> None:
        """Write the result of a search, then take the search away."""
        write_private(self.folder / f"{name}.found.json", json.dumps(found).encode())
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def fetch(self, name: str) -> dict[str, Any] | None:
        """Fetch a result, once; None while there is none."""
        file = self.folder / f"{name}.found.json"
        if not file.is_file():
            return None
        found: dict[str, Any] = read_json(file, ANYTHING)
        file.unlink(missing_ok=True)
        return found

    def withdraw(self, name: str) -> None:
        """Take a search back, and its result if it has come meanwhile."""
        for file in (f"{name}.json", f"{name}.found.json"):
            (self.folder / file).unlink(missing_ok=True)

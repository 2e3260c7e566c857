"""Searches of a party's own people: files in a folder, from which the process that runs the party takes them.

A search is a file `NAME.json` that appears atomically; its result is another, `NAME.found.json`, which replaces it. Both
are in the party's folder of mode 0700. A command can therefore ask while another process runs the party.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from quorank.errors import BadInput
from quorank.files.codec import Length, Range
from quorank.files.documents import json_bytes, read_json
from quorank.protocol.certificates import write_private

MOST_WAITING = 64
"""Limit on the searches that are read at once."""


@dataclass(frozen=True)
class SearchRequest:
    """Search of a party's own people."""

    name: Annotated[str, Length(64)]
    query: Annotated[str, Length(10_000)]
    top: Annotated[int, Range(1, 1000)] = 10  # documents wanted
    patience: float = 60.0  # time to wait for answers, seconds


@dataclass(frozen=True)
class FolderDesk:
    """Searches in one party's folder."""

    folder: Path

    def leave(self, query: str, top: int, patience: float) -> str:
        """Add a search and return its name."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        request = SearchRequest(secrets.token_hex(8), query, top, patience)
        write_private(self.folder / f"{request.name}.json", json_bytes(request))
        return request.name

    def wanted(self) -> list[SearchRequest]:
        """Return the pending searches in the order of their names; other files are skipped."""
        if not self.folder.is_dir():
            return []
        found = []
        files = sorted(file for file in self.folder.glob("*.json") if not file.name.endswith(".found.json"))
        for file in files[:MOST_WAITING]:
            with contextlib.suppress(BadInput, OSError):
                request = read_json(file, SearchRequest)
                if file.stem == request.name:
                    found.append(request)
        return found

    def hand_out(self, name: str, found: Mapping[str, Any]) -> None:
        """Write the result of a search, then delete the search."""
        write_private(self.folder / f"{name}.found.json", json_bytes(dict(found)))
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def fetch(self, name: str) -> dict[str, Any] | None:
        """Take a result; None while it is pending."""
        file = self.folder / f"{name}.found.json"
        if not file.is_file():
            return None
        found: dict[str, Any] = read_json(file)
        file.unlink(missing_ok=True)
        return found

    def withdraw(self, name: str) -> None:
        """Delete a search and its result."""
        for file in (f"{name}.json", f"{name}.found.json"):
            (self.folder / file).unlink(missing_ok=True)

"""A source of documents in a package of its own: each line of a todo.txt is a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from quorank.errors import BadInput
from quorank.files.atomic import read_whole
from quorank.search.sources.source import (
    FoundDocument,
    PathSource,
    Scanned,
    SkippedDocument,
    UnchangedDocument,
    plain_text,
    unchanged_below,
)


@dataclass(frozen=True)
class TodoSource(PathSource):
    """Lines of a file in the format of todo.txt; those that are done begin with `x `."""

    kind: ClassVar[str] = "todo"

    path: str = "~/todo.txt"
    done: bool = False  # also what is done

    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield a document for each line; its key is its text, so that lines may be sorted."""
        path = self.place
        try:
            content = read_whole(path, 1_000_000, code="file.unreadable")
            modified = path.stat().st_mtime
        except (BadInput, OSError) as error:
            yield SkippedDocument("", getattr(error, "code", "file.unreadable"), f"the list cannot be read ({error})")
            yield from unchanged_below(known)
            return
        times: Counter[str] = Counter()
        for line in plain_text(content.decode(errors="replace")).splitlines():
            if line.strip() and (self.done or not line.startswith("x ")):
                times[line] += 1
                key = f"{line} {times[line]}"
                if key in known:
                    yield UnchangedDocument(key)
                else:
                    yield FoundDocument(key, "1", self.path, line, "", line, modified)

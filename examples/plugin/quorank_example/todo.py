"""A source of documents in a package of its own: each line of a todo.txt is a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from quorank.errors import BadInput
from quorank.files.atomic import read_whole
from quorank.search.sources.file_names import absolute_path, keep_path, stored_path
from quorank.search.sources.source import (
    FoundDocument,
    Scanned,
    SkippedDocument,
    Source,
    UnchangedDocument,
    plain_text,
    unchanged_below,
)


@dataclass(frozen=True)
class TodoSource(Source):
    """Lines of a file in the format of todo.txt; those that are done begin with `x `."""

    kind: ClassVar[str] = "todo"

    path: str = "~/todo.txt"
    done: bool = False  # also what is done

    def __post_init__(self) -> None:
        keep_path(self, "path")

    @property
    def name(self) -> str:
        """The path of the file."""
        return self.path

    def watch_paths(self) -> tuple[Path, ...]:
        """Return the file."""
        return (absolute_path(self.path),)

    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield a document for each line; its key is its text, so that lines may be sorted."""
        path = absolute_path(self.path)
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
                    yield FoundDocument(key, "1", stored_path(str(path)), line, "", line, modified)

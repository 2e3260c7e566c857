"""Page of the sources: indexed documents, progress of scans, skipped documents with reasons; adding and removing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from quorank.errors import BadInput, first_line, require
from quorank.search.pages.bodies import read_integer
from quorank.search.pages.drawing import draw
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import PersonalSearch
from quorank.search.sources import Source, source_at
from quorank.search.sources.browsers import chromium_profiles, firefox_profiles

SHOWN_LINES = 100
"""Lines of the log of a source on the page."""
NOTICES = {
    "added": "Added. It is being read now, and can be searched meanwhile.",
    "removed": "Removed, and its documents are erased from the index. Your own files are unchanged.",
    "reading": "Reading it again.",
}


@dataclass(frozen=True)
class SourcesPage:
    """Handlers of the page at `/sources`."""

    search: PersonalSearch
    upkeep: Upkeep

    def page(self, request: Request) -> Response:
        """Draw the whole page."""
        return self.draw(notice=NOTICES.get(request.query_params.get("done", ""), ""))

    def draw(self, *, notice: str = "", problem: BadInput | None = None, status: int = 200, path: str = "") -> Response:
        """Draw the page, with the problem of a path to be added."""
        values = self._values() | {"notice": notice, "problem": problem, "path": path}
        return draw("sources.html.jinja", status, here="sources", suggestions=self._suggestions(), **values)

    def fragment(self, request: Request) -> Response:
        """Draw only the list of sources, for updates during a scan."""
        return draw("source_list.html.jinja", **self._values())

    def _values(self) -> dict[str, Any]:
        progress, waiting = self.upkeep.progress, self.upkeep.waiting
        rows = [self._row(stored, progress, waiting) for stored in self.search.index.sources()]
        return {"rows": rows, "reading": progress is not None or bool(waiting)}

    def _row(self, stored: Any, progress: Any, waiting: Sequence[int]) -> dict[str, Any]:
        log = self.search.index.skipped(stored.id)
        return {
            "source": stored,
            "progress": progress if progress is not None and progress.source == stored.id else None,
            "waits": stored.id in waiting,
            "problem": self.upkeep.problems.get(stored.id, ""),
            "skipped": len(log),
            "groups": Counter(entry.code for entry in log).most_common(),
            "log": log[:SHOWN_LINES],
        }

    def _suggestions(self) -> list[dict[str, str]]:
        """Return the browser profiles on this machine that are not sources yet."""
        known = {str(stored.table.get("path")) for stored in self.search.index.sources()}
        found = [("Firefox", path) for path in firefox_profiles()] + [
            ("Chromium", path) for path in chromium_profiles()
        ]
        return [{"name": name, "path": str(path)} for name, path in found if str(path) not in known]

    # actions

    def add(self, fields: dict[str, str]) -> Response:
        """Add the source of a path, of the kind that its content shows."""
        path = fields.get("path", "").strip()
        try:
            require(path, "path.missing", "write the path of a folder, a mailbox or a browser's profile")
            require("\0" not in path, "path.malformed", "this is not a path")
            self.add_source(source_at(path))
        except (BadInput, OSError) as error:
            problem = error if isinstance(error, BadInput) else BadInput("path.unreadable", first_line(error), path)
            return self.draw(problem=problem, status=400, path=path)
        return RedirectResponse("/sources?done=added", status_code=303)

    def add_source(self, source: Source) -> int:
        """Add a source, scan it, and watch it."""
        with self.upkeep.writing():
            number = self.search.add(source)
        self.upkeep.scan_soon(number)
        self.upkeep.watch_again()
        return number

    def remove(self, fields: dict[str, str]) -> Response:
        """Remove a source and erase its documents."""
        number = read_integer(fields.get("source", ""), "source")
        with self.upkeep.writing():
            self.search.remove(number)
        self.upkeep.watch_again()
        return RedirectResponse("/sources?done=removed", status_code=303)

    def read_again(self, fields: dict[str, str]) -> Response:
        """Scan a source again."""
        number = read_integer(fields.get("source", ""), "source")
        self.search.source(number)
        self.upkeep.scan_soon(number)
        return RedirectResponse("/sources?done=reading", status_code=303)

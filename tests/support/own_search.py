"""A made-up person's search with its pages, in this process or served, and how their browser and programs ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from real_services import until
from starlette.testclient import TestClient

from quorank.errors import BadInput
from quorank.search.pages.app import search_app
from quorank.search.pages.security import PageGate
from quorank.search.pages.server import SearchServer
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import PersonalSearch
from quorank.search.sources import FilesSource
from quorank.search.sources.source import FoundDocument

TOKEN, PORT = "token-of-a-person-0123456789abcdef", 8765
ADDRESS = f"http://127.0.0.1:{PORT}"
SCRIPT = "<script>window.broken = 1</script>"
NOTES = {
    "garden/roses.md": f"# Roses {SCRIPT}\n\nPlant roses in spring, <img src=x onerror=window.broken=1> and water them.",
    "garden/tulips.txt": "Tulips and roses like the sun.",
    "money/budget.txt": "The budget for the garden: roses 20, tulips 10.",
    "money/old budget.txt": "An older budget, without roses.",
    "travel.html": "<title>Travel to Lisbon</title><p>Tickets, hotel, and a garden with roses.</p>",
}


def write_notes(folder: Path) -> Path:
    """The files of the person."""
    for name, text in NOTES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def browsed(address: str, title: str) -> FoundDocument:
    """A page of a browser's history, whatever its address is."""
    return FoundDocument(address, "1", address, title, "", f"roses at {address}", 1.7e9)


def nothing_opened() -> AbstractContextManager[Any]:
    """Pages that hand no file to the system's program."""
    return mock.patch("quorank.search.pages.changes.open_document", return_value="")


class OwnSearch:
    """A search over the person's notes, its application, and a browser that has the cookie."""

    def __init__(self, folder: Path, opened: PersonalSearch) -> None:
        self.notes, self.search = folder / "notes", opened
        self.upkeep = Upkeep(opened)
        self.app = search_app(self.upkeep, PageGate(TOKEN, PORT))
        self.browser = self.client(accept="text/html")
        self.browser.get(f"/?token={TOKEN}")
        self.program = self.client(authorization=f"Bearer {TOKEN}")

    def client(self, **headers: str) -> TestClient:
        return TestClient(self.app, base_url=ADDRESS, follow_redirects=False, headers=headers)

    def add(self, things: list[FoundDocument] | None = None) -> int:
        """The notes as a source, or things as a history of Firefox."""
        if things is None:
            number = self.search.add(FilesSource(str(write_notes(self.notes))))
            self.search.update(number)
            return number
        number = self.search.index.add_source({"kind": "firefox", "path": "/nowhere"}, "Firefox")
        self.search.index.update(number, things)
        return number

    def submit(self, target: str, /, **fields: Any) -> Any:
        """A form of one of the pages."""
        return self.browser.post(target, data=fields, headers={"origin": ADDRESS})

    def document(self, name: str) -> int:
        """The id of a note."""
        label = self.search.index.label(1, name)
        assert label is not None, name
        return label[0]


@contextmanager
def own_search(folder: Path) -> Iterator[OwnSearch]:
    """A search in a folder of its own."""
    with PersonalSearch.open(folder / "home") as opened, nothing_opened():
        yield OwnSearch(folder, opened)


@contextmanager
def served_search(folder: Path) -> Iterator[tuple[PersonalSearch, SearchServer]]:
    """The same on a real port, with what is done in the background."""
    notes = write_notes(folder / "notes")
    with PersonalSearch.open(folder / "home") as opened, nothing_opened():
        opened.add(FilesSource(str(notes)))
        with SearchServer.serve(opened) as server:
            until(lambda: opened.index.count() == len(NOTES) and not server.upkeep.waiting and is_idle(opened))
            yield opened, server


def is_idle(search: PersonalSearch) -> bool:
    """Return whether nothing is being written to the search."""
    try:
        with search.home.writing():
            return True
    except BadInput:
        return False

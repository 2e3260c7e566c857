"""Server of a person's pages, on the loopback interface, with a token that is stored in the folder."""

from __future__ import annotations

import re
import secrets
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from quorank.errors import BadInput
from quorank.files.atomic import read_whole, write_whole
from quorank.kernels.process import interruptible
from quorank.search.home import SearchHome
from quorank.search.pages.app import search_app
from quorank.search.pages.security import PageGate
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import PersonalSearch
from quorank.service.dashboard.loopback_server import loopback_socket, served

TOKEN = "page.token"
LOOK_SECONDS = 0.2
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,64}")


@dataclass(frozen=True, eq=False)
class SearchServer:
    """Pages of an open search, and their background work."""

    upkeep: Upkeep
    token: str = field(repr=False)
    port: int
    gate: PageGate = field(repr=False)

    @classmethod
    @contextmanager
    def serve(
        cls, search: PersonalSearch, port: int = 0, *, say: Callable[[str], object] = lambda sentence: None
    ) -> Iterator[SearchServer]:
        """Serve the pages by separate threads inside the block, scan sources, and take part; the search stays open.

        Args:
            search: An open search.
            port: Loopback port; 0 takes any.
            say: Called with messages for the person.
        """
        with loopback_socket(port) as bound, closing(Upkeep(search, say=say)) as upkeep:
            token, number = page_token(search.home), int(bound.getsockname()[1])
            server = cls(upkeep, token, number, PageGate(token, number))
            with served(search_app(upkeep, server.gate), bound):
                upkeep.start()
                yield server

    @property
    def address(self) -> str:
        """The address without the token."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def url(self) -> str:
        """The address that opens the page in a browser, for its owner's eyes."""
        return f"{self.address}?token={self.token}"

    def open_browser(self) -> None:
        """Open the page in a browser by an address without the token: other accounts can read a command line."""
        webbrowser.open(f"{self.address}?code={self.gate.token.issue_code()}")


def page_token(home: SearchHome) -> str:
    """Return the token of a search's pages, created once and stored in a private file."""
    path = home.folder / TOKEN
    with suppress(BadInput, UnicodeDecodeError):
        found = read_whole(path, 200).decode("ascii").strip()
        if _TOKEN.fullmatch(found):
            return found
    made = secrets.token_urlsafe(32)
    write_whole(path, made, private=True)
    return made


def serve_forever(folder: Path | str | None, port: int, *, browser: bool, say: Callable[[str], object]) -> None:
    """Serve the pages of a folder until the process is interrupted or terminated."""
    with (
        PersonalSearch.open(folder) as search,
        SearchServer.serve(search, port, say=say) as server,
        interruptible() as is_interrupted,
    ):
        say(f"your search: {server.url}")
        say("this address is yours alone; press Ctrl-C to stop")
        if browser:
            server.open_browser()
        while not is_interrupted():
            time.sleep(LOOK_SECONDS)

"""Changes that a person requests by a form of a page, and a program by a JSON object.

Each is a dataclass of the request's fields. `apply` makes the change and returns the result for programs, and the key of
the message that the page shows after a form.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol
from urllib.parse import parse_qsl

from starlette.requests import Request

from quorank.errors import BadInput, first_line, require
from quorank.files.codec import Length, Range, decode
from quorank.files.documents import parse_json
from quorank.search.index.query import LONGEST_QUERY
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import PersonalSearch
from quorank.search.sources import source_at
from quorank.search.sources.file_names import opened_path

MESSAGES = {
    "opened": "Opened with the system's program.",
    "forgotten": "Forgotten: it is erased from the index for good.",
    "query": "The choices for this query are forgotten.",
    "everything": "Everything is forgotten: documents, sources, choices, and the device.",
    "reset": "All choices are forgotten; the shipped ranker is in use again.",
    "joined": "Joined. Nothing is sent until you agree to take part.",
    "agreed": "You take part. All future releases are listed below.",
    "paused": "Paused: from now on nothing leaves this machine.",
    "asked": "The service was contacted.",
    "left": "Withdrawn: the service confirmed it, and the device's data is erased.",
    "leaving": "The service has your request and will confirm it. Nothing is sent any more.",
    "not-reached": "Your request is stored, and nothing is sent any more; the service gets it as soon as it is reached.",
    "added": "Added. It is being read now, and can be searched meanwhile.",
    "removed": "Removed, and its documents are erased from the index. Your own files are unchanged.",
    "reading": "Reading it again.",
}
MOST_BYTES = 1 << 16
"""Maximum size of a body."""
MOST_FIELDS = 50
_WEB = re.compile(r"https?://[^\s\x00-\x1f\"<>\\^`{|}]+", re.IGNORECASE)
RUN_BY_OPENING = frozenset((
    ".app", ".appimage", ".bat", ".cmd", ".com", ".command", ".cpl", ".desktop", ".exe", ".hta", ".jar", ".jse", ".lnk",
    ".msi", ".pif", ".ps1", ".reg", ".run", ".scf", ".scr", ".sh", ".url", ".vbe", ".vbs", ".workflow", ".wsf", ".wsh",
))  # fmt: skip
"""Endings of files that the system may run instead of showing them; their folder is opened instead."""
Number = Annotated[int, Range(0, 2**53)]
Outcome = tuple[dict[str, Any], str]


class Pages(NamedTuple):
    """Search whose pages are served."""

    search: PersonalSearch
    upkeep: Upkeep


class Change(Protocol):
    """Change with the fields of its request."""

    def apply(self, pages: Pages) -> Outcome: ...


@dataclass(frozen=True)
class Choose:
    """Learning from a result that a program opens."""

    token: Annotated[str, Length(100)]
    document: Number

    def apply(self, pages: Pages) -> Outcome:
        return {"path": pages.search.choose(self.token, self.document)}, ""


@dataclass(frozen=True)
class Open(Choose):
    """Opening of a result with the system's program, and learning from it."""

    def apply(self, pages: Pages) -> Outcome:
        path, sentence = pages.search.choose(self.token, self.document), ""
        pages.upkeep.contact_soon()
        if web_address(path) is None:
            sentence = open_document(pages.search, self.document)
        return {"sentence": sentence}, "opened" if sentence else ""


@dataclass(frozen=True)
class Forget:
    """Erasure of a document, of the choices for a query, or of everything."""

    document: Number | None = None
    query: Annotated[str, Length(LONGEST_QUERY)] | None = None
    all: bool = False
    sure: bool = True

    def __post_init__(self) -> None:
        given = sum((self.document is not None, self.query is not None, self.all))
        sentence = 'expected one of {"document": N}, {"query": TEXT} and {"all": true}'
        require(given == 1, "request.malformed", sentence)

    def apply(self, pages: Pages) -> Outcome:
        if self.query is not None:
            return {"choices": pages.search.forget_query(self.query)}, "query"
        if self.document is not None:
            with pages.upkeep.writing():
                pages.search.forget_documents([self.document])
            return {"documents": 1}, "forgotten"
        _require_sure(self.sure)
        with pages.upkeep.writing():
            pages.search.forget_all()
        pages.upkeep.watch_again()
        return {"all": True}, "everything"


@dataclass(frozen=True)
class Reset:
    """Erasure of all choices."""

    sure: bool = True

    def apply(self, pages: Pages) -> Outcome:
        _require_sure(self.sure)
        return {"choices": pages.search.reset()}, "reset"


@dataclass(frozen=True)
class Join:
    """Acceptance of an invitation."""

    invitation: Annotated[str, Length(4096)] = ""  # path of the file

    def apply(self, pages: Pages) -> Outcome:
        found = pages.search.membership.join(_checked_path(self.invitation))
        pages.upkeep.contact_soon()
        return found, "joined"


@dataclass(frozen=True)
class Consent:
    """Giving or withdrawal of consent."""

    given: bool

    def apply(self, pages: Pages) -> Outcome:
        pages.search.membership.consent(self.given)
        pages.upkeep.contact_soon()
        return pages.search.membership.status() or {}, "agreed" if self.given else "paused"


@dataclass(frozen=True)
class Sync:
    """Contact with the service now."""

    def apply(self, pages: Pages) -> Outcome:
        require(pages.search.membership.joined, "device.missing", "this search has not joined a federation")
        pages.upkeep.contact(force=True)
        last = pages.upkeep.last_contact
        return ({} if last is None else {"outcome": last.outcome, "sentence": last.sentence}), "asked"


@dataclass(frozen=True)
class Leave:
    """Withdrawal from the federation."""

    sure: bool = True

    def apply(self, pages: Pages) -> Outcome:
        _require_sure(self.sure)
        report = pages.search.membership.leave()
        pages.upkeep.contact_soon()
        return report.table(), report.outcome if report.outcome in ("left", "leaving") else "not-reached"


@dataclass(frozen=True)
class AddSource:
    """Adding of the source at a path, of the kind that its content shows."""

    path: str

    def apply(self, pages: Pages) -> Outcome:
        path = _checked_path(self.path)
        try:
            source = source_at(path)
        except OSError as error:
            raise BadInput("path.unreadable", first_line(error), path) from None
        with pages.upkeep.writing():
            number = pages.search.add(source)
        pages.upkeep.scan_soon(number)
        pages.upkeep.watch_again()
        return {"number": number}, "added"


@dataclass(frozen=True)
class RemoveSource:
    """Removal of a source, and erasure of its documents."""

    number: Number

    def apply(self, pages: Pages) -> Outcome:
        with pages.upkeep.writing():
            removed = pages.search.remove(self.number)
        pages.upkeep.watch_again()
        return {"documents": removed}, "removed"


@dataclass(frozen=True)
class ReadSource:
    """Another scan of a source."""

    number: Number

    def apply(self, pages: Pages) -> Outcome:
        pages.search.source(self.number)
        pages.upkeep.scan_soon(self.number)
        return {}, "reading"


CHANGES: dict[str, type[Change]] = {
    "/api/choose": Choose,
    "/api/open": Open,
    "/api/forget": Forget,
    "/api/reset": Reset,
    "/api/join": Join,
    "/api/consent": Consent,
    "/api/sync": Sync,
    "/api/leave": Leave,
    "/api/add": AddSource,
    "/api/remove": RemoveSource,
    "/api/read": ReadSource,
}
"""Changes by the path of their requests."""


def _require_sure(sure: bool) -> None:
    require(sure, "request.not-sure", "this cannot be undone; tick the box that says so")


def _checked_path(text: str) -> str:
    path = text.strip()
    require(path, "path.missing", "write a path")
    require("\0" not in path, "path.malformed", "this is not a path")
    return path


# ---------------------------------------------------------------- opening of documents: by their numbers in the index


def web_address(path: str) -> str | None:
    """Return an address that may be a link, http or https; None for anything else, such as script or data."""
    return path if _WEB.fullmatch(path) else None


def local_file(search: PersonalSearch, document: int) -> Path:
    """Return the file of a document, which must exist and lie in its source."""
    source, found = search.index.document(document)
    path = Path(opened_path(found.path))
    require(path.is_absolute(), "document.no-file", "this document is not a file, and its address cannot be opened")
    gone = "this file no longer exists; the next scan removes it from the index"
    try:
        require(path.exists(), "document.gone", gone)
        inside = search.source(source).holds(path)
    except OSError:
        raise BadInput("document.gone", gone) from None
    require(inside, "document.outside", "this path leads out of its source; it is not opened")
    return path


def open_document(search: PersonalSearch, document: int) -> str:
    """Open the file of a document with the system's program; return a sentence for the person."""
    path = local_file(search, document)
    runs = path.suffix.lower() in RUN_BY_OPENING
    open_path(path.parent if runs else path)
    return "Opening it might run a program, so its folder was opened." if runs else "Opened with the system's program."


def open_path(path: Path) -> None:
    """Start the system's program for a path, without waiting for it."""
    if sys.platform == "win32":
        os.startfile(path)
        return
    name = "open" if sys.platform == "darwin" else "xdg-open"
    program = shutil.which(name)
    require(program, "system.no-opener", f"this system has no {name}; open the file yourself", f"{path}")
    assert program is not None
    quiet = subprocess.DEVNULL
    subprocess.Popen([program, path], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


# ---------------------------------------------------------------- reading of requests


async def read_body(request: Request) -> bytes:
    """Read the body of a request within the bound."""
    content = bytearray()
    async for piece in request.stream():
        content += piece
        require(len(content) <= MOST_BYTES, "request.too-large", f"more than {MOST_BYTES:,} bytes; send less")
    return bytes(content)


def parse_form(content: bytes) -> dict[str, str]:
    """Return the fields of a form; of a repeated field the last counts."""
    try:
        text = content.decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"))
    except ValueError:
        raise BadInput("request.malformed", "the fields of this form cannot be read") from None


def change_of_form(given: dict[str, str], hint: type[Any]) -> Change:
    """Return the change of a form's fields; numbers are digits, and a ticked box says `yes`."""
    values: dict[str, Any] = {}
    for field in fields(hint):
        text = given.get(field.name)
        if "bool" in field.type:
            values[field.name] = text == "yes"
        elif text is not None:
            number = "Number" in field.type and text.isascii() and text.isdecimal() and len(text) <= 15
            values[field.name] = int(text) if number else text
    found: Change = decode(hint, values)
    return found


def change_of_json(content: bytes, hint: type[Any]) -> Change:
    """Return the change of a JSON object."""
    found: Change = parse_json(content or b"{}", hint, "the request", code="request.malformed")
    return found

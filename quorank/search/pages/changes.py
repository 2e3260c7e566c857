"""Changes that a person requests by a form of a page, and a program by a JSON object.

Each is a function in `CHANGES`. Its parameters after `upkeep` are the fields of the request. It returns the result for
programs, and the key of the message that the page shows after a form.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, field, fields, make_dataclass
from functools import cache, partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints
from urllib.parse import parse_qsl

from starlette.requests import Request

from quorank.errors import BadInput, first_line, require
from quorank.files.codec import Length, Range, decode
from quorank.files.documents import parse_json
from quorank.search.index.query import LONGEST_QUERY
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import PersonalSearch
from quorank.search.sources import source_at
from quorank.search.sources.source import opened_path

MESSAGES = {
    "opened": "Opened with the system's program.",
    "folder-opened": "Opening it might run a program, so its folder was opened.",
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
MOST_BYTES = 1 << 16  # maximum size of a body
MOST_FIELDS = 50
_WEB = re.compile(r"https?://[^\s\x00-\x1f\"<>\\^`{|}]+", re.IGNORECASE)
RUN_BY_OPENING = frozenset((
    ".app", ".appimage", ".bat", ".cmd", ".com", ".command", ".cpl", ".desktop", ".exe", ".hta", ".jar", ".jse", ".lnk",
    ".msi", ".pif", ".ps1", ".reg", ".run", ".scf", ".scr", ".sh", ".url", ".vbe", ".vbs", ".workflow", ".wsf", ".wsh",
))  # fmt: skip
"""Endings of files that the system may run instead of showing them; their folder is opened instead."""
Number = Annotated[int, Range(0, 2**53)]
Token = Annotated[str, Length(100)]
Outcome = tuple[dict[str, Any], str]


Change = Callable[[Upkeep], Outcome]  # change with the fields of its request


def choose(upkeep: Upkeep, token: Token, document: Number) -> Outcome:
    """Learn from a result that a program opens."""
    return {"path": upkeep.search.choose(token, document)}, ""


def open_result(upkeep: Upkeep, token: Token, document: Number) -> Outcome:
    """Open a result with the system's program, and learn from it."""
    path = upkeep.search.choose(token, document)
    upkeep.contact_soon()
    message = open_document(upkeep.search, document) if web_address(path) is None else ""
    return {"sentence": MESSAGES.get(message, "")}, message


def forget(
    upkeep: Upkeep,
    document: Number | None = None,
    query: Annotated[str, Length(LONGEST_QUERY)] | None = None,
    all: bool = False,
    sure: bool = True,
) -> Outcome:
    """Erase a document, the choices for a query, or everything."""
    given = sum((document is not None, query is not None, all))
    sentence = 'expected one of {"document": N}, {"query": TEXT} and {"all": true}'
    require(given == 1, "request.malformed", sentence)
    if query is not None:
        return {"choices": upkeep.search.forget_query(query)}, "query"
    if document is not None:
        with upkeep.writing():
            upkeep.search.forget_documents([document])
        return {"documents": 1}, "forgotten"
    _require_sure(sure)
    with upkeep.writing():
        upkeep.search.forget_all()
    upkeep.watch_again()
    return {"all": True}, "everything"


def reset(upkeep: Upkeep, sure: bool = True) -> Outcome:
    """Erase all choices."""
    _require_sure(sure)
    return {"choices": upkeep.search.reset()}, "reset"


def join(upkeep: Upkeep, invitation: Annotated[str, Length(4096)] = "") -> Outcome:
    """Accept the invitation in a file."""
    found = upkeep.search.membership.join(_checked_path(invitation))
    upkeep.contact_soon()
    return found, "joined"


def consent(upkeep: Upkeep, given: bool) -> Outcome:
    """Give or withdraw consent."""
    upkeep.search.membership.consent(given)
    upkeep.contact_soon()
    return upkeep.search.membership.status() or {}, "agreed" if given else "paused"


def sync(upkeep: Upkeep) -> Outcome:
    """Contact the service now."""
    require(upkeep.search.membership.joined, "device.missing", "this search has not joined a federation")
    upkeep.contact(force=True)
    last = upkeep.last_contact
    return ({} if last is None else {"outcome": last.outcome, "sentence": last.sentence}), "asked"


def leave(upkeep: Upkeep, sure: bool = True) -> Outcome:
    """Withdraw from the federation."""
    _require_sure(sure)
    report = upkeep.search.membership.leave()
    upkeep.contact_soon()
    return report.table(), report.outcome if report.outcome in ("left", "leaving") else "not-reached"


def add_source(upkeep: Upkeep, path: str) -> Outcome:
    """Add the source at a path; its content shows its kind."""
    path = _checked_path(path)
    try:
        source = source_at(path)
    except OSError as error:
        raise BadInput("path.unreadable", first_line(error), path) from None
    with upkeep.writing():
        number = upkeep.search.add(source)
    upkeep.scan_soon(number)
    upkeep.watch_again()
    return {"number": number}, "added"


def remove_source(upkeep: Upkeep, number: Number) -> Outcome:
    """Remove a source, and erase its documents."""
    with upkeep.writing():
        removed = upkeep.search.remove(number)
    upkeep.watch_again()
    return {"documents": removed}, "removed"


def scan_source(upkeep: Upkeep, number: Number) -> Outcome:
    """Scan a source again."""
    upkeep.search.source(number)
    upkeep.scan_soon(number)
    return {}, "reading"


CHANGES: dict[str, Callable[..., Outcome]] = {
    "/api/choose": choose,
    "/api/open": open_result,
    "/api/forget": forget,
    "/api/reset": reset,
    "/api/join": join,
    "/api/consent": consent,
    "/api/sync": sync,
    "/api/leave": leave,
    "/api/add": add_source,
    "/api/remove": remove_source,
    "/api/read": scan_source,
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
    """Start the system's program for the file of a document; return the key of the message."""
    path = local_file(search, document)
    runs = path.suffix.lower() in RUN_BY_OPENING
    opened, message = (path.parent, "folder-opened") if runs else (path, "opened")
    if sys.platform == "win32":
        os.startfile(opened)
        return message
    name = "open" if sys.platform == "darwin" else "xdg-open"
    program = shutil.which(name)
    if program is None:
        raise BadInput("system.no-opener", f"this system has no {name}; open the file yourself", f"{opened}")
    quiet = subprocess.DEVNULL
    subprocess.Popen([program, opened], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    return message


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


@cache
def _fields_of(change: Callable[..., Outcome]) -> type[Any]:
    """Return a dataclass of the fields of a change's requests: its parameters after `upkeep`."""
    hints = get_type_hints(change, include_extras=True)
    _, *parameters = signature(change).parameters.values()
    defaults = {each.name: MISSING if each.default is Parameter.empty else each.default for each in parameters}
    return make_dataclass("Fields", [(name, hints[name], field(default=value)) for name, value in defaults.items()])


def change_of_form(given: dict[str, str], change: Callable[..., Outcome]) -> Change:
    """Return a change with the fields of a form; numbers are digits, and a ticked box says `yes`."""
    values: dict[str, Any] = {}
    for each in fields(_fields_of(change)):
        text = given.get(each.name)
        if each.type is bool:
            values[each.name] = text == "yes"
        elif text is not None:
            number = Number in (each.type, *get_args(each.type)) and text.isascii() and text.isdecimal()
            values[each.name] = int(text) if number and len(text) <= 15 else text
    return partial(change, **vars(decode(_fields_of(change), values)))


def change_of_json(content: bytes, change: Callable[..., Outcome]) -> Change:
    """Return a change with the fields of a JSON object."""
    found = parse_json(content or b"{}", _fields_of(change), "the request", code="request.malformed")
    return partial(change, **vars(found))

"""Bodies of requests: forms of the pages and JSON of programs, bounded in size and checked."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request

from quorank.errors import BadInput, require
from quorank.files.documents import parse_json

T = TypeVar("T")
MOST_BYTES = 4 << 20
"""Maximum size of a body; an invitation is the longest."""
MOST_FIELDS = 50


async def read_body(request: Request) -> bytes:
    """Read the body of a request within the bound."""
    content = bytearray()
    async for piece in request.stream():
        content += piece
        require(len(content) <= MOST_BYTES, "request.too-large", f"more than {MOST_BYTES:,} bytes; send less")
    return bytes(content)


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form; of a repeated field the last counts."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    require(kind == "application/x-www-form-urlencoded", "request.wrong-type", "expected the fields of a form")
    try:
        text = (await read_body(request)).decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"))
    except ValueError:
        raise BadInput("request.malformed", "the fields of this form cannot be read") from None


async def read_object(request: Request, hint: type[T]) -> T:
    """Read a JSON object as a dataclass."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    require(kind == "application/json", "request.wrong-type", "expected application/json")
    found: T = parse_json(await read_body(request) or b"{}", hint, "the request", code="request.malformed")
    return found


def read_integer(text: str, name: str) -> int:
    """Read an integer from 0 in a form or an address."""
    valid = text.isascii() and text.isdecimal() and len(text) <= 15
    require(valid, "value.wrong-type", "expected an integer", name)
    return int(text)

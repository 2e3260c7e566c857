"""Bodies of requests: forms of the pages and JSON of programs, read within a bound and checked against a shape."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from quorank.errors import BadInput, require
from quorank.files.documents import Table, parse_json

MOST_BYTES = 4 << 20
"""Of a body: an invitation is the longest thing that is sent here."""
MOST_FIELDS = 50


async def read_body(request: Request) -> bytes:
    """Read the body of a request, as far as it may be long."""
    content = bytearray()
    async for piece in request.stream():
        content += piece
        require(len(content) <= MOST_BYTES, "request.too-large", f"more than {MOST_BYTES:,} bytes; send less")
    return bytes(content)


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form; of a field that comes twice the last counts."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    require(kind == "application/x-www-form-urlencoded", "request.wrong-type", "expected the fields of a form")
    try:
        text = (await read_body(request)).decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"))
    except ValueError:
        raise BadInput("request.malformed", "the fields of this form cannot be read") from None


async def read_table(request: Request, shape: Table) -> dict[str, Any]:
    """Read a JSON object of a shape."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    require(kind == "application/json", "request.wrong-type", "expected application/json")
    found: dict[str, Any] = parse_json(await read_body(request) or b"{}", shape, "the request")
    return found


def whole_number(text: str, name: str) -> int:
    """Read a whole number of a form or an address."""
    good = text.isascii() and text.isdecimal() and len(text) <= 15
    require(good, "value.wrong-type", "expected a whole number", name)
    return int(text)

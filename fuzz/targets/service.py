"""Targets of `quorank.service`: the status document."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO

from fuzz.target import target
from quorank.cli.service import show_status
from quorank.service.dashboard.page import draw_sections, exposition
from quorank.service.dashboard.status import Status


@target("service-status", "json")
def service_status(data: bytes) -> None:
    """A status, written again and read back, drawn as a page, as metrics and in the terminal."""
    found = Status.read(data)
    assert Status.read(found.text()) == found, "a status is written as another one"
    draw_sections(found)
    exposition(found)
    with redirect_stdout(StringIO()):
        show_status(found, as_json=False)

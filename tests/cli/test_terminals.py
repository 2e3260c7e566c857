"""Terminals that lack letters: a question mark, never an error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
@pytest.mark.parametrize(
    ("arguments", "code"), [(["privacy", "plan", "--help"], 0), (["data", "stats", b"caf\xe9 \xe2\x80\xa6"], 2)]
)
def test_letters_that_a_terminal_lacks(encoding: str, arguments: list[str | bytes], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "quorank.cli.main", *arguments],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr.decode("latin-1")
    assert b"Traceback" not in done.stderr and b"Error" not in done.stderr
    assert (b"?" if encoding == "ascii" else b"") in done.stdout + done.stderr

"""PDF, read in a separate process that is reused for many files and restarted when it dies.

A hostile PDF can make a reader loop for ever or fill the memory. The process has limits (`pdf_process.py`), and is
killed when a file takes too long; the pages read until then are kept.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import quorank
from quorank.errors import BadInput
from quorank.protocol.frames import receive, send
from quorank.search.sources.formats.texts import ExtractedText

SECONDS = 20.0
"""Time limit for one file."""
FILES = 500
"""Files after which the process is restarted, so that leaks do not add up."""
_PROGRAM = "quorank.search.sources.formats.pdf_process"
_START = 30.0  # seconds for the start of the process on a busy machine


class PdfProcess:
    """Reader of PDF files in a process that starts with the first file and ends with the `with` block."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds, self._files = seconds, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def __enter__(self) -> PdfProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, path: str, most_characters: int) -> ExtractedText:
        """Return title and text of a file, with the problem of what cannot be read."""
        title, pages = "", list[str]()
        try:
            connection = self._start()
            end = time.monotonic() + self._seconds
            send(connection, [os.fsencode(path), b"%d" % most_characters])
            while True:
                word, *texts = _receive(connection, end)
                if word == "end":
                    code, sentence = texts
                    return ExtractedText(title, "\n".join(pages), (code, sentence) if code else None)
                if word == "title":
                    (title,) = texts
                else:
                    pages += texts
        except TimeoutError:
            self.close()
            code, sentence = "pdf.too-slow", f"takes longer than {self._seconds:g} s to read"
        except (OSError, EOFError, BadInput, ValueError):
            self.close()
            code, sentence = "pdf.crashed", "crashes its reader"
        rest = f"only its first {len(pages)} pages are searched" if pages else "only its name is searched"
        return ExtractedText(title, "\n".join(pages), (code, f"{sentence}; {rest}"))

    @property
    def process(self) -> int | None:
        """Process id; None while no process runs."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None
        self._files = 0

    def _start(self) -> socket.socket:
        """Return the connection to the process, which is started if none runs or it has read many files."""
        if self._files >= FILES:
            self.close()
        self._files += 1
        if self._connection is None:
            self._connection, theirs = socket.socketpair()
            with theirs:
                package = str(Path(quorank.__file__).parent.parent)
                paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
                # -P: nothing is imported from the folder that the person happens to stand in
                words = [sys.executable, "-P", "-m", _PROGRAM, str(theirs.fileno()), str(int(self._seconds) or 1)]
                nothing = subprocess.DEVNULL
                self._process = subprocess.Popen(
                    words,
                    stdin=nothing,
                    stdout=nothing,
                    stderr=nothing,
                    pass_fds=[theirs.fileno()],
                    env=os.environ | {"PYTHONPATH": paths},
                )
            _receive(self._connection, time.monotonic() + _START)  # it is ready
        return self._connection


def _receive(connection: socket.socket, end: float) -> list[str]:
    connection.settimeout(max(0.001, end - time.monotonic()))
    return [text.decode(errors="replace") for text in receive(connection)]

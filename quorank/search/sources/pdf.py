"""PDF, read in a separate process that is reused for many files and restarted when it dies.

A hostile PDF can make a reader loop forever or exhaust the memory. The process therefore limits its own memory and
processor time, and is killed when a file takes too long; the pages read until then are kept.

The process is `python -m quorank.search.sources.pdf DESCRIPTOR SECONDS`. It sends a bundle (`protocol/frames.py`)
`ready`. A request is a bundle of a path and a number of characters. The answer is a bundle `title` with the title, a
bundle `page` with the text of each page, and a bundle `end` with code and sentence of a problem, both empty without one.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import quorank
from quorank.errors import BadInput, first_line, require
from quorank.files.untrusted import open_plain
from quorank.protocol.frames import receive, send
from quorank.search.sources.formats import LONGEST_TITLE, ExtractedText
from quorank.text.readers.decoding import one_line

if TYPE_CHECKING:
    from pypdf import PdfReader

SECONDS = 20.0  # time limit for one file
FILES = 500  # files after which the process is restarted, so that leaks do not add up
MEGABYTES = 640  # memory limit of the process, including its program
MOST_PAGES = 5000
_PROGRAM = "quorank.search.sources.pdf"
_START = 30.0  # seconds for the start of the process on a busy machine


class PdfProcess(AbstractContextManager["PdfProcess"]):
    """Reader of PDF files in a process that starts with the first file and ends with the `with` block."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds, self._files = seconds, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, path: str, most_characters: int) -> ExtractedText:
        """Return title and text of a file, with the reason for parts that cannot be read."""
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
                # -P: nothing is imported from the current folder
                words = [sys.executable, "-P", "-m", _PROGRAM, str(theirs.fileno()), str(int(self._seconds) or 1)]
                quiet, environment = subprocess.DEVNULL, os.environ | {"PYTHONPATH": paths}
                self._process = subprocess.Popen(
                    words, stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=[theirs.fileno()], env=environment
                )
            _receive(self._connection, time.monotonic() + _START)  # ready
        return self._connection


def _receive(connection: socket.socket, end: float) -> list[str]:
    connection.settimeout(max(0.001, end - time.monotonic()))
    return [text.decode(errors="replace") for text in receive(connection)]


# ---------------------------------------------------------------- in the process


def _serve(descriptor: int, seconds: int) -> None:
    """Answer requests until the other side closes the socket."""
    import resource  # not on Windows

    def limit(what: int, most: int) -> None:
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))

    limit(resource.RLIMIT_AS, MEGABYTES << 20)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, 0)
    logging.disable()
    import pypdf  # noqa: F401, before the time of the first file begins

    with socket.socket(fileno=descriptor) as connection:
        send(connection, [b"ready"])
        while True:
            try:
                path, most = receive(connection)
            except EOFError:
                return
            limit(resource.RLIMIT_CPU, int(time.process_time()) + seconds + 1)
            code, sentence = "", ""
            try:
                _send_content(connection, Path(os.fsdecode(path)), int(most))
            except BadInput as error:
                code, sentence = error.code, error.sentence
            except MemoryError:
                send(connection, [b"end", b"pdf.too-large", b"needs more memory than a PDF file may take"])
                return  # and free the memory
            send(connection, [b"end", code.encode(), sentence.encode(errors="replace")])


def _send_content(connection: socket.socket, path: Path, most: int) -> None:
    """Send title and pages of a file; raise BadInput for a problem."""
    from pypdf import PdfReader

    with open_plain(path) as file:
        try:
            reader = PdfReader(file, strict=False)
            locked = reader.is_encrypted and not reader.decrypt("")
            require(not locked, "pdf.encrypted", "is password-protected; only its name is searched")
            send(connection, [b"title", _title(reader).encode(errors="replace")])
            _send_pages(connection, reader, most)
        except (BadInput, MemoryError):
            raise
        except Exception as error:  # the library's own, over a malformed file
            sentence = f"is not a valid PDF file ({first_line(error)}); only its name is searched"
            raise BadInput("pdf.damaged", sentence) from None


def _title(reader: PdfReader) -> str:
    try:
        found = reader.metadata.title if reader.metadata is not None else None
    except MemoryError:
        raise
    except Exception:
        return ""
    return one_line(f"{found or ''}"[:LONGEST_TITLE])


def _send_pages(connection: socket.socket, reader: PdfReader, most: int) -> None:
    count, damaged, sent = len(reader.pages), 0, 0
    for number in range(min(count, MOST_PAGES)):
        try:
            text = reader.pages[number].extract_text()
        except MemoryError:
            raise
        except Exception:
            damaged += 1
            continue
        if text.strip():
            send(connection, [b"page", text[: most + 1].encode(errors="replace")])
            sent += len(text) + 1
        if sent > most:
            return
    require(not damaged, "pdf.pages-damaged", f"{damaged} of its {count} pages cannot be read")
    sentence = f"only the first {MOST_PAGES:,} of its {count:,} pages are searched"
    require(count <= MOST_PAGES, "pdf.pages-left", sentence)
    require(sent, "pdf.no-text", "holds no text, as a scan does; only its name is searched")


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))

"""Process that reads PDF files for another one within limits that it sets itself: `python -m … DESCRIPTOR SECONDS`.

It sends a bundle (`protocol/frames.py`) `ready`. A request is a bundle of a path and a number of characters. The answer
is a bundle `title` with the title, a bundle `page` with the text of each page, and a bundle `end` with code and sentence
of a problem, both empty without one. A file on which pypdf takes too long or too much memory ends this process, not the
caller.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from quorank.errors import BadInput, first_line
from quorank.files.untrusted import open_plain
from quorank.protocol.frames import receive, send

if TYPE_CHECKING:
    from pypdf import PdfReader

MEGABYTES = 640
"""Memory limit of the process, including its program."""
MOST_PAGES = 5000


def main(descriptor: int, seconds: int) -> None:
    """Answer until the other side closes the socket."""
    _limit(resource.RLIMIT_AS, MEGABYTES << 20)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    logging.disable()
    import pypdf  # noqa: F401, before the first file is on the clock

    with socket.socket(fileno=descriptor) as connection:
        send(connection, [b"ready"])
        while True:
            try:
                path, most = receive(connection)
            except EOFError:
                return
            _, hard = resource.getrlimit(resource.RLIMIT_CPU)
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + seconds + 1, hard))
            try:
                code, sentence = answer(connection, path, int(most))
            except MemoryError:
                send(connection, [b"end", b"pdf.too-large", b"needs more memory than a PDF file may take"])
                return  # and free the memory
            send(connection, [b"end", code.encode(), sentence.encode(errors="replace")])


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def answer(connection: socket.socket, path: bytes, most: int) -> tuple[str, str]:
    """Send title and pages of a file; return code and sentence of a problem, both empty without one."""
    from pypdf import PdfReader

    try:
        with open_plain(Path(os.fsdecode(path))) as file:
            reader = PdfReader(file, strict=False)
            if reader.is_encrypted and not reader.decrypt(""):
                return "pdf.encrypted", "is password-protected; only its name is searched"
            title = _title(reader)
            send(connection, [b"title", title.encode(errors="replace")])
            return _send_pages(connection, reader, most)
    except BadInput as error:
        return error.code, error.sentence
    except MemoryError:
        raise
    except Exception as error:  # the library's own, over a malformed file
        return "pdf.damaged", f"is no valid PDF file ({first_line(error)}); only its name is searched"


def _title(reader: PdfReader) -> str:
    try:
        found = reader.metadata.title if reader.metadata is not None else None
    except MemoryError:
        raise
    except Exception:
        return ""
    return " ".join(f"{found or ''}"[:1000].split())


def _send_pages(connection: socket.socket, reader: PdfReader, most: int) -> tuple[str, str]:
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
            return "", ""
    if damaged:
        return "pdf.pages-damaged", f"{damaged} of its {count} pages cannot be read"
    if count > MOST_PAGES:
        return "pdf.pages-left", f"only the first {MOST_PAGES:,} of its {count:,} pages are searched"
    return ("", "") if sent else ("pdf.no-text", "holds no text, as a scan does; only its name is searched")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

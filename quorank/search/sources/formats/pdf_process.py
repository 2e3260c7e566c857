"""Process that reads PDF files for another one, within limits that it sets to itself: `python -m … DESCRIPTOR SECONDS`.

A bundle (`protocol/frames.py`) with a path and a number of characters is answered by bundles: `title` and the title, `page`
and the text of a page, and at last `end` with a code and a sentence, both empty where nothing was amiss. What pypdf takes
too long or too much memory for ends this process, not the one that asked: its memory is limited, and so is the processor
time of each file.
"""

from __future__ import annotations

import logging
import resource
import socket
import sys
import time
from typing import TYPE_CHECKING

from quorank.errors import BadInput, first_line
from quorank.files.untrusted import open_plain
from quorank.protocol.frames import receive, send

if TYPE_CHECKING:
    from pypdf import PdfReader

MEGABYTES = 640
"""Memory of the process, its program included."""
MOST_PAGES = 5000


def main(descriptor: int, seconds: int) -> None:
    """Answer until the other side closes the socket."""
    _limit(resource.RLIMIT_AS, MEGABYTES << 20)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    logging.disable()
    import pypdf  # noqa: F401, before the first file is on the clock

    with socket.socket(fileno=descriptor) as connection:
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
                return  # with whatever holds the memory
            send(connection, [b"end", code.encode(), sentence.encode(errors="replace")])


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def answer(connection: socket.socket, path: bytes, most: int) -> tuple[str, str]:
    """Send the title and the pages of a file; return the code and the sentence for what could not be read."""
    import os
    from pathlib import Path

    from pypdf import PdfReader

    try:
        with open_plain(Path(os.fsdecode(path))) as file:
            reader = PdfReader(file, strict=False)
            if reader.is_encrypted and not reader.decrypt(""):
                return "pdf.encrypted", "is under a password; only its name is searched"
            title = _title(reader)
            send(connection, [b"title", title.encode(errors="replace")])
            return _send_pages(connection, reader, most)
    except BadInput as error:
        return error.code, error.sentence
    except MemoryError:
        raise
    except Exception as error:  # the library's own, over a file that is no such
        return "pdf.damaged", f"is no sound PDF file ({first_line(error)}); only its name is searched"


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

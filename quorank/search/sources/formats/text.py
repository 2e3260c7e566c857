"""Plain text and source code: UTF-8, UTF-16 with its mark, else Windows-1252; a NUL near the start is no text."""

from __future__ import annotations

import codecs

from quorank.text.readers.decoding import decode

_HEAD = 8192
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode_text(content: bytes) -> str | None:
    """Return the text of a file; None where it holds no text."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff", b"\0\0"):
        for mark, encoding in _MARKS:
            if content.startswith(mark):
                return content.decode(encoding, "replace").replace("\r\n", "\n").replace("\0", " ")
    if content.find(b"\0", 0, _HEAD) >= 0:
        return None
    text = decode(content)
    return text.replace("\0", " ") if "\0" in text else text

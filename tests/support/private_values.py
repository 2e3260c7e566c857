"""Private values in all the forms that they could be written down in, and the search for them among bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

import numpy as np

BEGIN = 8


def forms_of_bytes(value: bytes) -> set[bytes]:
    """As they are, in hexadecimal, and in base64 behind nought, one or two bytes of something else."""
    found = {value, value.hex().encode(), value.hex().upper().encode()}
    for before in range(3):  # a digit has six bits: those that are of the value alone
        inside = base64.b64encode(bytes(before) + value)[-(-8 * before // 6) : 8 * (before + len(value)) // 6]
        found |= {inside, inside.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def forms_of_text(text: str) -> set[bytes]:
    """A text in UTF-8 and UTF-16, as JSON and addresses write it, in small letters, and all of that in other digits."""
    found: set[bytes] = set()
    for written in {text, text.lower(), json.dumps(text)[1:-1], quote(text), quote(text, safe="")}:
        for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
            found |= forms_of_bytes(written.encode(encoding))
    return found


def forms_of_row(row: np.ndarray) -> set[bytes]:
    """A row of features: single numbers and, where they are short, pairs of them, in either order of bytes; as decimals."""
    short = row.astype(np.float32)
    found: set[bytes] = set()
    for at in range(len(row) - 1):
        found |= {short[at : at + 2].astype(kind).tobytes() for kind in ("<f4", ">f4")}
    for value in (*row.tolist(), *short.astype(np.float64).tolist()):
        found |= {np.array(value, kind).tobytes() for kind in ("<f8", ">f8")}
        found.add(f"{value:.9f}".encode())
    return found | set().union(*(forms_of_bytes(row.astype(kind).tobytes()) for kind in ("<f4", "<f8")))


def forms_of_numbers(numbers: Iterable[int]) -> set[bytes]:
    """Small whole numbers, such as an order or clicks: as bytes of any width and as text."""
    given = [int(number) for number in numbers]
    found = {np.array(given, kind).tobytes() for kind in ("u1", "<u2", "<u4", "<u8", ">u4", ">u8", "<f4", "<f8")}
    texts = [json.dumps(given), json.dumps(given, separators=(",", ":")), "".join(map(str, given))]
    if set(given) <= {0, 1}:
        texts += [json.dumps([bool(one) for one in given], separators=(",", mark)) for mark in (":", ": ")]
        texts += [json.dumps([bool(one) for one in given])]
    return found | {text.encode() for text in texts}


def contents_of(*places: Path) -> dict[str, bytes]:
    """Every file there, by its path."""
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*")))]
    return {str(file): file.read_bytes() for file in files if file.is_file()}


def found_in(contents: Mapping[str, bytes], secrets: Mapping[str, set[bytes]]) -> dict[str, list[str]]:
    """Which secrets stand where: names of the contents by the secret's name. No form is shorter than eight bytes.

    Places are compared whose eight bytes begin one of the forms: one pass over the contents, however many forms there are.
    """
    forms: dict[int, list[tuple[str, bytes]]] = {}
    for name, written in secrets.items():
        for form in written:
            assert len(form) >= BEGIN, (name, form)
            forms.setdefault(int.from_bytes(form[:BEGIN], "little"), []).append((name, form))
    begins = np.array(sorted(forms), dtype="<u8")
    found: dict[str, list[str]] = {}
    for where, content in contents.items():
        for offset in range(min(BEGIN, max(0, len(content) - BEGIN + 1))):
            words = np.frombuffer(content, "<u8", (len(content) - offset) // BEGIN, offset)
            at = np.minimum(np.searchsorted(begins, words), len(begins) - 1)
            for place in np.flatnonzero(begins[at] == words).tolist():
                for name, form in forms[int(words[place])]:
                    if content.startswith(form, offset + BEGIN * place):
                        found.setdefault(name, []).append(where)
    return found

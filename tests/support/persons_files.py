"""Files of a made-up person: PDF and Word documents, mailboxes and maildirs, written byte by byte or by the library."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path
from xml.sax.saxutils import escape

from archives import zipped

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def pdf_of(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """A PDF file of these objects, the first of which is the catalogue."""
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, content in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    at = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    out.write(b"trailer\n<< /Size %d /Root 1 0 R %s >>\n" % (len(objects) + 1, trailer))
    out.write(b"startxref\n%d\n%%%%EOF\n" % at)
    return out.getvalue()


def stream(content: bytes, packed: bool = False) -> bytes:
    """A stream object."""
    data = zlib.compress(content) if packed else content
    how = b" /Filter /FlateDecode" if packed else b""
    return b"<< /Length %d%s >>\nstream\n%s\nendstream" % (len(data), how, data)


def pdf_pages(texts: Sequence[str], title: str = "") -> bytes:
    """A PDF file with a page for each text."""
    count = len(texts)
    kids = b" ".join(b"%d 0 R" % (5 + 2 * place) for place in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Title (%s) >>" % title.encode("latin-1"),
    ]
    for place, text in enumerate(texts):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % (6 + 2 * place)
        )
        objects.append(stream(b"BT /F1 12 Tf 72 720 Td (%s) Tj ET" % text.encode("latin-1")))
    return pdf_of(objects, b"/Info 4 0 R" if title else b"")


def pdf_bomb(megabytes: int) -> bytes:
    """A PDF file with a small page whose content unpacks to so many megabytes."""
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(b"(a) Tj " * 150_000) for _ in range(megabytes)) + packer.flush()
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"
    return pdf_of(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            page,
            b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(data), data),
        ]
    )


def slow_pdf(operators: int) -> bytes:
    """A PDF file that says "begun" on its first page, and has so many operators on its second."""
    first = b"BT /F1 12 Tf 72 720 Td (begun) Tj ET"
    second = b"BT /F1 12 Tf " + b"1 0 0 1 5 5 Tm (a) Tj " * operators + b"ET"
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents %d 0 R /Resources << /Font << /F1 7 0 R >> >> >>"
    )
    return pdf_of(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R 4 0 R] /Count 2 >>",
            page % 5,
            page % 6,
            stream(first),
            stream(second, packed=True),
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        ]
    )


def encrypted_pdf(content: bytes, password: str) -> bytes:
    """The same PDF file under a password."""
    from pypdf import PdfReader, PdfWriter

    writer, out = PdfWriter(), io.BytesIO()
    for page in PdfReader(io.BytesIO(content)).pages:
        writer.add_page(page)
    writer.encrypt(password, "owner", algorithm="AES-256")
    writer.write(out)
    return out.getvalue()


def word_xml(paragraphs: Sequence[str]) -> str:
    """The main part of a Word document, each paragraph in two runs."""
    runs = (
        f'<w:p><w:r><w:t xml:space="preserve">{escape(text[:5])}</w:t></w:r><w:r><w:t>{escape(text[5:])}</w:t></w:r></w:p>'
        for text in paragraphs
    )
    return f"<?xml version='1.0' encoding='UTF-8'?><w:document {WORD}><w:body>{''.join(runs)}</w:body></w:document>"


def docx_of(main: str | bytes, title: str = "", notes: str = "") -> bytes:
    """A Word document with this main part."""
    members = [
        ("[Content_Types].xml", b"<Types/>"),
        ("word/document.xml", main if isinstance(main, bytes) else main.encode()),
    ]
    if notes:
        members.append(("word/footnotes.xml", notes.encode()))
    if title:
        core = 'xmlns:cp="c" xmlns:dc="http://purl.org/dc/elements/1.1/"'
        inner = f"<dc:title>{escape(title)}</dc:title><dc:creator>ann</dc:creator>"
        members.append(("docProps/core.xml", f"<cp:coreProperties {core}>{inner}</cp:coreProperties>".encode()))
    return zipped(*members)


def message(number: int, body: str = "", *, id_: str | None = None, **headers: str) -> bytes:
    """A message of a mailbox; without an id where that is empty."""
    made = EmailMessage()
    made["Subject"] = f"Subject {number}"
    made["From"] = f"Ann {number} <ann{number}@example.org>"
    made["To"] = "bob@example.org"
    made["Date"] = f"Mon, 0{1 + number % 9} Jan 2024 10:00:00 +0000"
    if id_ != "":
        made["Message-ID"] = f"<{id_ or f'message{number}@example.org'}>"
    for name, value in headers.items():
        made[name.replace("_", "-")] = value
    made.set_content(body or f"Body number {number}.")
    return made.as_bytes()


def mailbox_of(messages: Sequence[bytes]) -> bytes:
    """A mailbox in the mbox format."""
    return b"".join(b"From ann@example.org Mon Jan  1 10:00:00 2024\n" + content + b"\n" for content in messages)


def make_maildir(folder: Path, messages: Sequence[bytes]) -> Path:
    """A maildir in which every other message was read."""
    for part in ("cur", "new", "tmp"):
        (folder / part).mkdir(parents=True)
    for number, content in enumerate(messages):
        name = f"17000000{number:02}.M{number}P1.host"
        (folder / ("new" if number % 2 else "cur") / (name if number % 2 else f"{name}:2,S")).write_bytes(content)
    return folder

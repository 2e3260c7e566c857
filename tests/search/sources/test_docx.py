"""Word documents: their text, and archives and XML that are broken, locked, or much larger than they look."""

from __future__ import annotations

import random
import time
import tracemalloc
from pathlib import Path

import pytest
from persons_files import WORD, docx_of, word_xml

from quorank.search.sources.formats import read_docx

LAUGHS = (
    "<!DOCTYPE d [<!ENTITY a 'ha'>"
    + "".join(f"<!ENTITY {b} '{f'&{a};' * 10}'>" for a, b in zip("abcdefghi", "bcdefghij", strict=True))
    + "]>"
)


def test_text_title_and_notes(tmp_path: Path) -> None:
    main = (
        f"<w:document {WORD}><w:body><w:p><w:r><w:t>one</w:t><w:tab/><w:t>two</w:t></w:r>"
        "<w:r><w:delText>gone</w:delText></w:r></w:p>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>cell</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
        "<w:p><w:r><w:instrText>PAGE</w:instrText>"
        "<w:t>caf&#233; &amp;</w:t><w:br/><w:t>end</w:t></w:r></w:p></w:body></w:document>"
    )
    (tmp_path / "a.docx").write_bytes(docx_of(main, "A\n title", word_xml(["a note"])))
    assert read_docx(tmp_path / "a.docx", 1000) == ("A title", "one\ttwo\ncell\ncafé &\nend\na note", None)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "docx.damaged"),
        (b"words", "docx.damaged"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "docx.encrypted"),
        (docx_of(word_xml(["words"]))[:-30], "docx.damaged"),
        (docx_of("<w:document"), "docx.damaged"),
        (docx_of("<a>\0</a>"), "docx.damaged"),
        (docx_of(LAUGHS + "<a>&j;</a>"), "docx.damaged"),
        (docx_of('<!DOCTYPE d SYSTEM "file:///etc/passwd"><a/>'), "docx.damaged"),
        (docx_of(f"<w:t {WORD}>" + f"<!--{' ' * 1000}-->" * (75 << 10) + "</w:t>"), "docx.too-large"),
    ],
    ids=["empty", "text", "locked", "cut", "no end", "no XML", "laughs", "a file of others", "bomb"],
)
def test_what_cannot_be_read_says_so_at_little_cost(tmp_path: Path, content: bytes, code: str) -> None:
    (tmp_path / "a.docx").write_bytes(content)
    tracemalloc.start()
    begin = time.process_time()
    found = read_docx(tmp_path / "a.docx", 1000)
    assert time.process_time() - begin < 20
    assert tracemalloc.get_traced_memory()[1] < 40 << 20
    tracemalloc.stop()
    assert found.problem is not None and found.problem[0] == code, found
    assert found.text == ""


def test_a_long_text_is_read_no_further_than_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(docx_of(word_xml(["word " * 1000] * 2000) + "broken behind"))
    found = read_docx(tmp_path / "a.docx", 5000)
    assert found.problem is None and 4900 < len(found.text) < 200_000


def test_damage_anywhere_is_no_exception(tmp_path: Path) -> None:
    good, draw = docx_of(word_xml(["some words", "more"]), "T"), random.Random(3)
    for _ in range(300):
        content = bytearray(good)
        for _ in range(draw.randrange(1, 6)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        (tmp_path / "a.docx").write_bytes(content)
        found = read_docx(tmp_path / "a.docx", 1000)
        assert found.problem is not None or found.text

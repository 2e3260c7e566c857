"""Text collections that are damaged or made to harm: one sentence with the file and the place, in linear time."""

from __future__ import annotations

import gzip
import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from archives import zipped
from damaged_files import mutations, refusals
from refusals import refused

from quorank.text import read_collection
from quorank.text.readers.decoding import unescaped
from quorank.text.readers.mbox import read_mbox
from quorank.text.readers.qrels import parse_judgements

LINES = b'{"_id": "1", "title": "One", "text": "a text, \\u00e9 [1]"}\n{"_id": 2, "text": "b"}\n'
SMART = b".I 1\n.T\nTitle\n.A\nx\n.W\nwords of it\n.W\nmore\n.I 2\n.T\nb\n.W\nc\n"
TREC = b"<DOC>\n<DOCNO> A-1 </DOCNO>\n<TITLE>One &amp; two</TITLE>\n<TEXT>a &lt; b</TEXT></DOC><DOC><DOCNO>2</DOCNO>x</DOC>"
REUTERS = (
    b'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n<REUTERS TOPICS="YES" NEWID="1"><TEXT>&#2;<TITLE>T</TITLE><BODY>b &#3;</BODY>'
    b'</TEXT></REUTERS>\n<REUTERS NEWID="2"><TEXT TYPE="UNPROC">LINE\n  more</TEXT></REUTERS>'
)
MBOX = (
    b"From a@b Thu Jan  1 00:00:00 1970\nMessage-ID: <1@x>\nSubject: =?utf-8?q?caf=C3=A9?=\n"
    b'Content-Type: multipart/alternative; boundary="q"\n\n--q\nContent-Type: text/plain; charset=utf-8\n\nplain\n--q\n'
    b"Content-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n<p>a=3Cb<script>x</script></p>\n--q--\n"
    b"\nFrom c@d\nSubject: two\nContent-Type: text/html\n\n<b>x</b> &eacute;\n"
)
QRELS = b"1 0 a 1\n1 0 b 0\n2 0 a -1\n"


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


BEIR_ZIP = zipped(
    ("set/corpus.jsonl", LINES),
    ("set/queries.jsonl", b'{"_id": "q", "text": "what"}\n'),
    ("set/qrels/test.tsv", b"query-id\tcorpus-id\tscore\nq\t1\t1\n"),
)


# ------------------------------------------------------------ each reader, over damaged copies


SOURCES = {
    "a.jsonl": LINES,
    "a.all": SMART,
    "a.trec": TREC,
    "a.sgm": REUTERS,
    "a.mbox": MBOX,
    "a.zip": BEIR_ZIP,
    "a.jsonl.gz": gzip.compress(LINES, mtime=0),
}


@pytest.mark.parametrize("name", SOURCES)
def test_damaged_copies_are_read_or_refused(tmp_path: Path, name: str) -> None:
    assert len(read_collection(write(tmp_path / name, SOURCES[name])).documents) == 2
    others = [SOURCES[name], SOURCES[name] * 2, *SOURCES.values()]

    def read(content: bytes) -> object:
        return read_collection(write(tmp_path / name, content))

    assert refusals(read, mutations(others, 150)) > 5


def test_damaged_folders_are_read_or_refused(tmp_path: Path) -> None:
    for name, content in (("cran.all", SMART), ("cran.qry", b".I 1\n.W\nwhat\n"), ("cranqrel", b"1 1 1\n1 2 -1\n")):
        write(tmp_path / name, content)
    assert read_collection(tmp_path).judgements
    for name in ("cran.qry", "cranqrel"):
        whole = (tmp_path / name).read_bytes()

        def read(content: bytes, name: str = name) -> object:
            write(tmp_path / name, content)
            return read_collection(tmp_path)

        assert refusals(read, mutations([whole, QRELS], 60)) > 0
        write(tmp_path / name, whole)


def test_damaged_judgements_are_read_or_refused() -> None:
    copies = mutations([QRELS, b"query-id corpus-id score\nq 1 1\n"], 300)
    assert refusals(lambda content: parse_judgements(content, "x"), copies) > 30


# ------------------------------------------------------------ BEIR


@pytest.mark.parametrize("cut", [30, 60, -1, -30])
def test_a_cut_zip_file_is_refused(tmp_path: Path, cut: int) -> None:
    with refused("file.damaged", f"{tmp_path / 'a.zip'}"):
        read_collection(write(tmp_path / "a.zip", BEIR_ZIP[:cut]))


def test_a_damaged_member_is_named(tmp_path: Path) -> None:
    content = bytearray(BEIR_ZIP)
    at = content.index(b"corpus.jsonl") + len(b"corpus.jsonl")
    content[at : at + 10] = bytes(10)
    with refused("file.damaged", f"{tmp_path / 'a.zip'}, member 'set/corpus.jsonl'"):
        read_collection(write(tmp_path / "a.zip", bytes(content)))
    with refused("file.damaged"):  # also where a folder holds it
        read_collection(tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 99])
def test_methods_that_cannot_be_bounded_are_refused(tmp_path: Path, method: int) -> None:
    content = bytearray(BEIR_ZIP)
    for mark, place in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        at = content.index(mark)
        content[at + place] = method
    with refused("archive.unsupported"):
        read_collection(write(tmp_path / "a.zip", bytes(content)))


@pytest.mark.parametrize(
    "line",
    [
        b'{"_id": ' + b"1" * 5000 + b', "text": "x"}',
        b'{"_id": "1", "text": ' + b"[" * 100_000,
        b'{"_id": "1", "text": "x", "more": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b'{"_id": NaN, "text": "x"}',
        b'{"' + b"k" * 100_000 + b'": 1}',
    ],
)
def test_json_that_harms_is_refused_by_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    with refused("beir.malformed", f"{path}, line 3"):
        read_collection(write(path, LINES + line))


def test_half_a_surrogate_pair_is_no_text(tmp_path: Path) -> None:
    line = json.dumps({"_id": "a\ud800", "title": "\udfff", "text": "b\ud83d\ude00"}).encode()
    (document,) = read_collection(write(tmp_path / "a.jsonl", line)).documents
    assert (document.id, document.title, document.body) == ("a?", "?", "b\U0001f600")


# ------------------------------------------------------------ mbox


def test_a_from_line_outside_ascii_is_a_from_line(tmp_path: Path) -> None:
    for letters in ("é@x".encode(), "é@x".encode("latin-1"), b"\xff" * 3_000_000):
        path = write(tmp_path / "box", b"From " + letters + b"\nSubject: one\n\nbody\n\nFrom " + letters + b"\n\ntwo\n")
        assert [(d.title, d.body) for d in read_mbox(path).documents] == [("one", "body"), ("", "two")]


def test_parts_that_nest_without_end_are_read_as_text(tmp_path: Path) -> None:
    deep = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (i, i) for i in range(5000))
    inner = b"Content-Type: message/rfc822\n\n" * 5000
    for head in (deep, inner):
        path = write(tmp_path / "box", b"From x\nSubject: deep\n" + head + b"the end\n\nFrom y\nSubject: next\n\nz\n")
        found = read_mbox(path).documents
        assert [document.title for document in found] == ["deep", "next"]


def test_a_character_code_of_thousands_of_digits() -> None:
    assert unescaped("&#" + "1" * 5000 + ";&#x" + "f" * 5000 + ";&amp;&#233;") == "\ufffd\ufffd&é"


# ------------------------------------------------------------ time


GROWING: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "doc": ("a.trec", lambda n: b"<doc>" * n),
    "doc in doc": ("a.trec", lambda n: b"<doc><docno>1</docno>" + b"<title><hl><ti>" * n + b"</doc>"),
    "docno": ("a.trec", lambda n: b"<doc>" + b"<docno> " * n + b"</doc>"),
    "docno of spaces": ("a.trec", lambda n: b"<doc><docno>" + b" " * 5 * n + b"x y</docno></doc>"),
    "attributes": ("a.trec", lambda n: b"<doc>" + b"<doc x>" * n),
    "reuters": ("a.sgm", lambda n: b"<reuters newid=1>" * n),
    "reuters open": ("a.sgm", lambda n: b"<reuters " * n),
    "title": ("a.sgm", lambda n: b"<reuters newid=1>" + b"<title><body><text " * n + b"</reuters>"),
    "tags": ("a.sgm", lambda n: b"<reuters newid=1><body>" + b"<a" * 5 * n + b"</body></reuters>"),
    "smart fields": ("a.all", lambda n: b".I 1\n" + b".W\nx\n" * n),
    "smart records": ("a.all", lambda n: b"".join(b".I %d \t x\n.W\n" % i for i in range(n))),
    "smart spaces": ("a.all", lambda n: b".I 1\n.W\n" + b".W" + b" " * 5 * n + b"x"),
    "mbox subject": ("a.mbox", lambda n: b"From x\nSubject: " + b"=?a?q?x" * n + b"\n\nx"),
    "mbox type": ("a.mbox", lambda n: b'From x\nContent-Type: multipart/mixed; a="' + b";" * 5 * n + b"\n\nx"),
    "mbox tags": ("a.mbox", lambda n: b"From x\nContent-Type: text/html\n\n" + b"<!--<a <script <![" * n),
    "mbox from": ("a.mbox", lambda n: b"From x\n\n" * n),
    "lines": ("a.jsonl", lambda n: LINES + b"\n" * 5 * n),
    "quotes": ("a.jsonl", lambda n: b'{"_id":"' + b'\\"[' * n + b'","text":""}'),
    "entities": ("a.trec", lambda n: b"<doc><docno>1</docno>" + b"&#&#x&" * n + b"</doc>"),
    "spaces in a title": ("a.trec", lambda n: b"<doc><docno>1</docno>x" + b" " * 5 * n + b"</doc>"),
}


@pytest.mark.parametrize("name", GROWING)
def test_time_grows_with_the_size(tmp_path: Path, name: str) -> None:
    """A fourth of the work first: eight times as long for four times as much is a quadratic reader."""
    file, made = GROWING[name]
    seconds = []
    for n in (2_000, 8_000):
        path = write(tmp_path / file, made(n))
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            refusals(lambda content, path=path: read_collection(path), iter([b""]))
            best = min(best, time.process_time() - start)
        seconds.append(best)
    assert seconds[1] < 8 * seconds[0] + 0.05, seconds

"""Targets of `quorank.text`: every reader of text collections."""

from __future__ import annotations

import gzip
from collections.abc import Callable

from fuzz.target import as_file, as_folder, scratch, target
from quorank.text.collection import describe_skipped
from quorank.text.function_words import FUNCTION_WORDS
from quorank.text.languages import describe_text, detect_language
from quorank.text.readers import read_collection
from quorank.text.readers.qrels import parse_judgements

_JSON = (
    b'{"_id": "1", "title": "a", "text": "b"}\n',
    b'"text": ',
    b'"_id": ',
    b"null",
    b"[" * 3000,
    b"\\ud800",
    b"1" * 4400,
)
_TAGS = (
    b"<DOC>",
    b"</DOC>",
    b"<DOCNO>",
    b"</DOCNO>",
    b"<TITLE>",
    b"</TITLE>",
    b"<top>",
    b"</top>",
    b"<num>",
    b"<title>",
    b"&#0;",
    b"&#99999999999;",
    b"&amp;",
    b"<",
    b">",
)
_STORIES = (
    b'<REUTERS NEWID="7">',
    b"</REUTERS>",
    b"<BODY>",
    b"</BODY>",
    b"<TEXT>",
    b"</TEXT>",
    b"<TITLE>",
    b"</TITLE>",
    b"&#3;",
    b"NEWID=",
    b"<!DOCTYPE lewis",
    b"<REUTERS ",
)
_MAIL = (
    b"From a\n",
    b"\nFrom ",
    b"Subject: ",
    b"=?utf-8?q?=e9?=",
    b"=?x?b?////?=",
    b"Content-Type: text/html; charset=",
    b"utf-7",
    b"idna",
    b"Content-Transfer-Encoding: base64\n",
    b"multipart/mixed; boundary=x",
    b"\n--x\n",
    b"uu",
    b"quoted-printable",
    b"Message-ID: <a>\n",
    b"\xe9",
    b"Content-Disposition: attachment",
    b"rot13",
    b"hex",
    b"unicode_escape",
    b"undefined",
)


def _read(name: str) -> Callable[[bytes], object]:
    return lambda data: read_collection(as_file(data, name))


def _large_trec() -> dict[str, bytes]:
    return {
        "documents that are opened and never closed": b"<DOC>\n" * 40_000,
        "titles that are opened and never closed": b"<DOC><DOCNO>1</DOCNO>" + b"<TITLE>" * 40_000 + b"</DOC>",
        "numbers that are opened and never closed": b"<DOC>" + b"<DOCNO> " * 40_000 + b"</DOC>",
        "blanks behind a number": b"<DOC><DOCNO>" + b" " * 200_000 + b"</DOC>",
        "brackets": b"<DOC><DOCNO>1</DOCNO>" + b"<a" * 100_000 + b"</DOC>",
    }


def _large_reuters() -> dict[str, bytes]:
    return {
        "stories that are opened and never closed": b"<REUTERS >\n" * 20_000,
        "stories without an end of their tag": b"<REUTERS " * 20_000,
        "texts that are opened and never closed": b'<REUTERS NEWID="1">' + b"<TEXT>" * 40_000 + b"</REUTERS>",
        "bodies that are opened and never closed": b'<REUTERS NEWID="1">' + b"<BODY>" * 40_000 + b"</REUTERS>",
        "titles that are opened and never closed": b'<REUTERS NEWID="1">' + b"<TITLE>" * 40_000 + b"</REUTERS>",
    }


def _large_mbox() -> dict[str, bytes]:
    deep = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (i, i) for i in range(2_000))
    return {
        "parts within parts": b"From a Mon Jan 1 00:00:00 2024\n" + deep,
        "tags that are opened": b"From a\nContent-Type: text/html\n\n" + b"<a " * 40_000,
        "comments that are opened": b"From a\nContent-Type: text/html\n\n" + b"<!--" * 40_000,
        "declarations that are opened": b"From a\nContent-Type: text/html\n\n" + b"<![" * 40_000,
        "words that are encoded": b"From a\nSubject: " + b"=?utf-8?q?a?=" * 10_000 + b"\n\nx",
        "addresses in a header": b"From a\nContent-Type: text/plain" + b";a=b" * 20_000 + b"\n\nx",
    }


def _large_smart() -> dict[str, bytes]:
    return {
        "blanks behind a mark": b".I 1\n.W\nx\n.I" + b" " * 100_000 + b"x y\n",
        "blanks in a title": b".I 1\n.W\n" + b" " * 100_000 + b"x",
        "many records": b"".join(b".I %d\n.W\nx\n" % i for i in range(20_000)),
    }


def _large_lines() -> dict[str, bytes]:
    return {
        "400 MB of zeros, gzipped": b"".join(gzip.compress(bytes(40 << 20), mtime=0) for _ in range(10)),
        "an array of many": b'{"_id":"1","text":[' + b"[]," * 300_000 + b"[]]}",
    }


target("beir-zip", "zip", _JSON)(_read("c.zip"))
target("jsonl", words=_JSON, made=_large_lines)(_read("c.jsonl"))
target("jsonl-gz", "gzip", _JSON)(_read("c.jsonl.gz"))
target("smart", words=(b".I 1\n", b".W\n", b".T\n", b".I ", b"\n.X\n", b"00"), made=_large_smart)(_read("c.all"))
target("trec", words=_TAGS, made=_large_trec)(_read("c.trec"))
target("reuters", words=_STORIES, made=_large_reuters)(_read("c.sgm"))
target("mbox", words=_MAIL, made=_large_mbox)(_read("c.mbox"))


@target(
    "text-folder",
    words=(
        b"=== a.txt\n",
        b"=== cran.qry\n",
        b"=== rel\n",
        b"=== qrels/test.tsv\n",
        b"=== x.qrel\n",
        *_TAGS,
        b".I 1\n.W\n",
    ),
)
def text_folder(data: bytes) -> None:
    """A folder of any layout: documents, queries and judgements in files of their own; what was left out can be told."""
    folder = scratch() / "c"
    found = read_collection(as_folder(data, folder)).without_empty()
    told = describe_skipped(found.skipped, found.name).split("\n")
    assert all(len(line) <= 80 and line.isprintable() for line in told), told
    describe_text(found)


@target("qrels", words=(b" 0 ", b"\t", b"1e9", b"query-id\tcorpus-id\tscore\n", b"-1", b"nan", b"Q0"))
def qrels(data: bytes) -> None:
    """Judgements."""
    parse_judgements(data, "qrels")


@target(
    "language",
    words=tuple(" ".join(words[:6]).encode() + b" " for words in FUNCTION_WORDS.values()),
    made=lambda: {"many short words": b"de la en " * 400_000, "many texts": b"og det er\n" * 200_000},
)
def language(data: bytes) -> None:
    """Texts, a line each, of any language or none; a language that is found has a share of their words."""
    found = detect_language(data.decode(errors="surrogateescape").split("\n"))
    shares = [share for _, share in found.candidates]
    assert shares == sorted(shares, reverse=True) and all(0 < share <= 1 for share in shares), found
    assert found.language is None or found.language == found.candidates[0][0], found
    assert str(found)

"""Reader of TREC text (NPL): documents <DOC> … </DOC> with a <DOCNO>, topics <top> … </top> with a <num>.

A document's title is its <TITLE>, <HEADLINE>, <HL> or <TI>; where it has none, the beginning of its text stands for it
(see `decoding.leading_title`). Its body is all text outside of <DOCNO>, without the tags. A query is the topic's <title>.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from quorank.text.collection import Document, Query, TextCollection, refuse_twice
from quorank.text.readers.decoding import bad_line, leading_title, line_of, read_text, strip_tags
from quorank.text.readers.qrels import Judgements, judgements_of, parse_judgements

DOCUMENT_MARK, TOPIC_MARK = b"<doc>", b"<top>"
_FLAGS = re.DOTALL | re.IGNORECASE
_DOCUMENT = re.compile(r"<doc>(.*?)</doc>", _FLAGS)
_NUMBER = re.compile(r"<docno>\s*(\S+)\s*</docno>", _FLAGS)
_TITLE = re.compile(r"<(title|headline|hl|ti)>(.*?)</\1>", _FLAGS)
_TOPIC = re.compile(r"<top>(.*?)</top>", _FLAGS)
_TOPIC_NUMBER = re.compile(r"<num>\s*(?:number:)?\s*([^\s<]+)", _FLAGS)
_TOPIC_TITLE = re.compile(r"<title>\s*(?:topic:)?(.*?)(?=<|$)", _FLAGS)


def read_trec(
    files: Sequence[Path], queries: Path | None = None, judgements: Path | None = None, name: str | None = None
) -> TextCollection:
    """Read a collection from its files of documents, of topics and of judgements; the last two may be missing."""
    texts = tuple(document for file in files for document in _documents(file))
    asked = _queries(queries) if queries else ()
    graded: Judgements = {}
    if queries and judgements:
        graded = judgements_of(parse_judgements(read_text(judgements), f"{judgements}"), asked, texts)
    return TextCollection(name or files[0].stem, texts, asked, graded)


def _documents(path: Path) -> tuple[Document, ...]:
    found, lines = [], []
    for inside, line in _elements(path, _DOCUMENT, "doc"):
        number = _NUMBER.search(inside)
        if number is None:
            sentence = "this document has no number; expected <DOCNO>…</DOCNO>"
            raise bad_line(path, line, "trec.no-number", sentence)
        text = inside[: number.start()] + inside[number.end() :]
        title = _TITLE.search(text)
        body = strip_tags(text)
        named = " ".join(strip_tags(title[2]).split()) if title else leading_title(body)
        found.append(Document(number[1], named, body))
        lines.append(line)
    refuse_twice(str(path), "document", (document.id for document in found), lines)
    return tuple(found)


def _queries(path: Path) -> tuple[Query, ...]:
    found, lines = [], []
    for inside, line in _elements(path, _TOPIC, "top"):
        number, title = _TOPIC_NUMBER.search(inside), _TOPIC_TITLE.search(inside)
        if number is None or title is None or not title[1].strip():
            raise bad_line(path, line, "trec.malformed", "expected a topic with <num> and <title>")
        found.append(Query(number[1], " ".join(html.unescape(title[1]).split())))
        lines.append(line)
    refuse_twice(str(path), "query", (query.id for query in found), lines)
    return tuple(found)


def _elements(path: Path, pattern: re.Pattern[str], tag: str) -> list[tuple[str, int]]:
    """Return what stands between the tags, and its line; anything between two elements is refused."""
    text = read_text(path)
    found, place, line = [], 0, 1
    for match in pattern.finditer(text):
        between = text[place : match.start()]
        line += between.count("\n")
        if between.strip():
            sentence = f"expected <{tag}>, got {between.strip()[:40]!r}"
            raise bad_line(path, line_of(text, place), "trec.malformed", sentence)
        found.append((match[1], line))
        line += match[0].count("\n")
        place = match.end()
    if text[place:].strip() or not found:
        sentence = f"expected <{tag}> … </{tag}>, and found no such element here"
        raise bad_line(path, line, "trec.malformed", sentence)
    return found

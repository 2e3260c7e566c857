"""TREC text (NPL): documents between <DOC> and </DOC> with a <DOCNO>, topics between <top> and </top> with a <num>.

A document's title is its <TITLE>, <HEADLINE>, <HL> or <TI>; where it has none, the beginning of its text stands for it
(see `plain.leading_title`). Its body is all text outside of <DOCNO>, without the tags. A query is the topic's <title>.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from quorank.errors import BadInput
from quorank.text.collection import Collection, Document, Query, empty_note, refuse_twice
from quorank.text.readers.plain import leading_title, line_of, read_text
from quorank.text.readers.qrels import gather, parse_judgements

DOCUMENT_MARK, TOPIC_MARK = b"<doc>", b"<top>"
_FLAGS = re.DOTALL | re.IGNORECASE
_DOCUMENT = re.compile(r"<doc>(.*?)</doc>", _FLAGS)
_NUMBER = re.compile(r"<docno>\s*(\S+)\s*</docno>", _FLAGS)
_TITLE = re.compile(r"<(title|headline|hl|ti)>(.*?)</\1>", _FLAGS)
_TOPIC = re.compile(r"<top>(.*?)</top>", _FLAGS)
_TOPIC_NUMBER = re.compile(r"<num>\s*(?:number:)?\s*([^\s<]+)", _FLAGS)
_TOPIC_TITLE = re.compile(r"<title>\s*(?:topic:)?(.*?)(?=<|$)", _FLAGS)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


def read_trec(
    documents: Path | Sequence[Path],
    queries: Path | None = None,
    judgements: Path | None = None,
    name: str | None = None,
) -> Collection:
    """A collection from its files of documents, of topics and of judgements; the last two may be missing."""
    files = [documents] if isinstance(documents, Path) else list(documents)
    name = name or files[0].stem
    texts = tuple(document for file in files for document in _documents(file))
    if len(files) > 1:
        refuse_twice(name, "document", (document.id for document in texts))
    asked = _queries(queries) if queries else ()
    notes = empty_note(texts)
    if not (queries and judgements):
        return Collection(name, texts, asked, {}, notes)
    where = str(judgements)
    found = parse_judgements(read_text(judgements), where)
    graded, strange = gather(found, {q.id for q in asked}, {d.id for d in texts}, where)
    return Collection(name, texts, asked, graded, notes + strange)


def _documents(path: Path) -> tuple[Document, ...]:
    found, lines = [], []
    for inside, line in _elements(path, _DOCUMENT, "doc"):
        number = _NUMBER.search(inside)
        if number is None:
            raise BadInput(f"{path}, line {line}: this document has no number; expected <DOCNO>…</DOCNO>")
        text = inside[: number.start()] + inside[number.end() :]
        title = _TITLE.search(text)
        body = html.unescape(_TAG.sub(" ", text)).strip()
        named = " ".join(html.unescape(_TAG.sub(" ", title[2])).split()) if title else leading_title(body)
        found.append(Document(number[1], named, body))
        lines.append(line)
    refuse_twice(str(path), "document", (document.id for document in found), lines)
    return tuple(found)


def _queries(path: Path) -> tuple[Query, ...]:
    found, lines = [], []
    for inside, line in _elements(path, _TOPIC, "top"):
        number, title = _TOPIC_NUMBER.search(inside), _TOPIC_TITLE.search(inside)
        if number is None or title is None or not title[1].strip():
            raise BadInput(f"{path}, line {line}: expected a topic with <num> and <title>")
        found.append(Query(number[1], " ".join(html.unescape(title[1]).split())))
        lines.append(line)
    refuse_twice(str(path), "query", (query.id for query in found), lines)
    return tuple(found)


def _elements(path: Path, pattern: re.Pattern[str], tag: str) -> list[tuple[str, int]]:
    """What stands between the tags, and its line; anything between two elements is refused."""
    text = read_text(path)
    found, place, line = [], 0, 1
    for match in pattern.finditer(text):
        between = text[place : match.start()]
        line += between.count("\n")
        if between.strip():
            raise BadInput(
                f"{path}, line {line_of(text, place)}: expected <{tag}>, got {between.strip()[:40]!r}"
            )
        found.append((match[1], line))
        line += match[0].count("\n")
        place = match.end()
    if text[place:].strip() or not found:
        raise BadInput(f"{path}, line {line}: expected <{tag}> … </{tag}>, and found no such element here")
    return found

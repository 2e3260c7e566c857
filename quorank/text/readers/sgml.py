"""Readers of text in SGML: TREC's documents and topics (NPL), and the news of Reuters-21578.

TREC: documents <DOC> … </DOC> with a <DOCNO>, topics <top> … </top> with a <num>. A document's title is its <TITLE>,
<HEADLINE>, <HL> or <TI>; where it has none, the beginning of its text stands for it (see `decoding.leading_title`). Its
body is all text outside of <DOCNO>, without the tags. A query is the topic's <title>.

Reuters: <REUTERS … NEWID="7"> with <TITLE> and <BODY>, in one file or several. A story of the type "UNPROC" has neither;
its text stands in <TEXT> and its beginning stands for the title. There are no queries and no judgements in it: its
topics are not questions that anybody asked.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from quorank.text.collection import Document, Query, TextCollection
from quorank.text.readers.decoding import bad_line, each_once, leading_title, one_line, read_text
from quorank.text.readers.qrels import judgements_of, read_judgements

DOCUMENT_MARK, TOPIC_MARK, STORY_MARKS = b"<doc>", b"<top>", (b"<!doctype lewis", b"<reuters")


def _pattern(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.DOTALL | re.IGNORECASE)


_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_DOCUMENT, _TOPIC = _pattern(r"<doc>(.*?)</doc>"), _pattern(r"<top>(.*?)</top>")
_NUMBER = _pattern(r"<docno>\s*(\S+)\s*</docno>")
_TITLE = _pattern(r"<(title|headline|hl|ti)>(.*?)</\1>")
_TOPIC_NUMBER = _pattern(r"<num>\s*(?:number:)?\s*([^\s<]+)")
_TOPIC_TITLE = _pattern(r"<title>\s*(?:topic:)?(.*?)(?=<|$)")
_STORY = _pattern(r"<reuters\b([^>]*)>(.*?)</reuters>")
_STORY_NUMBER = _pattern(r'\bnewid="?(\w+)"?')
_STORY_TITLE = _pattern(r"<title>(.*?)</title>")
_BODY, _TEXT = _pattern(r"<body>(.*?)</body>"), _pattern(r"<text\b[^>]*>(.*?)</text>")
_CONTROL = re.compile(r"&#(?:[0-9]|1[0-9]|2[0-9]|3[01]);")


def read_trec(
    files: Sequence[Path], queries: Path | None = None, judgements: Path | None = None, name: str | None = None
) -> TextCollection:
    """Read a collection from its files of documents, of topics and of judgements; the last two may be missing."""
    texts = tuple(document for file in files for document in each_once(file, "document", _documents(file)))
    asked = each_once(queries, "query", _queries(queries)) if queries else ()
    graded = read_judgements(judgements) if queries and judgements else []
    return TextCollection(name or files[0].stem, texts, asked, judgements_of(graded, asked, texts))


def read_reuters(files: Sequence[Path], name: str) -> TextCollection:
    """Read all stories of these files."""
    return TextCollection(name, tuple(story for file in files for story in _stories(file)))


def _documents(path: Path) -> Iterator[tuple[int, Document]]:
    for inside, line in _elements(path, _DOCUMENT, "doc"):
        number = _NUMBER.search(inside)
        if number is None:
            raise bad_line(path, line, "trec.no-number", "this document has no number; expected <DOCNO>…</DOCNO>")
        text = inside[: number.start()] + inside[number.end() :]
        title, body = _TITLE.search(text), _plain(text)
        yield line, Document(number[1], one_line(_plain(title[2])) if title else leading_title(body), body)


def _queries(path: Path) -> Iterator[tuple[int, Query]]:
    for inside, line in _elements(path, _TOPIC, "top"):
        number, title = _TOPIC_NUMBER.search(inside), _TOPIC_TITLE.search(inside)
        if number is None or title is None or not title[1].strip():
            raise bad_line(path, line, "trec.malformed", "expected a topic with <num> and <title>")
        yield line, Query(number[1], one_line(html.unescape(title[1])))


def _elements(path: Path, pattern: re.Pattern[str], tag: str) -> list[tuple[str, int]]:
    """Return what stands between the tags, and its line; anything between two elements is refused."""
    text = read_text(path)
    found, place, line = [], 0, 1
    for match in pattern.finditer(text):
        between = text[place : match.start()]
        if between.strip():
            raise bad_line(path, line, "trec.malformed", f"expected <{tag}>, got {between.strip()[:40]!r}")
        line += between.count("\n")
        found.append((match[1], line))
        line += match[0].count("\n")
        place = match.end()
    if text[place:].strip() or not found:
        raise bad_line(path, line, "trec.malformed", f"expected <{tag}> … </{tag}>, and found no such element here")
    return found


def _stories(path: Path) -> list[Document]:
    found, text = [], read_text(path)
    for story in _STORY.finditer(text):
        number, title = _STORY_NUMBER.search(story[1]), _STORY_TITLE.search(story[2])
        if number is None:
            line = text.count("\n", 0, story.start()) + 1
            raise bad_line(path, line, "reuters.no-number", 'this story has no number; expected <REUTERS NEWID="…">')
        body = _BODY.search(story[2])
        whole = body or _TEXT.search(story[2])
        content = _plain(_CONTROL.sub(" ", whole[1])) if whole else ""
        named = one_line(_plain(_CONTROL.sub(" ", title[1]))) if title else leading_title(content)
        found.append(Document(number[1], named, content if body else content.removeprefix(named).strip() or content))
    if not found:
        raise bad_line(path, 1, "reuters.empty", "expected <REUTERS …> … </REUTERS>, and found no such story")
    return found


def _plain(text: str) -> str:
    """Replace SGML tags by spaces and entities by their characters."""
    return html.unescape(_TAG.sub(" ", text)).strip()

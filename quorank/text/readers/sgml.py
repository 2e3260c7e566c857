"""Readers of text in SGML: TREC's documents and topics (NPL), and the news of Reuters-21578.

TREC: documents <DOC> … </DOC> with a <DOCNO>, topics <top> … </top> with a <num>. A document's title is its <TITLE>,
<HEADLINE>, <HL> or <TI>; where it has none, the beginning of its text stands for it (see `decoding.leading_title`). Its
body is all text outside of <DOCNO>, without the tags. A query is the topic's <title>.

Reuters: <REUTERS … NEWID="7"> with <TITLE> and <BODY>, in one file or several. A story of the type "UNPROC" has neither;
its text stands in <TEXT> and its beginning stands for the title. There are no queries and no judgements in it: its
topics are not questions that anybody asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from quorank.text.collection import Document, Query, TextCollection
from quorank.text.readers.decoding import bad_line, each_once, leading_title, one_line, read_text, unescaped
from quorank.text.readers.qrels import judgements_of, read_judgements

DOCUMENT_MARK, TOPIC_MARK, STORY_MARKS = b"<doc>", b"<top>", (b"<!doctype lewis", b"<reuters")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_TITLES = ("title", "headline", "hl", "ti")
_STORY_NUMBER = re.compile(r'\bnewid="?(\w+)', re.IGNORECASE)
_CONTROL = re.compile(r"&#(?:[0-9]|1[0-9]|2[0-9]|3[01]);")


class _Element(NamedTuple):
    """Element of SGML: its positions in the file, the attributes of its opening tag, and its content."""

    start: int
    end: int
    attributes: str
    inside: str


def _elements(text: str, tag: str, *, bare: bool = True) -> Iterator[_Element]:
    """Yield the elements `<tag> … </tag>`, each up to the first closing tag; `bare` tags have no attributes."""
    opening = re.compile(f"<{tag}>" if bare else rf"<{tag}(?=[\s>])", re.IGNORECASE)
    closing = re.compile(f"</{tag}>", re.IGNORECASE)
    begin = opening.search(text)
    while begin:
        opened = begin.end() - 1 if bare else text.find(">", begin.end())
        finish = closing.search(text, opened + 1) if opened >= 0 else None
        if finish is None:  # where a tag does not close, no later one does
            return
        yield _Element(begin.start(), finish.end(), text[begin.end() : opened], text[opened + 1 : finish.start()])
        begin = opening.search(text, finish.end())


def _element(text: str, tag: str, *, bare: bool = True) -> _Element | None:
    return next(_elements(text, tag, bare=bare), None)


def read_trec(
    files: Sequence[Path], queries: Path | None = None, judgements: Path | None = None, name: str | None = None
) -> TextCollection:
    """Read a collection from its files of documents, of topics and of judgements; the last two may be missing."""
    texts = tuple(document for file in files for document in each_once(file, "document", _documents(file)))
    asked = each_once(queries, "query", _queries(queries)) if queries else ()
    found = read_judgements(judgements) if queries and judgements else []
    graded, skipped = judgements_of(found, asked, texts, judgements)
    return TextCollection(name or files[0].stem, texts, asked, graded, skipped, "TREC")


def read_reuters(files: Sequence[Path], name: str) -> TextCollection:
    """Read all stories of these files."""
    return TextCollection(name, tuple(story for file in files for story in _stories(file)), format="Reuters SGML")


def _documents(path: Path) -> Iterator[tuple[int, Document]]:
    for inside, line in _only_elements(path, "doc"):
        number = _element(inside, "docno")
        name = number.inside.split(maxsplit=2) if number else []
        if number is None or len(name) != 1:
            raise bad_line(path, line, "trec.no-number", "this document has no number; expected <DOCNO>…</DOCNO>")
        text = inside[: number.start] + inside[number.end :]
        titles = [found for tag in _TITLES if (found := _element(text, tag))]
        title, body = min(titles, default=None), _plain(text)
        yield line, Document(name[0], one_line(_plain(title.inside)) if title else leading_title(body), body)


def _queries(path: Path) -> Iterator[tuple[int, Query]]:
    for inside, line in _only_elements(path, "top"):
        number = _behind(inside, "num", "number:").split(maxsplit=1)
        title = one_line(unescaped(_behind(inside, "title", "topic:")))
        if not (number and title):
            raise bad_line(path, line, "trec.malformed", "expected a topic with <num> and <title>")
        yield line, Query(number[0], title)


def _behind(text: str, tag: str, word: str) -> str:
    """Return the text between a tag and the next one, without a word at its beginning."""
    begin = re.search(f"<{tag}>", text, re.IGNORECASE)
    if begin is None:
        return ""
    end = text.find("<", begin.end())
    found = text[begin.end() : end if end >= 0 else len(text)].strip()
    return found[len(word) :] if found[: len(word)].lower() == word else found


def _only_elements(path: Path, tag: str) -> list[tuple[str, int]]:
    """Return content and line of each element; text between two elements is rejected."""
    text = read_text(path)
    found, place, line = [], 0, 1
    for element in _elements(text, tag):
        between = text[place : element.start]
        if between.strip():
            raise bad_line(path, line, "trec.malformed", f"expected <{tag}>, got {between.strip()[:40]!r}")
        line += between.count("\n")
        found.append((element.inside, line))
        line += text.count("\n", element.start, element.end)
        place = element.end
    if text[place:].strip() or not found:
        raise bad_line(path, line, "trec.malformed", f"expected <{tag}> … </{tag}>, and found no such element here")
    return found


def _stories(path: Path) -> list[Document]:
    found, text = [], read_text(path)
    for story in _elements(text, "reuters", bare=False):
        number = _STORY_NUMBER.search(story.attributes)
        if number is None:
            line = text.count("\n", 0, story.start) + 1
            raise bad_line(path, line, "reuters.no-number", 'this story has no number; expected <REUTERS NEWID="…">')
        title, body = _element(story.inside, "title"), _element(story.inside, "body")
        whole = body or _element(story.inside, "text", bare=False)
        content = _plain(_CONTROL.sub(" ", whole.inside)) if whole else ""
        named = one_line(_plain(_CONTROL.sub(" ", title.inside))) if title else leading_title(content)
        found.append(Document(number[1], named, content if body else content.removeprefix(named).strip() or content))
    if not found:
        raise bad_line(path, 1, "reuters.empty", "expected <REUTERS …> … </REUTERS>, and found no such story")
    return found


def _plain(text: str) -> str:
    """Replace SGML tags by spaces and entities by their characters."""
    return unescaped(_TAG.sub(" ", text)).strip()

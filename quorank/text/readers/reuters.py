"""Reader of news in the SGML of Reuters-21578: <REUTERS … NEWID="7"> with <TITLE> and <BODY>, in one file or several.

A story of the type "UNPROC" has neither; its text stands in <TEXT> and its beginning stands for the title. There are no
queries and no judgements in it: its topics are not questions that anybody asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from quorank.text.collection import Document, TextCollection
from quorank.text.readers.decoding import bad_line, leading_title, line_of, read_text, strip_tags

MARKS = (b"<!doctype lewis", b"<reuters")
_FLAGS = re.DOTALL | re.IGNORECASE
_STORY = re.compile(r"<reuters\b([^>]*)>(.*?)</reuters>", _FLAGS)
_NUMBER = re.compile(r'\bnewid="?(\w+)"?', _FLAGS)
_TITLE = re.compile(r"<title>(.*?)</title>", _FLAGS)
_BODY = re.compile(r"<body>(.*?)</body>", _FLAGS)
_TEXT = re.compile(r"<text\b[^>]*>(.*?)</text>", _FLAGS)
_CONTROL = re.compile(r"&#(?:[0-9]|1[0-9]|2[0-9]|3[01]);")


def read_reuters(files: Sequence[Path], name: str) -> TextCollection:
    """Read all stories of these files."""
    found: list[Document] = []
    for path in files:
        text, before = read_text(path), len(found)
        for story in _STORY.finditer(text):
            number = _NUMBER.search(story[1])
            if number is None:
                line, sentence = line_of(text, story.start()), "this story has no number"
                raise bad_line(path, line, "reuters.no-number", f'{sentence}; expected <REUTERS NEWID="…">')
            found.append(_document(number[1], story[2]))
        if len(found) == before:
            sentence = "expected <REUTERS …> … </REUTERS>, and found no such story"
            raise bad_line(path, 1, "reuters.empty", sentence)
    return TextCollection(name, tuple(found))


def _document(number: str, story: str) -> Document:
    title, body = _TITLE.search(story), _BODY.search(story)
    whole = body or _TEXT.search(story)
    text = _plain(whole[1]) if whole else ""
    named = " ".join(_plain(title[1]).split()) if title else leading_title(text)
    return Document(number, named, text if body else text.removeprefix(named).strip() or text)


def _plain(text: str) -> str:
    return strip_tags(_CONTROL.sub(" ", text))

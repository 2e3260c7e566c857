"""Families of parts, meanings of fields, and Markdown of generated pages."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from quorank.data.partition import PARTITIONS
from quorank.federation import AGGREGATIONS, PARTICIPATIONS, PERSONALISATIONS, SERVERS
from quorank.federation.attacks import ATTACKS
from quorank.learning import LEARNERS
from quorank.parts import Family
from quorank.privacy import PRIVACIES
from quorank.rankers import RANKERS
from quorank.users import CLICK_MODELS

FAMILIES: dict[str, Family[Any]] = {
    "partition": PARTITIONS,
    "ranker": RANKERS,
    "users": CLICK_MODELS,
    "learner": LEARNERS,
    "federation.participation": PARTICIPATIONS,
    "federation.aggregation": AGGREGATIONS,
    "federation.server": SERVERS,
    "federation.personal": PERSONALISATIONS,
    "attack": ATTACKS,
    "privacy": PRIVACIES,
}
"""Families of parts by their place in an experiment file."""


@cache
def arguments_of(cls: type[Any]) -> dict[str, str]:
    """Return the entries under `Args` of a class's own docstring, by field."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "") + "\n"
    section = re.search(r"^Args:\n((?: {4}.*\n)+)", text, re.M)
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {6,}.*)*)", section[1], re.M) if section else []
    return {name: " ".join(words.split()).removesuffix(".") for name, words in entries}


@cache
def meanings_beside(cls: type[Any]) -> dict[str, str]:
    """Return the comments on or above the fields of a class, and the strings below them, by field."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines, found = source.split("\n"), {}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        texts: list[str] = []
        above = node.lineno - 2
        while above >= 0 and lines[above].strip().startswith("#"):
            texts.insert(0, lines[above].strip(" #"))
            above -= 1
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            comment = re.search(r"  # (?!type:|noqa)(.*)$", lines[number])
            texts += [comment[1].strip()] if comment else []
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            texts.append(" ".join(after.value.value.split()))
        found[node.target.id] = " ".join(texts)
    return found


def escaped(text: str) -> str:
    """Return text with Markdown characters escaped; code between backticks is unchanged."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_\[\]<>|])", r"\\\1", p) for p in pieces)


def cell(text: str) -> str:
    """Return text for a cell of a table."""
    return escaped(" ".join(text.split())).strip()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def file_of(place: str) -> str:
    """Return the name of the page of a family, without its suffix."""
    return place.rpartition(".")[2]


def joined(lines: Iterable[str]) -> str:
    """Join the lines of a page, with one empty line between paragraphs."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"

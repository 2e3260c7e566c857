"""Columns of tables with features: found by their names, with ids and labels beside them."""

from __future__ import annotations

from collections.abc import Sequence

from quorank.errors import brief, require

QUERY, DOCUMENT, LABEL = "qid", "docid", "label"
BESIDE = (QUERY, DOCUMENT, LABEL)
"""Columns of a table that are no features."""
LISTED = 8
"""Names that a sentence lists."""


def check_columns(names: Sequence[str], wanted: Sequence[str], where: str = "columns") -> None:
    """Refuse a table that lacks one of the wanted columns, or has others than these and `BESIDE`."""
    have = {*names}
    missing = [name for name in wanted if name not in have]
    sentence = f"the ranker's {_listed(missing)} not among the {len(names)} columns; rename columns, or add empty ones"
    require(not missing, "features.missing-columns", sentence, where)
    known = {*wanted, *BESIDE}
    further = [name for name in names if name not in known]
    sentence = f"{_listed(further)} no feature of the ranker; remove what it does not rank by"
    require(not further, "features.further-columns", sentence, where)
    require(len(have) == len(names), "features.columns-twice", "expected each column once", where)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(brief(name) for name in names[:LISTED]) + (", …" if len(names) > LISTED else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'}"

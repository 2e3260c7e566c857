"""Definitions of text features in the README of an export, so that an engine can compute them."""

from __future__ import annotations

from quorank.rankers.ranker_file import SavedRanker
from quorank.silos.training.ranked_search import EVIDENCE, search_of_ranker
from quorank.text.features import FEATURE_NAMES, FIELD_DEFINITIONS, SYMBOLS


def text_feature_notes(saved: SavedRanker) -> str:
    """Return the definitions of a ranker's text features, in Markdown; empty for other features."""
    formulas = dict(zip(FEATURE_NAMES, FIELD_DEFINITIONS * 2, strict=True)) | EVIDENCE
    known = [name for name in saved.feature_names if name in formulas]
    if "BM25 of body" not in known:
        return ""
    notes = "Text features to compute for each query and document. " + SYMBOLS + ". "
    if search_of_ranker(saved) is not None:
        notes += (
            "The body holds title and body. Words are stemmed and stop words removed in the group's language. The ranker "
            'orders the first 100 documents by "BM25 of body"; each feature is normalised to [0, 1] among them, and '
            "a constant one is 0."
        )
    rows = [f"| {name} | {formulas[name]} |" for name in known]
    return "\n".join([notes.rstrip(), "", "| feature | formula |", "|---|---|", *rows])

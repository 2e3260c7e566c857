"""Likeness to the first results, against the feedback of `quorank.text` with nothing of the query in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from indexed_things import TOKENISER, indexed, made_up_things, thing

from quorank.search.index import SearchIndex, likeness, parse_query
from quorank.search.sources.source import FoundDocument
from quorank.text import Document, IndexedDocuments
from quorank.text.feedback import Feedback


def expected(things: list[FoundDocument], query: str) -> dict[str, float]:
    """Σ_t p̂(t)·BM25(t, d) by key: the expanded query with α = 1, which leaves nothing of the query itself."""
    documents = [Document(one.key, one.title, one.body) for one in things]
    index = IndexedDocuments.build(documents, TOKENISER, whole=True).body
    terms = index.term_ids(TOKENISER.tokenise(query))
    feedback = Feedback(likeness.DOCUMENTS, likeness.TERMS, share=1.0)
    scores = feedback.scores(index, terms, index.bm25(np.unique(terms)))
    return {one.key: float(score) for one, score in zip(things, scores, strict=True)}


def assert_like(index: SearchIndex, things: list[FoundDocument], query: str) -> None:
    found = index.find(parse_query(query), 10_000)
    assert len(found) > likeness.DOCUMENTS
    wanted = expected(things, query)
    np.testing.assert_allclose(found.likeness, [wanted[key] for key in found.keys], rtol=1e-9, atol=1e-12)


def test_likeness_is_the_feedback_of_quorank_text(tmp_path: Path) -> None:
    things = made_up_things(200)
    with indexed(tmp_path, things) as index:
        for query in ("wb1bing wc2c", "we4es wf5fed wg6g"):
            assert_like(index, things, query)


def test_without_words_nothing_is_like_anything(tmp_path: Path) -> None:
    with indexed(tmp_path, [thing(f"{n}", "rose", modified=float(n)) for n in range(5)]) as index:
        assert index.find(parse_query("since:1d"), 10).likeness.tolist() == [0.0] * len(
            index.find(parse_query("since:1d"))
        )
        found = index.find(parse_query("rose"), 10)
        assert found.likeness == pytest.approx(found.likeness[0])

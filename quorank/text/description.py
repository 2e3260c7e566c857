"""Statistics of a text collection: sizes, lengths, grades and language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from quorank.text.collection import TextCollection
from quorank.text.languages import language_of
from quorank.text.tokens import normalised_words


def describe_text(collection: TextCollection) -> dict[str, Any]:
    """Return the statistics of a collection for JSON; lengths are mean numbers of words."""
    grades = Counter(grade for of_query in collection.judgements.values() for grade in of_query.values())
    detected = language_of(collection)
    documents, queries = collection.documents, collection.queries
    return {
        "name": collection.name,
        "kind": "text",
        "format": collection.format,
        "documents": len(documents),
        "queries": len(queries),
        "judged_queries": len(collection.judgements),
        "judgements": collection.n_judgements,
        "grades": {str(grade): grades[grade] for grade in sorted(grades)},
        "mean_words": {
            "title": _mean_words(document.title for document in documents),
            "body": _mean_words(document.body for document in documents),
            "query": _mean_words(query.text for query in queries),
        },
        "language": {
            "language": detected.language,
            "candidates": [{"language": name, "share": share} for name, share in detected.candidates],
            "words": detected.words,
            "told": str(detected),
        },
        "skipped": {reason: asdict(left_out) for reason, left_out in collection.skipped.items()},
    }


def _mean_words(texts: Iterable[str]) -> float | None:
    lengths = [len(normalised_words(text).split()) for text in texts]
    return sum(lengths) / len(lengths) if lengths else None

"""Likeness of documents to the first results of a query.

It is BM25 of the words that distinguish the best documents of a query, by pseudo-relevance feedback (`text.feedback`):
the first m documents by BM25 give p(t), the probability of a term in an answer; the n terms with the largest
p(t)·IDF(t) are taken, and a document's likeness is Σ_t w(t)·BM25(t, d). A document that answers a query in other words
rises, and one that contains its words by chance falls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quorank.kernels.arrays import Doubles, Integers
from quorank.search.index.reading import SegmentReader, field_statistics
from quorank.text.collection import Document
from quorank.text.features import Features, bm25_robertson, idf_smoothed
from quorank.text.feedback import telling_terms
from quorank.text.index import picked, whole_text

FEATURES = Features()
DOCUMENTS = 8  # number of first documents, m
TERMS = 10  # number of terms taken from them, n
CHARACTERS = 1500  # characters read from the beginning of each document


def bm25(counts: Doubles, lengths: Doubles, mean_length: float) -> Doubles:
    """Compute BM25 without IDF."""
    return bm25_robertson(counts, lengths, mean_length, FEATURES.k1, FEATURES.b)


def likeness(rows: Integers, scores: Doubles, reader: SegmentReader) -> Doubles:
    """Compute (documents,) the likeness of documents, by their rows and BM25, to those with the highest BM25."""
    out, columns = np.zeros(len(rows)), reader.loaded.columns
    first = np.lexsort((columns["id"][rows], -scores))[:DOCUMENTS]
    first = first[scores[first] > 0.0]
    if not len(first):
        return out
    likely = _likely_terms(columns["id"][rows[first]].tolist(), scores[first].tolist(), reader)
    terms = sorted(likely)
    hashes = np.array([reader.hash(term) for term in terms], dtype=np.uint64)
    held = reader.frequencies("body", hashes)  # in the directories of segments: dead rows count until a merge
    idf = idf_smoothed(max(float(len(reader.loaded.alive)), 1.0), held)
    best, _ = telling_terms(np.array([likely[term] for term in terms]), idf, TERMS)
    postings = reader.postings("body", *hashes[best].tolist())
    known = field_statistics("body", postings, reader.loaded)
    idf = FEATURES.inverse_document_frequency(known)
    kept, weights = telling_terms(np.array([likely[terms[place]] for place in best]), idf, TERMS)
    lengths = columns["body_length"][rows]
    for place, weight in zip(kept.tolist(), weights.tolist(), strict=True):
        counts = picked(postings[place].rows, postings[place].counts, rows, 0.0)
        out += weight * idf[place] * bm25(counts, lengths, known.mean_length)
    return out


def _likely_terms(ids: Sequence[int], scores: Sequence[float], reader: SegmentReader) -> dict[str, float]:
    """Return p(t) = Σ_d s_d/Σ s · c(t, d)/L_d of the terms in the beginnings of documents with scores s above 0."""
    found = reader.fetch(
        "SELECT documents.id, title, substr(body, 1, ?) FROM documents JOIN texts ON texts.id = documents.id"
        f" WHERE documents.id IN ({','.join(map(str, ids))})",
        CHARACTERS,
    )
    texts = {number: whole_text(Document("", title, body)) for number, title, body in found}
    likely, total = dict[str, float](), sum(scores)
    for number, score in zip(ids, scores, strict=True):
        terms = reader.tokeniser.tokenise(texts[number])
        for term in terms:
            likely[term] = likely.get(term, 0.0) + score / total / len(terms)
    return likely

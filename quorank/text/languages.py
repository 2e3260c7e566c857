"""Language and statistics of a collection.

The language is detected by function words, which are a tenth to a half of all words in most text. The share of each
language's function words is counted in a bounded sample, spread evenly over the texts. Keywords of programming languages
(`in`, `for`, `do`, …) and single Latin letters do not count, so that code and formulas have no language; English loses
most by that, and English passages do not change the language of the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from quorank.text.collection import TextCollection
from quorank.text.function_words import FUNCTION_WORDS, Language
from quorank.text.tokens import normalised_words

MOST_TEXTS = 1000  # maximum number of texts in a sample
MOST_CHARACTERS = 2000  # characters read from the beginning of each document
FEWEST_WORDS = 20  # minimum number of words for a detection
LEAST_SHARE = 0.06
"""Minimum share of function words; below it the text is a list of names, code, or in another language."""
LEAST_WORDS = 3  # minimum number of distinct function words
LEAST_RATIO = 1.1  # least ratio of the first language's share to the second's

_OF_PROGRAMS = {
    "all", "and", "as", "by", "case", "do", "else", "end", "for", "from", "if", "in", "is", "let", "no", "not", "on",
    "or", "out", "this", "to", "var", "while", "with",
}  # fmt: skip
_TELLING = {
    language: tuple(word for word in words if word not in _OF_PROGRAMS and not (len(word) == 1 and word.isascii()))
    for language, words in FUNCTION_WORDS.items()
}


@dataclass(frozen=True)
class DetectedLanguage:
    """Language of some texts, None where there is too little text or nothing stands out, with the two best candidates."""

    language: Language | None
    candidates: tuple[tuple[Language, float], ...]  # at most two, best first, each with its share of the words
    words: int  # of the sample

    def __str__(self) -> str:
        shares = [f"{language} ({share:.0%} function words)" for language, share in self.candidates]
        if self.language is not None:
            return shares[0]
        if self.words < FEWEST_WORDS:
            return "unknown: too little text"
        return f"unknown: {' or '.join(shares)}" if shares else "unknown: no function words of a language that is known"


def detect_language(texts: Sequence[str]) -> DetectedLanguage:
    """Return the language whose function words have the largest share in a sample of the texts, in linear time.

    >>> detect_language(["Das ist nicht das Haus, von dem sie auf der Reise erzählt hat, und auch nicht der Garten, "
    ...                  "den wir mit einem Freund nach dem Essen gesehen haben."]).language
    'german'
    """
    counts: Counter[str] = Counter()
    for text in texts[:: -(-len(texts) // MOST_TEXTS) or 1]:
        counts.update(normalised_words(text[:MOST_CHARACTERS]).decode().split())
    total = counts.total()
    found = {language: [counts[word] for word in words if word in counts] for language, words in _TELLING.items()}
    order = sorted((language for language in found if found[language]), key=lambda language: -sum(found[language]))
    candidates = tuple((language, sum(found[language]) / total) for language in order[:2])
    if not candidates or total < FEWEST_WORDS:
        return DetectedLanguage(None, candidates, total)
    best, share = candidates[0]
    second = candidates[1][1] if len(candidates) > 1 else 0.0
    clear = share >= LEAST_SHARE and len(found[best]) >= LEAST_WORDS and share >= LEAST_RATIO * second
    return DetectedLanguage(best if clear else None, candidates, total)


def language_of(collection: TextCollection) -> DetectedLanguage:
    """Return the language of a collection's documents."""
    sample = collection.documents[:: -(-len(collection.documents) // MOST_TEXTS) or 1]
    return detect_language([f"{each.title[:MOST_CHARACTERS]}\n{each.body[:MOST_CHARACTERS]}" for each in sample])


def describe_text(collection: TextCollection) -> dict[str, Any]:
    """Return the statistics of a collection for JSON; lengths are mean numbers of words."""
    grades = Counter(grade for of_query in collection.judgements.values() for grade in of_query.values())
    documents, queries, detected = collection.documents, collection.queries, language_of(collection)
    return {
        "name": collection.name,
        "kind": "text",
        "format": collection.format,
        "documents": len(documents),
        "queries": len(queries),
        "judged_queries": len(collection.judgements),
        "judgements": grades.total(),
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

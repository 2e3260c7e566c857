"""Index of a person's documents: SQLite FTS5 for words, postings for ranking, the query language, snippets."""

from quorank.search.index.candidates import ALL_WORDS, BEGINNING, EXACT, SOME_WORDS, SearchCandidates
from quorank.search.index.query import Clause, SearchQuery, parse_query
from quorank.search.index.search_index import SearchIndex, StoredSource, UpdateReport
from quorank.search.index.snippets import SnippetPiece, make_snippet

__all__ = [
    "ALL_WORDS", "BEGINNING", "EXACT", "SOME_WORDS", "Clause", "SearchCandidates", "SearchIndex",
    "SearchQuery", "SnippetPiece", "StoredSource", "UpdateReport", "make_snippet",
    "parse_query",
]  # fmt: skip

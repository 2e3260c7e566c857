"""Index of a person's documents: SQLite FTS5 for words, postings for ranking, the query language, snippets."""

from quorank.search.index.candidates import SearchCandidates
from quorank.search.index.query import Clause, SearchQuery, parse_query
from quorank.search.index.search_index import SearchIndex, UpdateReport
from quorank.search.index.snippets import SnippetPiece, make_snippet

__all__ = [
    "Clause", "SearchCandidates", "SearchIndex", "SearchQuery", "SnippetPiece", "UpdateReport", "make_snippet",
    "parse_query",
]  # fmt: skip

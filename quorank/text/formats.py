"""Names of the readable formats of text collections, for help and errors; importable without NumPy."""

from __future__ import annotations

TEXT_FORMATS = ("BEIR", "JSON lines", "SMART", "TREC", "Reuters SGML", "folder of text files", "mbox")
"""Names of the formats, as `TextCollection.format` has them."""
NAMED_FORMATS = f"{', '.join(TEXT_FORMATS[:-1])} or {TEXT_FORMATS[-1]}"
"""The formats in one line, for an option's help."""
LAYOUTS = (
    "a folder with corpus.jsonl (BEIR) or its zip file, a .jsonl file, SMART records (.I .T .W), "
    "TREC text (<DOC>), Reuters SGML (<REUTERS>), a folder of .txt or .md files, or an mbox file"
)
"""Layouts of the formats, for errors."""

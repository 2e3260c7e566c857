"""Atomic writes, validated documents, arrays and tables, and bounded reading of untrusted files."""

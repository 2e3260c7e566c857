"""Command line: one module a verb."""

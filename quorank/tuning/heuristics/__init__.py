"""Heuristics with named weights: frecency, Firefox's 22 weights, mail search, and constraints on weights."""

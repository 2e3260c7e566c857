"""Figures that no grid of runs measures: one study a file."""

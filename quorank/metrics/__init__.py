"""Metrics of ranked lists, evaluation of rankers on a split, significance of differences."""

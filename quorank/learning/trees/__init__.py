"""Regression trees for ranking from integer histograms: gradients, bins, histograms, splits."""

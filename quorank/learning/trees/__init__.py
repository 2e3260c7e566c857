"""Regression trees for ranking from histograms of whole numbers: gradients, bins, histograms, splits."""

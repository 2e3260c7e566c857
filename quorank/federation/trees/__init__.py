"""Trees grown by a federation from sums of histograms."""

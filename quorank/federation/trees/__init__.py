"""Trees grown by many clients: how their histograms become one, and what a round is."""

"""Ranking of the candidates of a search: features, bands, the shipped ranker, and its changes by a person's choices."""

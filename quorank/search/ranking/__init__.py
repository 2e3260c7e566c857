"""Order of what a search found: features, bands, the shipped ranker, and what a person's choices change."""

"""Models read back from exported files, each by its format's published description and by nothing else of the ranker."""

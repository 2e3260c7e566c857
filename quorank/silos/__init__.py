"""Cross-silo learning: several organisations build one ranker from documents and queries that none of them shows."""

"""Fuzzing of every parser of Quorank: targets, a corpus, and the engine that runs them (`python3 tasks.py fuzz`)."""

"""Clients that leave: their requests, the rebuilding of a ranker without them, and what that spends."""

"""Unlearning of clients in a finished run: the request, its commit, and the records that it leaves."""

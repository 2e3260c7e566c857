"""Coordinator of a group of parties, without any network: what it hears, what it asks, and when it is done."""

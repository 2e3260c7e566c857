"""Runs that grow trees: what they may hold, and how they are played."""

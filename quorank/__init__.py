"""Quorank: one ranker learned from many people's searches, without collecting them."""

__version__ = "0.1.0"

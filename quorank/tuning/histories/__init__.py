"""Browsing histories: read from browsers, generated, and simulated people who search them."""

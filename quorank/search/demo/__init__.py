"""Demonstration that needs nobody's data: made-up persons who search through their real pages, alone and together."""

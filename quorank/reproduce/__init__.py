"""Reproduction of the papers' figures and tables: figure files, their runs, and findings counted."""

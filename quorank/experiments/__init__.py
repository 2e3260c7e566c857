"""Experiments: an experiment file becomes a run with a directory of its own."""

"""Experiments: an experiment file becomes a run with its own directory."""

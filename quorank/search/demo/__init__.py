"""Demonstration on generated data: simulated persons search, alone and in a federation."""

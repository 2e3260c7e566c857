"""Sketches of documents: hash functions, Count Sketch, NAIVE, the RTK-Sketch, and their measurement."""

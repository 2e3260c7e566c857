"""CS-F-LTR as published: reverse top-K sketches, questions about terms, instances, and round-robin training."""

"""Search over the documents of all parties: one question, noisy answers within a budget, one ranked list."""

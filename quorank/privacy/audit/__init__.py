"""Audits of a run's privacy claim: canaries with a lower bound on ε, noise subtraction, reconstruction of clicks."""

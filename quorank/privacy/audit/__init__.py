"""Audits of a run's privacy claim: canaries with a lower bound on ε, reconstruction of clicks from updates."""

"""Audits of a run's privacy claim: canary clients, the bound on ε from right guesses, and clicks guessed from updates."""

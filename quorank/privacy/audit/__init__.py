"""Audits of a run's privacy claim: canaries, the bound on ε from right guesses, noise taken off, clicks guessed."""

"""Logs of real clicks in one form: who searched when, the list that was shown, its features and what was clicked."""

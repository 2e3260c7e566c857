"""Processes that hold what a folder runs: a coordinator of devices, a group, a tuning."""

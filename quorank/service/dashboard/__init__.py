"""What a federation, a group, a tuning or a run shows while it goes on: its status, events, metrics and page."""

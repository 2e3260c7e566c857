"""Status, events, metrics and page of a federation, group, tuning or run in progress."""

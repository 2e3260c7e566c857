"""A person's side: a private store, lists and clicks, answers to tasks, leaving, and the line to the service."""

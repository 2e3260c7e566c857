"""An organisation's side of a group: its documents, what it asks, answers and learns, and the line to the service."""

"""Party of a group, without any network: what it hears, asks, answers and learns, and its memory on disk."""

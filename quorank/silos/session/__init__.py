"""Session of a group: terms, key agreement and sealed channels, records, and the coordinator that relays and sums."""

"""Learning across parties: what they hold, instances, exchanged answers, training, comparison."""

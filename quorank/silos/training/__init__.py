"""Learning across parties: searched lists, trainings by sums over all parties, shared term statistics, comparison."""

"""Ways to execute the rounds of a federation."""

"""Pages of a person's search on their own machine: searching, what was learned and sent, sources; and JSON for programs."""

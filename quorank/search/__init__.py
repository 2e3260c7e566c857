"""Desktop search application: sources, index, ranking and pages."""

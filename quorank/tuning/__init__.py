"""Hand-made scoring functions tuned in the field: constraints, histories, studies."""

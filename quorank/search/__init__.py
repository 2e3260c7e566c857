"""The application on a person's machine: sources, index, ranking, pages."""

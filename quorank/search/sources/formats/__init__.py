"""File formats: from the bytes of a file to its title and text."""

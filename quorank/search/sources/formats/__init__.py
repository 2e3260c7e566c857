"""One file format a file: from the bytes of a file to its title and text."""

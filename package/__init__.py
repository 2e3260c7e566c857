"""The package as it is published: its page on the index, and the program that builds and tries it."""

"""LETOR (SVMlight) text: the reader, its compiled kernel, and the writer."""

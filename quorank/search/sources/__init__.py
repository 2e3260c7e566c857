"""Where the documents of a person come from."""

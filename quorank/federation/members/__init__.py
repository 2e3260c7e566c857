"""What a member and its service agree on: invitation, terms, keys, requests, the line between them, and leaving."""

"""The store of a service in SQLite or PostgreSQL, what is committed to it and how, and its backups."""

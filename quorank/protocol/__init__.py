"""Messages, terms, keys and signatures that a service and its members exchange, and the HTTPS client."""

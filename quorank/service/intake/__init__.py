"""HTTPS intake of a service: the calls of docs/protocol.md, bounds on traffic, and the worker process that answers."""

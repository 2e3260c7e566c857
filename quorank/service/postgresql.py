"""PostgreSQL as a service's store, for several workers and hosts."""

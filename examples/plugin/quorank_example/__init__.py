"""Parts for Quorank in a package of their own."""

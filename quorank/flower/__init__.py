"""Experiments on the nodes of a Flower network: `engine` brings one up on this machine and plays rounds over it."""

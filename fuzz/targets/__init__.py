"""Targets by the package of their parser; importing this module registers all of them."""

from fuzz.targets import (
    data,
    experiments,
    export,
    federation,
    logs,
    network,
    privacy,
    search,
    service,
    silos,
    text,
    tuning,
)

__all__ = [
    "data",
    "experiments",
    "export",
    "federation",
    "logs",
    "network",
    "privacy",
    "search",
    "service",
    "silos",
    "text",
    "tuning",
]

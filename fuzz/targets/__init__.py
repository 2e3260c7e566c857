"""The targets, by the room of the house that their parser stands in; importing this registers all of them."""

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

"""A member's side of a federation: private store, membership, and the applications' classes `Client` and `Tuner`.

A device that learns a ranker:

    with Client.open("folder", "invitation.json") as client:
        client.consent(True)  # once, when the person has agreed
        shown = client.rank(features)
        client.record(shown, clicks)
        client.sync()

A device that tunes the constants of a heuristic:

    with Tuner.open("folder", heuristic, "invitation.json") as tuner:
        tuner.consent(True)
        weights = tuner.weights()
        tuner.record(items)
        tuner.sync()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorank.member.client import Client
    from quorank.member.sync import SyncReport
    from quorank.member.tuner import Tuner

__all__ = ["Client", "SyncReport", "Tuner"]

_HOMES = {"Client": "client", "SyncReport": "sync", "Tuner": "tuner"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

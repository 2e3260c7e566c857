"""A person's side: a private store, lists and clicks, answers to tasks, leaving, and the line to the service.

Applications use `Client`:

    with Client.open("folder", "invitation.json") as client:
        client.consent(True)  # once, when the person has agreed
        shown = client.rank(features)
        client.record(shown, clicks)
        client.sync()

or, where the constants of a heuristic of theirs are tuned, `Tuner`:

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
    from quorank.member.membership import SyncReport
    from quorank.member.tuner import Tuner

__all__ = ["Client", "SyncReport", "Tuner"]

_HOMES = {"Client": "client", "SyncReport": "membership", "Tuner": "tuner"}


def __getattr__(name: str) -> Any:
    """Load what is asked for, and nothing before."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""A person's side: a private store, lists and clicks, answers to tasks, leaving, and the line to the service.

Applications use `Client`:

    with Client.open("folder", "invitation.json") as client:
        shown = client.rank(features)
        client.record(shown, clicks)
        client.sync()

or, where the constants of a heuristic of theirs are tuned, `Tuner`:

    with Tuner.open("folder", heuristic, "invitation.json") as tuner:
        weights = tuner.weights()
        tuner.record(items)
        tuner.sync()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorank.device.client import Client
    from quorank.device.exchange import SyncReport
    from quorank.device.tuner import Tuner

__all__ = ["Client", "SyncReport", "Tuner"]


def __getattr__(name: str) -> Any:
    """Load what is asked for, and nothing before."""
    if name == "Client":
        from quorank.device.client import Client

        return Client
    if name == "SyncReport":
        from quorank.device.exchange import SyncReport

        return SyncReport
    if name == "Tuner":
        from quorank.device.tuner import Tuner

        return Tuner
    raise AttributeError(name)

"""A person's side: a private store, lists and clicks, answers to tasks, leaving, and the line to the service.

Applications use `Client`:

    with Client.open("folder", "invitation.json") as client:
        shown = client.rank(features)
        client.record(shown, clicks)
        client.sync()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorank.device.client import Client
    from quorank.device.exchange import SyncReport

__all__ = ["Client", "SyncReport"]


def __getattr__(name: str) -> Any:
    """Load what is asked for, and nothing before."""
    if name == "Client":
        from quorank.device.client import Client

        return Client
    if name == "SyncReport":
        from quorank.device.exchange import SyncReport

        return SyncReport
    raise AttributeError(name)

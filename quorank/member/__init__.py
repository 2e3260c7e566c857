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

from typing import TYPE_CHECKING

from quorank import lazy_exports

if TYPE_CHECKING:
    from quorank.member.client import Client
    from quorank.member.policy import Policy
    from quorank.member.sync import SyncReport
    from quorank.member.tuner import Tuner

__all__ = ["Client", "Policy", "SyncReport", "Tuner"]

__getattr__ = lazy_exports(
    __name__,
    {
        "quorank.member.client": "Client",
        "quorank.member.policy": "Policy",
        "quorank.member.sync": "SyncReport",
        "quorank.member.tuner": "Tuner",
    },
)

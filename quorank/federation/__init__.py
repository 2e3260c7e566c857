"""Federation: how the updates of many clients become one ranker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorank.federation.participation import PARTICIPATIONS, Arrivals, Full, Participation, Poisson, Sampled
    from quorank.federation.personal import PERSONALISATIONS, LocalOffset, OutputLayer, Personalisation, Shared
    from quorank.federation.rounds import CohortSum, Federation, Report, State
    from quorank.federation.rules import AGGREGATIONS, Aggregation
    from quorank.federation.rules.krum import Krum, MultiKrum
    from quorank.federation.rules.mean import Mean
    from quorank.federation.rules.trimmed import Median, TrimmedMean
    from quorank.federation.server_optimisers import SERVERS, Adam, Add, Momentum, Rprop, Server

__all__ = [
    "AGGREGATIONS", "PARTICIPATIONS", "PERSONALISATIONS", "SERVERS", "Adam", "Add", "Aggregation", "Arrivals", "CohortSum",
    "Federation", "Full", "Krum", "LocalOffset", "Mean", "Median", "Momentum", "MultiKrum", "OutputLayer",
    "Participation", "Personalisation", "Poisson", "Report", "Rprop", "Sampled", "Server", "Shared", "State",
    "TrimmedMean",
]  # fmt: skip

_HOMES = {
    "quorank.federation.participation": ("PARTICIPATIONS", "Arrivals", "Full", "Participation", "Poisson", "Sampled"),
    "quorank.federation.personal": ("PERSONALISATIONS", "LocalOffset", "OutputLayer", "Personalisation", "Shared"),
    "quorank.federation.rounds": ("CohortSum", "Federation", "Report", "State"),
    "quorank.federation.rules": ("AGGREGATIONS", "Aggregation"),
    "quorank.federation.rules.krum": ("Krum", "MultiKrum"),
    "quorank.federation.rules.mean": ("Mean",),
    "quorank.federation.rules.trimmed": ("Median", "TrimmedMean"),
    "quorank.federation.server_optimisers": ("SERVERS", "Adam", "Add", "Momentum", "Rprop", "Server"),
}
"""Where each name is; loaded when it is asked for, since a device needs few of them."""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

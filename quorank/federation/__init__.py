"""Federation: rounds that combine the updates of many clients into one ranker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorank import lazy_exports

if TYPE_CHECKING:
    from quorank.federation.participation import PARTICIPATIONS, Arrivals, Full, Participation, Poisson, Sampled
    from quorank.federation.personal import PERSONALISATIONS, LocalOffset, OutputLayer, Personalisation, Shared
    from quorank.federation.rounds import CohortSum, Federation, Report, State
    from quorank.federation.rules import AGGREGATIONS, Aggregation
    from quorank.federation.rules.centres import Median, TrimmedMean
    from quorank.federation.rules.neighbours import Krum, MultiKrum
    from quorank.federation.rules.rule import Mean
    from quorank.federation.server_optimisers import SERVERS, Adam, Add, Momentum, Rprop, Server

__all__ = [
    "AGGREGATIONS", "PARTICIPATIONS", "PERSONALISATIONS", "SERVERS", "Adam", "Add", "Aggregation", "Arrivals", "CohortSum",
    "Federation", "Full", "Krum", "LocalOffset", "Mean", "Median", "Momentum", "MultiKrum", "OutputLayer",
    "Participation", "Personalisation", "Poisson", "Report", "Rprop", "Sampled", "Server", "Shared", "State",
    "TrimmedMean",
]  # fmt: skip

__getattr__ = lazy_exports(
    __name__,
    {
        "quorank.federation.participation": "PARTICIPATIONS Arrivals Full Participation Poisson Sampled",
        "quorank.federation.personal": "PERSONALISATIONS LocalOffset OutputLayer Personalisation Shared",
        "quorank.federation.rounds": "CohortSum Federation Report State",
        "quorank.federation.rules": "AGGREGATIONS Aggregation",
        "quorank.federation.rules.neighbours": "Krum MultiKrum",
        "quorank.federation.rules.rule": "Mean",
        "quorank.federation.rules.centres": "Median TrimmedMean",
        "quorank.federation.server_optimisers": "SERVERS Adam Add Momentum Rprop Server",
    },
)

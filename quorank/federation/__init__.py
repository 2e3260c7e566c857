"""Federation: how the updates of many clients become one ranker."""

from quorank.federation.participation import PARTICIPATIONS, Arrivals, Full, Participation, Poisson, Sampled
from quorank.federation.personal import PERSONALISATIONS, LocalOffset, OutputLayer, Personalisation, Shared
from quorank.federation.rounds import CohortSum, Federation, Report, State
from quorank.federation.rules import AGGREGATIONS, Aggregation
from quorank.federation.rules.krum import Krum, MultiKrum
from quorank.federation.rules.mean import Mean
from quorank.federation.rules.trimmed import Median, TrimmedMean
from quorank.federation.server_optimisers import SERVERS, Adam, Add, Momentum, Rprop, Server
from quorank.federation.simulator import Simulator

__all__ = [
    "AGGREGATIONS", "PARTICIPATIONS", "PERSONALISATIONS", "SERVERS", "Adam", "Add", "Aggregation", "Arrivals", "CohortSum",
    "Federation", "Full", "Krum", "LocalOffset", "Mean", "Median", "Momentum", "MultiKrum", "OutputLayer", "Participation",
    "Personalisation", "Poisson", "Report", "Rprop", "Sampled", "Server", "Shared", "Simulator", "State", "TrimmedMean",
]  # fmt: skip

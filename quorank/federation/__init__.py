"""How many updates become one ranker."""

from quorank.federation.mean import AGGREGATIONS, Aggregation, Mean
from quorank.federation.participation import PARTICIPATIONS, Full, Participation, Poisson, Sampled
from quorank.federation.rounds import Federation, Gathered, Report, State
from quorank.federation.servers import SERVERS, Adam, Add, Momentum, Server
from quorank.federation.simulator import Simulator

__all__ = [
    "AGGREGATIONS", "PARTICIPATIONS", "SERVERS", "Adam", "Add", "Aggregation", "Federation", "Full", "Gathered", "Mean",
    "Momentum", "Participation", "Poisson", "Report", "Sampled", "Server", "Simulator", "State",
]  # fmt: skip

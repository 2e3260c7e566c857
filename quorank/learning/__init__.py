"""Learning of one client from its own interactions."""

from quorank.learning.client_loop import Simulation
from quorank.learning.counterfactual import Counterfactual
from quorank.learning.dueling import DBGD, MGD
from quorank.learning.evolution import Evolution
from quorank.learning.lambdamart import LambdaMART
from quorank.learning.learner import Learner
from quorank.learning.online import OnlineRanker, Shown
from quorank.learning.pairrank import PairRank
from quorank.learning.pdgd import PDGD
from quorank.parts import Family

LEARNERS: Family[Learner] = Family(
    "learner", PDGD, Evolution, Counterfactual, DBGD, MGD, PairRank, LambdaMART, base=Learner
)  # a new one: its file, its name here

__all__ = [
    "DBGD",
    "LEARNERS",
    "MGD",
    "PDGD",
    "Counterfactual",
    "Evolution",
    "LambdaMART",
    "Learner",
    "OnlineRanker",
    "PairRank",
    "Shown",
    "Simulation",
]

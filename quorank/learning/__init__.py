"""Learning of one client from its own interactions."""

from quorank.learning.evolution import Evolution
from quorank.learning.learner import Learner
from quorank.learning.online import OnlineRanker, Shown
from quorank.learning.pdgd import PDGD
from quorank.learning.simulation import Simulation
from quorank.parts import Family

LEARNERS: Family[Learner] = Family("learner", PDGD, Evolution, base=Learner)  # a new one: its file, its name here

__all__ = ["LEARNERS", "PDGD", "Evolution", "Learner", "OnlineRanker", "Shown", "Simulation"]

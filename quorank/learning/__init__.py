"""How one client learns from its own interactions."""

from quorank.learning.evolution import Evolution
from quorank.learning.online import OnlineRanker, Shown
from quorank.learning.pdgd import PDGD
from quorank.learning.simulation import Simulation
from quorank.parts import Family

Learner = PDGD | Evolution
LEARNERS: Family[Learner] = Family("learner", PDGD, Evolution)  # a new learner: its file, and its name here

__all__ = ["LEARNERS", "PDGD", "Evolution", "Learner", "OnlineRanker", "Shown", "Simulation"]

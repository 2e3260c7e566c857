"""A small federation from Python: parts are values, rounds are pure steps on explicit state."""

from quorank.data import DataSource, load
from quorank.engines.process import Simulator
from quorank.federation import Add, Federation
from quorank.learning import PDGD, Simulation
from quorank.metrics.evaluator import Evaluator
from quorank.rankers import Linear
from quorank.users import Cascade

collection = load(DataSource("synthetic:mq2007"))
federation = Federation(clients=100, interactions=4, learner=PDGD(eta=0.1), server=Add(step=20.0))
users = Cascade.preset("navigational", grades=3)
simulator = Simulator(federation, Simulation(collection.train, Linear(), users, collection.grades, seed=1), threads=2)

state = simulator.initial()
for _round in range(50):
    state, report = federation.round(state, simulator.gather(state))
simulator.close()

[ndcg], [maxrr] = Evaluator(collection.test, Linear()).all_means([state.theta])
print(f"after {state.round} rounds: online nDCG@10 {report.online_ndcg:.3f}, offline {ndcg:.3f}, MaxRR {maxrr:.3f}")
assert ndcg > 0.6

"""Runs whose results must never change: every learner, privacy kind, rule, partition, server, participation and attack."""

from __future__ import annotations

import re

SMALL = (
    "data.queries=60", "federation.clients=20", "federation.rounds=12", "evaluation.every=3", "federation.keep_every=0",
)  # fmt: skip

_RUNS = r"""
plain: federation.server = add
means: federation.server = { kind = "add", step = 30.0, average = -0.5, among = [0.0, -0.9] } |
    users.preset = informational
small cohort: federation.clients = 5 | federation.server = momentum | partition = quantity
evolution: learner = evolution | partition = clicks | users.preset = navigational
explored lists: learner.temperature = 0.5 | learner.window = 2 | learner.share = 0.7 | users = position |
    federation.server = add
counterfactual: learner = { kind = "counterfactual", estimator = "dr", clip = 0.5, share = 0.3 } |
    users.preset = informational
dueling bandits: learner = dbgd | federation.personal = offset | partition = clicks
multileaved bandits: learner = mgd | ranker = { kind = "mlp", hidden = 3 } | privacy = signs
uncertain pairs: learner = pairrank | users.preset = informational | federation.server = add
randomised response: learner = evolution | privacy = randomised-response | partition = clicks
gaussian: privacy = { kind = "gaussian", noise_multiplier = 1.5, accountant = "rdp", quantile = 0.5 } |
    federation.participation = { kind = "sampled", cohort = 10 } | partition = labels
gaussian in secure sums: privacy = { kind = "gaussian", noise_multiplier = 1.5, sum = "secure", dropouts = 0.2 } |
    federation.participation = { kind = "sampled", cohort = 12 }
published: privacy = published | partition = preferences | federation.server = adam
secure sums: privacy = secure-sum | ranker = { kind = "mlp", hidden = 3 } | partition = preferences
sums in groups, with a liar: privacy = { kind = "secure-sum", groups = 4 } | federation.aggregation = trimmed-mean |
    attack = lies
signs and the median: privacy = { kind = "signs", p = 0.9 } | federation.aggregation = median |
    federation.server = rprop
krum: federation.aggregation = krum | attack = { kind = "sign-flip", clients = 2 }
multi-krum: federation.aggregation = { kind = "multi-krum", byzantine = 2 } | attack = { kind = "fang", clients = 2 }
trimmed mean: federation.aggregation = { kind = "trimmed-mean", byzantine = 2 } |
    attack = { kind = "little-is-enough", clients = 2 }
bulyan: federation.aggregation = bulyan | attack = { kind = "scaled", clients = 2 }
centred clipping: federation.aggregation = centred-clipping | attack = { kind = "clicks", clients = 2 } |
    users = position
trust bias: users = trust-bias | ranker = { kind = "mlp", hidden = 3, activation = "sigmoid" }
user browsing: users = user-browsing | learner = evolution
geometric median: federation.aggregation = geometric-median | federation.personal = offset | partition = labels |
    ranker = { kind = "mlp", hidden = 3 }
mixing: federation.aggregation = { kind = "nearest-neighbour-mixing", history = 0.9 } |
    federation.participation = full | federation.personal = fedper | ranker = { kind = "mlp", hidden = 3 }
spectral filter: federation.aggregation = { kind = "spectral-filter", byzantine = 2, history = 0.9 } |
    federation.participation = full | attack = { kind = "mimic", clients = 2 }
tailored: federation.aggregation = { kind = "trimmed-mean", byzantine = 2 } |
    attack = { kind = "tailored", clients = 2 }
two-phase: federation.aggregation = { kind = "spectral-filter", byzantine = 2, history = 0.9 } |
    federation.participation = full | federation.server = { kind = "add", average = 6.0 } |
    attack = { kind = "two-phase", clients = 2, turn = 2 }
inner product: federation.aggregation = median | attack = { kind = "inner-product", clients = 2 }
min-max: federation.aggregation = median | attack = { kind = "min-max", clients = 2 }
min-sum: federation.aggregation = median | attack = { kind = "min-sum", clients = 2 }
arrivals: federation.participation = { kind = "arrivals", enough = 8, least = 2, most = 6, rest = 1 } |
    privacy = { kind = "gaussian", noise_multiplier = 1.5 }
from weights: ranker.start = { 5 = 20.0, 13 = 10.0 } | federation.server = add
from weights at a measured scale: ranker = { kind = "mlp", hidden = 3, start = { 5 = 2.0, 13 = 1.0 },
    start_scale = "rule" } | privacy = { kind = "gaussian", noise_multiplier = 1.5 }
replayed log: data.source = synthetic:clicks | data.queries = 600 |
    partition = { kind = "users", order = "arrival", together = 5 } | users = logged | learner = counterfactual |
    federation.clients = 10 | federation.interactions = 3
people of a log: data.source = synthetic:aol | data.queries = 600 |
    partition = { kind = "users", order = "time", iid = true } | federation.clients = 8 | federation.interactions = 3
poisson: federation.participation = { kind = "poisson", rate = 0.5 }
trees: ranker = { kind = "trees", leaves = 6 } |
    learner = { kind = "lambdamart", depth = 3, least_data = 5, least_lists = 0 }
trees of clicks: ranker = { kind = "trees", leaves = 8 } |
    learner = { kind = "lambdamart", depth = 3, feedback = "clicks", least_lists = 0 } | users = position |
    privacy = secure-sum | federation.rounds = 3 | federation.clients = 4
trees with noise: ranker = { kind = "trees", leaves = 4 } |
    learner = { kind = "lambdamart", depth = 2, splits = "random", batch = 3, ridge = 10.0, quantile_releases = 2,
    least_lists = 0 } |
    privacy = { kind = "gaussian", noise_multiplier = 1.5, clip = 1.0 }
"""
"""Name of each run, and its differences from SMALL as `--set` takes them, separated by bars."""


def _read_runs() -> dict[str, tuple[str, ...]]:
    runs = {}
    for line in re.sub(r"\n +", " ", _RUNS.strip()).splitlines():
        name, _, assignments = line.partition(": ")
        runs[name] = tuple(assignments.split(" | "))
    return runs


RUNS = _read_runs() | {
    "queries of their own": ("partition.kind=assigned", f"partition.clients={[query % 20 for query in range(60)]}")
}

"""Runs whose results must never change: every learner, privacy kind, rule, partition, server, participation and attack."""

from __future__ import annotations

SMALL = (
    "data.queries=60",
    "federation.clients=20",
    "federation.rounds=12",
    "evaluation.every=3",
    "federation.keep_every=0",
)

RUNS: dict[str, tuple[str, ...]] = {
    "plain": ("federation.server=add",),
    "directions": ("federation.server=directions", "users.preset=informational"),
    "small cohort": ("federation.clients=5", "federation.server=momentum", "partition.kind=quantity"),
    "evolution": ("learner=evolution", "partition.kind=clicks", "users.preset=navigational"),
    "randomised response": ("learner=evolution", "privacy=randomised-response", "partition.kind=clicks"),
    "gaussian": (
        "privacy.kind=gaussian",
        "privacy.noise_multiplier=1.5",
        "privacy.accountant=rdp",
        "privacy.quantile=0.5",
        "federation.participation.kind=sampled",
        "federation.participation.cohort=10",
        "partition.kind=labels",
    ),
    "gaussian over rounds": (
        "privacy.kind=gaussian",
        "privacy.epsilon=30",
        "privacy.over_rounds=tree",
        "federation.server=momentum",
    ),
    "gaussian in secure sums": (
        "privacy.kind=gaussian",
        "privacy.noise_multiplier=1.5",
        "privacy.sum=secure",
        "privacy.dropouts=0.2",
        "federation.participation.kind=sampled",
        "federation.participation.cohort=12",
    ),
    "published": ("privacy=published", "partition.kind=preferences", "federation.server=adam"),
    "secure sums": ("privacy=secure-sum", "ranker.kind=mlp", "ranker.hidden=3", "partition.kind=preferences"),
    "sums in groups, with a liar": (
        "privacy.kind=secure-sum",
        "privacy.groups=4",
        "federation.aggregation.kind=trimmed-mean",
        "attack.kind=lies",
    ),
    "signs and the median": (
        "privacy.kind=signs",
        "privacy.p=0.9",
        "federation.aggregation.kind=median",
        "federation.server=rprop",
    ),
    "krum": ("federation.aggregation.kind=krum", "attack.kind=sign-flip", "attack.clients=2"),
    "multi-krum": (
        "federation.aggregation.kind=multi-krum",
        "federation.aggregation.byzantine=2",
        "attack.kind=fang",
        "attack.clients=2",
    ),
    "trimmed mean": (
        "federation.aggregation.kind=trimmed-mean",
        "federation.aggregation.byzantine=2",
        "attack.kind=little-is-enough",
        "attack.clients=2",
    ),
    "bulyan": ("federation.aggregation.kind=bulyan", "attack.kind=scaled", "attack.clients=2"),
    "centred clipping": (
        "federation.aggregation.kind=centred-clipping",
        "attack.kind=clicks",
        "attack.clients=2",
        "users.kind=position",
    ),
    "geometric median": (
        "federation.aggregation.kind=geometric-median",
        "federation.personal.kind=offset",
        "partition.kind=labels",
        "ranker.kind=mlp",
        "ranker.hidden=3",
    ),
    "mixing": (
        "federation.aggregation.kind=nearest-neighbour-mixing",
        "federation.aggregation.history=0.9",
        "federation.participation.kind=full",
        "federation.personal.kind=fedper",
        "ranker.kind=mlp",
        "ranker.hidden=3",
    ),
    "spectral filter": (
        "federation.aggregation.kind=spectral-filter",
        "federation.aggregation.byzantine=2",
        "federation.aggregation.history=0.9",
        "federation.participation.kind=full",
        "attack.kind=mimic",
        "attack.clients=2",
    ),
    "tailored": (
        "federation.aggregation.kind=trimmed-mean",
        "federation.aggregation.byzantine=2",
        "attack.kind=tailored",
        "attack.clients=2",
    ),
    "inner product": ("federation.aggregation.kind=median", "attack.kind=inner-product", "attack.clients=2"),
    "min-max": ("federation.aggregation.kind=median", "attack.kind=min-max", "attack.clients=2"),
    "min-sum": ("federation.aggregation.kind=median", "attack.kind=min-sum", "attack.clients=2"),
    "arrivals": (
        "federation.participation.kind=arrivals",
        "federation.participation.enough=8",
        "federation.participation.least=2",
        "federation.participation.most=6",
        "federation.participation.rest=1",
        "privacy.kind=gaussian",
        "privacy.noise_multiplier=1.5",
    ),
    "poisson": ("federation.participation.kind=poisson", "federation.participation.rate=0.5"),
}
"""Each run by what differs from SMALL, as `--set` takes it."""

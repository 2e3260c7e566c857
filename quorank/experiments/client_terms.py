"""The terms of a client of an experiment: what it agrees to, from the file that describes the run."""

from __future__ import annotations

from typing import cast

from quorank.errors import require
from quorank.experiments.experiment import Experiment
from quorank.learning.list_learner import ListLearner
from quorank.protocol.terms import Terms


def terms_of(
    experiment: Experiment,
    n_features: int,
    client: int,
    run: str = "run",
    interactions: int | None = None,
    report_epsilon: float = 0.0,
) -> Terms:
    """The terms of one client of an experiment."""
    federation = experiment.federation
    grows = federation.participation.open_arrivals  # more may enrol than the file plans with
    require(
        0 <= client < (2**31 if grows else federation.clients),
        "value.out-of-range",
        f"the experiment has clients 0 to {federation.clients - 1}",
        f"--client {client}",
    )
    require(
        federation.learner.learns_late,
        "option.conflict",
        f"devices learn with pdgd or counterfactual, and this run uses {federation.learner.kind}",
    )
    size = experiment.ranker.size(n_features)
    return Terms(
        run,
        client,
        n_features,
        experiment.rounds,
        federation.interactions if interactions is None else interactions,
        experiment.evaluation.k,
        experiment.keep_every,
        experiment.ranker,
        cast("ListLearner", federation.learner),
        federation.privacy,
        federation.personal,
        federation.setting(experiment.rounds, size, experiment.evaluation.k + 1),
        report_epsilon,
        federation.client_momentum,
    )

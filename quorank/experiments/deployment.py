"""Experiments that real devices play: which can be, refused before a service makes anything, and their coordinator."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

from quorank.errors import BadInput, require
from quorank.experiments.client_terms import terms_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.starting_ranker import started_experiment
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.journal import RoundStorage
from quorank.kernels.arrays import Doubles
from quorank.privacy import Setting
from quorank.privacy.mechanisms.mechanism import incomplete_noise
from quorank.privacy.mechanisms.metric_response import MetricResponse
from quorank.protocol.terms import PARTS


def check_experiment(experiment: Experiment, n_features: int = 46) -> None:
    """Refuse what real devices cannot do, and a budget within which nothing can be learned."""
    sentence = "this experiment simulates attackers; leave out [attack] for real devices"
    require(experiment.federation.attack is None, "option.conflict", sentence, "attack")
    normalize = experiment.data.normalize
    sentence = "real devices normalise their features themselves, by constants that they know: give low and high"
    require(
        not normalize.learns and normalize.epsilon is None, "normalisation.not-deployable", sentence, "data.normalize"
    )
    try:
        normalize.check_size(n_features)
    except BadInput as error:
        raise error.under("data.normalize") from None
    whole = experiment.federation
    parts: dict[str, Any] = {
        "ranker": experiment.ranker,
        "learner": whole.learner,
        "privacy": whole.privacy,
        "personal": whole.personal,
    }
    for key, part in parts.items():
        sentence = (
            f"{part.kind} is another package's, and devices run parts of Quorank alone: no name in terms makes them "
            "load anything else; choose one of Quorank's own"
        )
        require(part.kind in PARTS[key].ours, "plugin.not-deployable", sentence, key)
    _ = terms_of(experiment, n_features, 0).mechanism  # refuses noise that devices cannot draw
    drawn = not whole.privacy.adds_noise_to_masked_sums
    sentence = 'the noise of a secure sum is drawn by the devices here; set noise_by = "clients"'
    require(drawn, "option.conflict", sentence, "privacy")


def check_rounds(experiment: Experiment, least: float, report_epsilon: float) -> None:
    """Refuse rounds that end before noise in shares is complete, and reports that would tell how many were in a round
    where that must stay unknown.
    """
    privacy, participation = experiment.federation.privacy, experiment.federation.participation
    told = "a mean of reports tells how many devices were in a round, and this ε counts on nobody knowing; use sampled"
    counts = experiment.federation.assumes_secret_cohorts and not participation.fixed_size
    require(report_epsilon == 0.0 or not counts, "option.conflict", f"{told}, or no reports", "report_epsilon")
    sentence = f"{incomplete_noise(privacy.kind)}; let rounds wait for all of them with --enough 1 --least 1"
    require(least == 1.0 or not privacy.needs_equal_shares, "option.conflict", sentence, "least")


def start_of(experiment: Experiment, n_features: int) -> Doubles:
    """The ranker before the first round."""
    return experiment.ranker.initial(n_features, experiment.seed)


def setting_of(experiment: Experiment, n_features: int) -> Setting:
    """What the privacy of the experiment's run is planned for."""
    size = experiment.ranker.size(n_features)
    return experiment.federation.setting(experiment.rounds, size, experiment.evaluation.k + 1)


def deployed_coordinator(
    experiment: Experiment,
    n_features: int,
    secret: bytes,  # that its noise is drawn from
    *,
    run: str,
    seed: int,
    rules: RoundLimits,
    keeping: RoundStorage,
    clock: Callable[[], float],
    figure: MetricResponse | None,
    enrolled: Container[int],
) -> Coordinator:
    """The coordinator of an experiment that devices play, where its checkpoint stands.

    Noise that is drawn in equal shares is complete with the planned cohort only: with fewer replies a round does not end.
    """
    federation, setting = experiment.federation, setting_of(experiment, n_features)
    mechanism = federation.privacy.mechanism(setting, secret)
    state = replace(federation.start(start_of(experiment, n_features)), private=mechanism.start())
    fewest = setting.cohort if federation.privacy.needs_equal_shares else 1
    limits = replace(rules, max_interactions=setting.interactions, minimum_replies=fewest)
    whoever = enrolled if federation.participation.open_arrivals else None
    basis = (federation, mechanism, state, experiment.rounds, run, seed, limits, keeping, clock)
    return Coordinator(*basis, metric_response=figure, enrolled=whoever)


def fitted_to_data(experiment: Experiment) -> tuple[Experiment, int]:
    """The experiment with its ranker's start, and the features of its own data, where nobody says how many devices have."""
    from quorank.experiments.workload import collection_of

    collection = collection_of(experiment.data)
    n_features = collection.train.n_features
    return started_experiment(experiment, n_features, collection), n_features

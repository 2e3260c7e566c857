"""Which experiments real devices can play: refused before a service makes anything."""

from __future__ import annotations

from quorank.errors import require
from quorank.experiments.client_terms import terms_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.starting_ranker import started_experiment
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.privacy.mechanisms.mechanism import INCOMPLETE


def check_experiment(experiment: Experiment, n_features: int = 46) -> None:
    """Refuse what real devices cannot do, and a budget within which nothing can be learned."""
    sentence = "this experiment simulates attackers; leave out [attack] for real devices"
    require(experiment.federation.attack is None, "option.conflict", sentence, "attack")
    mechanism = terms_of(experiment, n_features, 0).mechanism
    drawn = not isinstance(mechanism, IntegerSums) or mechanism.variance == 0.0 or mechanism.noise_by == "clients"
    sentence = 'the noise of a secure sum is drawn by the devices here; set noise_by = "clients"'
    require(drawn, "option.conflict", sentence, "privacy")


def check_rounds(experiment: Experiment, least: float, report_epsilon: float) -> None:
    """Refuse rounds that end before noise in shares is complete, and reports that would tell how many were in a round
    where that must stay unknown.
    """
    privacy, participation = experiment.federation.privacy, experiment.federation.participation
    told = "a mean of reports tells how many devices were in a round, and this ε counts on nobody knowing; use sampled"
    counts = experiment.federation.counts_on_secret_cohorts and not participation.fixed_size
    require(report_epsilon == 0.0 or not counts, "option.conflict", f"{told}, or no reports", "report_epsilon")
    sentence = f"{INCOMPLETE.format(privacy.kind)}; let rounds wait for all of them with --enough 1 --least 1"
    require(least == 1.0 or not privacy.needs_equal_shares, "option.conflict", sentence, "least")


def fitted_to_data(experiment: Experiment) -> tuple[Experiment, int]:
    """The experiment with its ranker's start, and the features of its own data, where nobody says how many devices have."""
    from quorank.experiments.runner import collection_of

    collection = collection_of(experiment.data)
    n_features = collection.train.n_features
    return started_experiment(experiment, n_features, collection), n_features

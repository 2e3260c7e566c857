"""Constants of `data.normalize = "fixed"` that a run learns before its first round, and their entry in its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from quorank.data import Collection
from quorank.experiments.experiment import Experiment
from quorank.experiments.workload import Workload, experiment_collection
from quorank.federation.feature_ranges import learned_ranges, noise_part, range_cells, range_mechanism, range_release
from quorank.privacy.ledger import combined_privacy


def with_learned_ranges(experiment: Experiment, given: Collection | None = None) -> Experiment:
    """Return the experiment with the constants that its clients agree on; the same where it has them, or needs none.

    `given` are raw data that no file holds. A client's lists are those of its share; where all draw from the whole
    collection, queries are dealt one by one.
    """
    normalize = experiment.data.normalize
    if not normalize.learns:
        return experiment
    collection, clients = experiment_collection(experiment, given), experiment.federation.clients
    shares = Workload(experiment, collection).shares
    if shares is None:
        data = collection.train
        lists = [np.arange(client, data.n_queries, clients, dtype=np.int64) for client in range(clients)]
    else:
        data = shares.data
        spans = [np.arange(count) + first for first, count in zip(shares.first_query, shares.query_count, strict=True)]
        lists = [spans[group].astype(np.int64) for group in shares.group.tolist()]
    mechanism = None
    if normalize.epsilon is not None:
        part = noise_part(normalize.epsilon, normalize.delta)
        mechanism = range_mechanism(part, clients, data.n_features, experiment.seed)
    found = learned_ranges(range_cells(data.features, data.offsets), lists, mechanism)
    known = normalize.with_constants(np.zeros(len(found)), found)
    return replace(experiment, data=replace(experiment.data, normalize=known))


def with_ranges_entry(book: dict[str, Any], experiment: Experiment, n_features: int) -> dict[str, Any]:
    """Return a run's ledger with the release that constants were learned by; the same where they cost nothing."""
    normalize, clients = experiment.data.normalize, experiment.federation.clients
    if normalize.epsilon is None:
        return book
    part = noise_part(normalize.epsilon, normalize.delta)
    mechanism = range_mechanism(part, clients, n_features, experiment.seed)
    book = {**book, "normalisation": range_release(part, mechanism, clients, n_features)}
    return {**book, "altogether": combined_privacy(book["mechanism"], [book])}


def stated_altogether(book: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what all releases of a ledger give away together."""
    found: Mapping[str, Any] | None = book["altogether"] if "altogether" in book else book["privacy"]
    return found

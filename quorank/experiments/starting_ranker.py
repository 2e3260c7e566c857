"""Start of an experiment's ranker: what its file says of a prior, fitted to the data that it will rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quorank.data import Collection
from quorank.data.feature_names import names_of
from quorank.errors import BadInput, require
from quorank.experiments.experiment import Experiment
from quorank.learning.lambdamart import not_by_updates
from quorank.rankers.starting import started


def started_experiment(experiment: Experiment, n_features: int, collection: Collection | None = None) -> Experiment:
    """Return the experiment with a prior of numbers alone, so that it needs no other file; the same where it has none.

    The collection gives names to features and lists to measure a scale on: its validation split, which belongs to whoever
    evaluates, or else the training split.
    """
    ranker = experiment.ranker
    if experiment.federation.learner.grows_trees:
        raise not_by_updates()
    if ranker.prior is None:
        return experiment
    names = () if collection is None else names_of(experiment.data, collection)
    sample = None
    if collection is not None:
        sample = collection.train if collection.validation is None else collection.validation
    try:
        temperature = experiment.federation.learner.list_temperature
        ranker = started(ranker, n_features, experiment.data.normalize, names, sample, temperature)
    except BadInput as error:
        raise error.under("ranker") from None
    privacy, longest = experiment.federation.privacy, experiment.federation.privacy.longest_update
    if privacy.needs_client_parameters and longest is not None:
        length = float(np.linalg.norm(ranker.initial(n_features, experiment.seed)))
        sentence = (
            f"{privacy.kind} keeps a client's parameters within {longest:g} of zero, and the start is {length:.3g} long; "
            "scale it down, raise privacy.sensitivity, or choose another privacy"
        )
        require(length <= longest, "ranker.start-too-long", sentence, "ranker.start")
    return experiment if ranker == experiment.ranker else replace(experiment, ranker=ranker)

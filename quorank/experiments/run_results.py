"""Contents of a run's files: summary, ranker, and ledger entry of normalisation constants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from quorank import __version__
from quorank.experiments.experiment import Experiment
from quorank.experiments.progress import Progress
from quorank.federation.feature_ranges import noise_part, range_mechanism, range_release
from quorank.kernels.arrays import Doubles
from quorank.metrics.evaluator import Evaluator
from quorank.privacy.ledger import combined_privacy
from quorank.rankers.ranker_file import Origin, SavedRanker, stated_privacy


def summary_of(
    experiment: Experiment,
    progress: Progress,
    evaluator: Evaluator,
    test_queries: int,
    online: Mapping[str, float | None],
    privacy: Mapping[str, Any] | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """Return `summary.json` of a run, with `more` that only its kind of run has."""
    plan = experiment.evaluation
    return {
        "offline": progress.offline(),
        "online": dict(online),
        "rounds": progress.done,
        "interactions": progress.interactions,
        "seconds": {"train": progress.train_seconds, "evaluate": progress.evaluate_seconds},
        "interactions_per_second": progress.interactions / max(progress.train_seconds, 1e-9),
        "privacy": privacy,
        **more,
        "seed": experiment.seed,
        "version": __version__,
        "evaluation": {
            "k": plan.k,
            "cutoffs": sorted({10, *plan.cutoffs}),
            "no_relevant": plan.no_relevant,
            "test_queries": test_queries,
            "counted_queries": int(np.count_nonzero(evaluator.counted())),
        },
    }


def saved_ranker(
    experiment: Experiment,
    theta: Doubles,
    n_features: int,
    statement: Mapping[str, Any] | None,
    *,
    rounds: int | None = None,  # None: all of them
    names: Sequence[str] = (),
    by: Literal["run", "coordinator", "unlearning"] = "run",
) -> SavedRanker:
    """Return a run's ranker as its file holds it.

    `statement` is the privacy statement of all planned rounds, an upper bound for a ranker of fewer.
    """
    origin = Origin(
        by,
        experiment_digest(experiment),
        experiment.seed,
        experiment.rounds if rounds is None else rounds,
        stated_privacy(statement),
    )
    normalisation = experiment.data.normalize.known
    return SavedRanker(experiment.ranker, n_features, theta, normalisation, tuple(names), 0.0, origin)


def experiment_digest(experiment: Experiment) -> str:
    """Return the SHA-256 of a resolved experiment, but for what its clients keep and how it is judged.

    Of a folder of data it counts the last name and not where it lies; what parts have by default does not count, so that a
    further field of a part leaves it as it is.
    """
    tables = experiment.tables(complete=False)
    del tables["federation"]["keep_every"]
    source = experiment.data.source.rstrip("/").rpartition("/")[2]
    shown = {"k": experiment.evaluation.k}
    content = tables | {"data": tables["data"] | {"source": source}, "evaluation": shown}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(b"quorank experiment " + text.encode()).hexdigest()


def with_ranges_entry(book: dict[str, Any], experiment: Experiment, n_features: int) -> dict[str, Any]:
    """Return a run's ledger with the release of learned normalisation constants, if there was one."""
    normalize, clients = experiment.data.normalize, experiment.federation.clients
    if normalize.epsilon is None:
        return book
    part = noise_part(normalize.epsilon, normalize.delta)
    mechanism = range_mechanism(part, clients, n_features, experiment.seed)
    book = {**book, "normalisation": range_release(part, mechanism, clients, n_features)}
    return {**book, "altogether": combined_privacy(book["mechanism"], [book])}


def stated_altogether(book: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the privacy statement of all releases of a ledger together."""
    found: Mapping[str, Any] | None = book["altogether"] if "altogether" in book else book["privacy"]
    return found

"""The ranker file of an experiment's run: whoever plays it writes the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from quorank.experiments.experiment import Experiment
from quorank.kernels.arrays import Doubles
from quorank.rankers.ranker_file import Origin, SavedRanker, stated_privacy


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

    `statement` is what all planned rounds give away: a ranker of fewer gives away less.
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

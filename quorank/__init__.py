"""Quorank: one ranker learned from many people's searches, without collecting them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorank.api.estimator import FederatedRanker
    from quorank.api.running import RunResult, load, open_run, resume, run
    from quorank.data.ranking import Collection, RankingData
    from quorank.errors import BadInput, Interrupted
    from quorank.experiments.experiment import Experiment
    from quorank.rankers.ranker_file import SavedRanker as Ranker

__version__ = "0.1.0"
__all__ = [
    "BadInput", "Collection", "Experiment", "FederatedRanker", "Interrupted", "Ranker", "RankingData", "RunResult", "load",
    "open_run", "resume", "run",
]  # fmt: skip

_HOMES = {
    "BadInput": "quorank.errors.BadInput",
    "Collection": "quorank.data.ranking.Collection",
    "Experiment": "quorank.experiments.experiment.Experiment",
    "FederatedRanker": "quorank.api.estimator.FederatedRanker",
    "Interrupted": "quorank.errors.Interrupted",
    "Ranker": "quorank.rankers.ranker_file.SavedRanker",
    "RankingData": "quorank.data.ranking.RankingData",
    "RunResult": "quorank.api.running.RunResult",
    "load": "quorank.api.running.load",
    "open_run": "quorank.api.running.open_run",
    "resume": "quorank.api.running.resume",
    "run": "quorank.api.running.run",
}
"""Where each name is; loaded when it is asked for, so that `import quorank` costs nothing."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].rpartition(".")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

"""Quorank: one ranker learned from many people's searches, without collecting them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorank.api.estimator import FederatedRanker
    from quorank.api.running import RunResult, load, open_run, resume, run
    from quorank.data.ranking import Collection, RankingData
    from quorank.errors import BadInput, Interrupted
    from quorank.experiments.experiment import Experiment
    from quorank.kernels.compiled import kernel
    from quorank.learning.learner import Learner
    from quorank.rankers.ranker_file import SavedRanker as Ranker

__version__ = "0.1.0"
__all__ = [
    "BadInput", "Collection", "Experiment", "FederatedRanker", "Interrupted", "Learner", "Ranker", "RankingData",
    "RunResult", "kernel", "load", "open_run", "resume", "run",
]  # fmt: skip


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports its public names when they are first used.

    Args:
        package: Name of the package.
        modules: Space-separated public names by the module that defines them.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def load_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return load_name


_load_name = lazy_exports(
    __name__,
    {
        "quorank.api.estimator": "FederatedRanker",
        "quorank.api.running": "RunResult load open_run resume run",
        "quorank.data.ranking": "Collection RankingData",
        "quorank.errors": "BadInput Interrupted",
        "quorank.experiments.experiment": "Experiment",
        "quorank.kernels.compiled": "kernel",
        "quorank.learning.learner": "Learner",
    },
)


def __getattr__(name: str) -> Any:
    if name == "Ranker":
        from quorank.rankers.ranker_file import SavedRanker

        return SavedRanker
    return _load_name(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

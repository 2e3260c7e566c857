"""Who may leave a finished run, and which runs can be rebuilt without them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quorank.errors import require
from quorank.experiments.experiment import Experiment
from quorank.federation import Mean, Shared
from quorank.privacy import ClippedGaussian


def check_leavers(experiment: Experiment, run: Path, asked: Sequence[int], gone: Sequence[int]) -> None:
    """Refuse clients that are not there any more or never were, and federations that cannot do without them."""
    federation = experiment.federation
    require(len(asked) > 0, "--client: name at least one client that leaves")
    for client in asked:
        require(
            0 <= client < federation.clients,
            f"--client {client}: no such client; {run} has clients 0 to {federation.clients - 1}",
        )
        require(client not in gone, f"--client {client}: {run} has unlearned this client already")
        require(list(asked).count(client) == 1, f"--client {client} is named twice")
    remaining = federation.clients - len({*gone, *asked})
    require(
        remaining > 0, "--client: all clients would leave, and nobody would be left to rebuild the ranker"
    )
    require(
        isinstance(federation.personal, Shared),
        f"{run}: its clients keep rankers of their own, which a run does not save; only a shared ranker can be rebuilt",
    )
    if not isinstance(federation.aggregation, Mean):
        federation.aggregation.check(federation.participation.size(remaining))


def check_private(experiment: Experiment, run: Path) -> None:
    """Refuse a run whose rebuilding could not be added to what it has spent."""
    federation = experiment.federation
    privacy = federation.privacy
    everyone = federation.participation.size(federation.clients) == federation.clients
    require(
        not isinstance(privacy, ClippedGaussian) or privacy.sum == "secure" or everyone,
        f"{run}: its ε counts on nobody knowing who was in which cohort, and a rebuilding would repeat the cohorts, so "
        "that no ε could be stated for both; run it again without the client",
    )

"""Impossible combinations of parts, refused when a federation or an experiment is built.

Every rule is decided by what parts declare (`needs_single_updates`, `hides_single_updates`, …), never by their type.
"""

from __future__ import annotations

from typing import Protocol

from quorank.data.partition import Partition
from quorank.errors import require, under
from quorank.federation.attacks.attack import Attack
from quorank.federation.participation import Participation
from quorank.federation.personal import Personalisation
from quorank.federation.rules import Aggregation
from quorank.federation.server_optimisers import Add, Server
from quorank.learning import Learner
from quorank.privacy import Privacy
from quorank.privacy.mechanisms.mechanism import incomplete_noise
from quorank.rankers import Ranker
from quorank.users import ClickModel


class FederationParts(Protocol):
    """Parts of a federation as this module reads them; `rounds.Federation` has them."""

    @property
    def learner(self) -> Learner: ...
    @property
    def participation(self) -> Participation: ...
    @property
    def aggregation(self) -> Aggregation: ...
    @property
    def server(self) -> Server: ...
    @property
    def privacy(self) -> Privacy: ...
    @property
    def attack(self) -> Attack | None: ...
    @property
    def personal(self) -> Personalisation: ...
    @property
    def client_momentum(self) -> float: ...
    @property
    def everyone(self) -> bool: ...


def refuse_if(applies: bool, where: str, sentence: str, code: str = "option.conflict") -> None:
    """Refuse the key `where` if a rule applies."""
    require(not applies, code, sentence, where)


def check_equal_shares(privacy: Privacy, unequal: bool, where: str = "interactions") -> None:
    """Refuse noise in equal shares for clients of unequal weight."""
    sentence = (
        f"{privacy.kind} needs clients that count alike; one with more interactions moves the sum farther than its noise "
        "hides; give all clients as many"
    )
    refuse_if(unequal and privacy.needs_equal_shares, where, sentence)


def check_no_shares_missing(privacy: Privacy, absent: bool) -> None:
    """Refuse noise in equal shares for drawn cohorts that lack clients."""
    sentence = f"{incomplete_noise(privacy.kind)}; without those who left, drawn cohorts are smaller"
    refuse_if(absent and privacy.needs_equal_shares, "privacy", sentence)


def check_federation(federation: FederationParts) -> None:
    """Refuse a federation whose parts do not fit together."""
    learner, privacy, rule = federation.learner, federation.privacy, federation.aggregation
    participation, trains, everyone = federation.participation, learner.learns_on_client, federation.everyone
    masked, grouped, single = privacy.hides_single_updates, privacy.sum_groups > 1, rule.needs_single_updates
    sentence = f"{privacy.kind} protects a metric, and {learner.kind} sends an update, so it needs another privacy"
    refuse_if(privacy.protects_metric and not learner.sends_metric, "privacy", sentence, "privacy.no-metric")
    sentence = (
        f"{privacy.kind} clips parameters that a client learns, and {learner.kind} learns none on the client; use "
        'kind = "randomised-response" or "gaussian"'
    )
    refuse_if(privacy.needs_client_parameters and not trains, "privacy", sentence, "privacy.no-client-parameters")
    sentence = f"the noise is complete on sums only, and {rule.kind} makes none; choose the mean"
    refuse_if(privacy.noise_on_sums and single, "privacy", sentence, "privacy.noise-on-sums")
    sentence = f"{incomplete_noise(privacy.kind)}, and {participation.kind} leaves that to chance; use full or sampled"
    refuse_if(privacy.needs_equal_shares and not (participation.fixed_size or everyone), "privacy", sentence)
    sentence = (
        f"a secure sum is made by clients that know each other's keys beforehand, and with {participation.kind} "
        "nobody knows who will come; use full or sampled, or gaussian with plain sums"
    )
    refuse_if(masked and participation.open_arrivals, "privacy", sentence)
    sentence = f"{rule.kind} needs to see single updates, and secure sums hide them; use the mean, or sums in groups"
    refuse_if(masked and not grouped and single, "privacy", sentence, "privacy.hides-updates")
    sentence = f"{rule.kind} with history needs single clients, and groups are redrawn every round; take history out"
    refuse_if(rule.history > 0.0 and grouped, "aggregation", sentence, "aggregation.history-of-groups")
    sentence = f"{rule.kind} with history needs everyone in every round; take history out, or participation full"
    refuse_if(rule.history > 0.0 and not everyone, "aggregation", sentence, "aggregation.history-of-sampled")
    nothing = f"{learner.kind} learns nothing on the client that it could"
    keeps = federation.personal.keeps_parameters
    refuse_if(keeps and not trains, "personal", f"{nothing} keep; use pdgd", "personal.nothing-to-keep")
    sentence = f"{nothing} carry on; use pdgd, or momentum on the server"
    refuse_if(federation.client_momentum > 0.0 and not trains, "client_momentum", sentence)


def check_experiment(
    federation: FederationParts, ranker: Ranker, users: ClickModel, partition: Partition, rounds: int, keep_every: int
) -> None:
    """Refuse an experiment whose parts do not fit together."""
    learner = federation.learner
    check_equal_shares(federation.privacy, partition.unequal_interactions, "partition")
    sentence = 'start = "zero" has no gradient to follow; use start = "scaled" with pdgd'
    refuse_if(ranker.starts_flat and learner.needs_gradient, "ranker", sentence, "ranker.no-gradient")
    if users.replays_lists:
        needed = "lists and clicks of a log are replayed in its order"
        sentence = f'{needed}; set partition.kind = "users" and partition.order = "time" or "arrival"'
        refuse_if(not partition.replays, "partition", sentence, "users.needs-replay")
        with under("learner"):
            learner.check_logged()
        poisons = federation.attack is not None and federation.attack.users is not None
        sentence = "an attack on clicks has no place where clicks are those of a log; leave it out"
        refuse_if(poisons, "attack", sentence)
    if partition.replays:
        _check_replay(federation, partition, keep_every)
    if ranker.grown or learner.grows_trees:
        _check_trees(federation, ranker, partition, rounds, keep_every)


def _check_replay(federation: FederationParts, partition: Partition, keep_every: int) -> None:
    """Check the parts of a log that decides who searches when."""
    privacy, log = federation.privacy, "the log decides who takes part in a round"
    refuse_if(not federation.participation.everyone, "federation.participation", f"{log}; leave it out")
    history = federation.aggregation.history > 0.0
    refuse_if(history, "federation.aggregation", f"{log}, and history needs everyone")
    check_equal_shares(privacy, True, "privacy")
    masked = f"{log}, and secure sums need everyone; use gaussian or none"
    refuse_if(privacy.hides_single_updates, "privacy", masked)
    unbounded = (
        f"{privacy.kind} bounds what one client can change, and by order of arrival it changes everybody's rounds; "
        'use partition.order = "time"'
    )
    refuse_if(privacy.protects and partition.rounds_depend_on_others, "privacy", unbounded)
    kept = f"{log}, and unlearning by kept updates needs everyone; set it to 0"
    refuse_if(keep_every > 0, "federation.keep_every", kept)


def _check_trees(
    federation: FederationParts, ranker: Ranker, partition: Partition, rounds: int, keep_every: int
) -> None:
    """Check the parts of an experiment that grows trees from histograms."""
    learner, privacy, within = federation.learner, federation.privacy, "federation."
    sentence = f'trees are grown, and {learner.kind} sends updates; set learner.kind = "lambdamart"'
    refuse_if(not learner.grows_trees, "learner", sentence, "ranker.needs-growth")
    sentence = f'{learner.kind} grows trees, and a {ranker.kind} ranker has none; set ranker.kind = "trees"'
    refuse_if(not ranker.grown, "ranker", sentence, "learner.needs-trees")
    with under("ranker"):
        ranker.with_trees(rounds * learner.trees_per_round)
    plan, single = learner.tree_plan(ranker.tree_leaves, 10), federation.aggregation.needs_single_updates
    full = 1 << plan.growth.depth
    sentence = f"a random tree of depth {plan.growth.depth} has {full} leaves; set ranker.leaves to that or more"
    refuse_if(plan.random and ranker.tree_leaves < full, "ranker.leaves", sentence)
    sentence = "attacks are on updates, and trees have none; leave it out"
    refuse_if(federation.attack is not None, "attack", sentence)
    refuse_if(single, f"{within}aggregation", "histograms are summed; use the mean")
    everyone = federation.participation.everyone
    refuse_if(not everyone, f"{within}participation", "every tree needs all clients; use full")
    refuse_if(federation.client_momentum > 0.0, f"{within}client_momentum", "is of updates; leave it out")
    sentence = "a tree's step is learner.eta; leave the server out"
    refuse_if(federation.server != Add(), f"{within}server", sentence)
    sentence = "trees are regrown without a client, not unlearned; set it to 0"
    refuse_if(keep_every > 0, f"{within}keep_every", sentence)
    sentence = "lists of a run of trees are dealt evenly to its clients; leave it out"
    refuse_if(partition.divides, "partition", sentence)
    sentence = (
        f"{privacy.kind} as it is set here cannot sum histograms; use none, secure-sum without dropouts, or gaussian"
    )
    refuse_if(privacy.sums_histograms == "", "privacy", sentence, "privacy.no-histograms")
    sentence = 'noise on the histograms of every level would leave nothing to learn from; set learner.splits = "random"'
    noisy = privacy.sums_histograms == "noisy" and not plan.random
    refuse_if(noisy, "learner.splits", sentence, "privacy.noisy-histograms")

"""Impossible combinations of parts, refused when a federation or an experiment is built.

Every rule is decided by what parts declare (`needs_single_updates`, `hides_single_updates`, …), never by their type.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from quorank.data.partition import Partition
from quorank.errors import BadInput, require
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


class Conflict(NamedTuple):
    """Rule that refuses the key `where` if `applies`."""

    applies: bool
    where: str
    sentence: str
    code: str = "option.conflict"


def refuse(conflicts: Iterable[Conflict]) -> None:
    """Raise BadInput for the first conflict that applies."""
    for conflict in conflicts:
        require(not conflict.applies, conflict.code, conflict.sentence, conflict.where)


def unequal_shares(privacy: Privacy, applies: bool, where: str = "interactions") -> Conflict:
    """Return the conflict of noise in equal shares with clients of unequal weight."""
    sentence = (
        f"{privacy.kind} needs clients that count alike; one with more interactions moves the sum farther than its noise "
        "hides; give all clients as many"
    )
    return Conflict(applies and privacy.needs_equal_shares, where, sentence)


def missing_shares(privacy: Privacy, applies: bool) -> Conflict:
    """Return the conflict of noise in equal shares with drawn cohorts that lack clients."""
    sentence = f"{incomplete_noise(privacy.kind)}; without those who left, drawn cohorts are smaller"
    return Conflict(applies and privacy.needs_equal_shares, "privacy", sentence)


def check_federation(federation: FederationParts) -> None:
    """Refuse a federation whose parts do not fit together."""
    learner, privacy, rule = federation.learner, federation.privacy, federation.aggregation
    participation, trains = federation.participation, federation.learner.learns_on_client
    whole_sums = not rule.needs_single_updates
    unprotected = f"{privacy.kind} protects a metric, and {learner.kind} sends an update, so it needs another privacy"
    no_clip = (
        f"{privacy.kind} clips parameters that a client learns, and {learner.kind} learns none on the client; use "
        'kind = "randomised-response" or "gaussian"'
    )
    varying = f"{incomplete_noise(privacy.kind)}, and {participation.kind} leaves that to chance; use full or sampled"
    strangers = (
        f"a secure sum is made by clients that know each other's keys beforehand, and with {participation.kind} "
        "nobody knows who will come; use full or sampled, or gaussian with plain sums"
    )
    hidden = f"{rule.kind} needs to see single updates, and secure sums hide them; use the mean, or sums in groups"
    nothing = f"{learner.kind} learns nothing on the client that it could"
    remembers, fixed = rule.history > 0.0, participation.fixed_size or federation.everyone
    masked, grouped = privacy.hides_single_updates, privacy.sum_groups > 1
    refuse(
        (
            Conflict(privacy.protects_metric and not learner.sends_metric, "privacy", unprotected, "privacy.no-metric"),
            Conflict(
                privacy.needs_client_parameters and not trains, "privacy", no_clip, "privacy.no-client-parameters"
            ),
            Conflict(
                privacy.noise_on_sums and not whole_sums,
                "privacy",
                f"the noise is complete on sums only, and {rule.kind} makes none; choose the mean",
                "privacy.noise-on-sums",
            ),
            Conflict(privacy.needs_equal_shares and not fixed, "privacy", varying),
            Conflict(masked and participation.open_arrivals, "privacy", strangers),
            Conflict(masked and not grouped and not whole_sums, "privacy", hidden, "privacy.hides-updates"),
            Conflict(
                remembers and grouped,
                "aggregation",
                f"{rule.kind} with history needs single clients, and groups are redrawn every round; take history out",
                "aggregation.history-of-groups",
            ),
            Conflict(
                remembers and not federation.everyone,
                "aggregation",
                f"{rule.kind} with history needs everyone in every round; take history out, or participation full",
                "aggregation.history-of-sampled",
            ),
            Conflict(
                federation.personal.keeps_parameters and not trains,
                "personal",
                f"{nothing} keep; use pdgd",
                "personal.nothing-to-keep",
            ),
            Conflict(
                federation.client_momentum > 0.0 and not trains,
                "client_momentum",
                f"{nothing} carry on; use pdgd, or momentum on the server",
            ),
        )
    )


def check_experiment(
    federation: FederationParts, ranker: Ranker, users: ClickModel, partition: Partition, rounds: int, keep_every: int
) -> None:
    """Refuse an experiment whose parts do not fit together."""
    learner = federation.learner
    refuse(
        (
            unequal_shares(federation.privacy, partition.unequal_interactions, "partition"),
            Conflict(
                ranker.starts_flat and learner.needs_gradient,
                "ranker",
                'start = "zero" has no gradient to follow; use start = "scaled" with pdgd',
                "ranker.no-gradient",
            ),
        )
    )
    if users.replays_lists:
        _check_replayed_lists(federation, partition)
    if partition.replays:
        _check_replay(federation, partition, keep_every)
    if ranker.grown or learner.grows_trees:
        _check_trees(federation, ranker, partition, rounds, keep_every)


def _check_replayed_lists(federation: FederationParts, partition: Partition) -> None:
    """Check the parts of a log whose lists and clicks are replayed."""
    needed = "lists and clicks of a log are replayed in its order"
    order = f'{needed}; set partition.kind = "users" and partition.order = "time" or "arrival"'
    refuse((Conflict(not partition.replays, "partition", order, "users.needs-replay"),))
    try:
        federation.learner.check_logged()
    except BadInput as error:
        raise error.under("learner") from None
    poisons = federation.attack is not None and federation.attack.users is not None
    sentence = "an attack on clicks has no place where clicks are those of a log; leave it out"
    refuse((Conflict(poisons, "attack", sentence),))


def _check_replay(federation: FederationParts, partition: Partition, keep_every: int) -> None:
    """Check the parts of a log that decides who searches when."""
    privacy, log = federation.privacy, "the log decides who takes part in a round"
    unbounded = (
        f"{privacy.kind} bounds what one client can change, and by order of arrival it changes everybody's rounds; "
        'use partition.order = "time"'
    )
    masked = f"{log}, and secure sums need everyone; use gaussian or none"
    kept = f"{log}, and unlearning by kept updates needs everyone; set it to 0"
    refuse(
        (
            Conflict(not federation.participation.everyone, "federation.participation", f"{log}; leave it out"),
            Conflict(
                federation.aggregation.history > 0.0, "federation.aggregation", f"{log}, and history needs everyone"
            ),
            unequal_shares(privacy, True, "privacy"),
            Conflict(privacy.hides_single_updates, "privacy", masked),
            Conflict(privacy.protects and partition.rounds_depend_on_others, "privacy", unbounded),
            Conflict(keep_every > 0, "federation.keep_every", kept),
        )
    )


def _check_trees(
    federation: FederationParts, ranker: Ranker, partition: Partition, rounds: int, keep_every: int
) -> None:
    """Check the parts of an experiment that grows trees from histograms."""
    learner, privacy = federation.learner, federation.privacy
    no_growth = f'trees are grown, and {learner.kind} sends updates; set learner.kind = "lambdamart"'
    no_trees = f'{learner.kind} grows trees, and a {ranker.kind} ranker has none; set ranker.kind = "trees"'
    refuse(
        (
            Conflict(not learner.grows_trees, "learner", no_growth, "ranker.needs-growth"),
            Conflict(not ranker.grown, "ranker", no_trees, "learner.needs-trees"),
        )
    )
    try:
        ranker.with_trees(rounds * learner.trees_per_round)
    except BadInput as error:
        raise error.under("ranker") from None
    plan, rule = learner.tree_plan(ranker.tree_leaves, 10), federation.aggregation
    full = 1 << plan.growth.depth
    leaves = f"a random tree of depth {plan.growth.depth} has {full} leaves; set ranker.leaves to that or more"
    momentum, step = federation.client_momentum > 0.0, federation.server != Add()
    not_summed = (
        f"{privacy.kind} as it is set here cannot sum histograms; use none, secure-sum without dropouts, or gaussian"
    )
    noisy = 'noise on the histograms of every level would leave nothing to learn from; set learner.splits = "random"'
    refuse(
        (
            Conflict(plan.random and ranker.tree_leaves < full, "ranker.leaves", leaves),
            Conflict(
                federation.attack is not None, "attack", "attacks are on updates, and trees have none; leave it out"
            ),
            Conflict(rule.needs_single_updates, "federation.aggregation", "histograms are summed; use the mean"),
            Conflict(
                not federation.participation.everyone,
                "federation.participation",
                "every tree needs all clients; use full",
            ),
            Conflict(momentum, "federation.client_momentum", "is of updates; leave it out"),
            Conflict(step, "federation.server", "a tree's step is learner.eta; leave the server out"),
            Conflict(
                keep_every > 0,
                "federation.keep_every",
                "trees are regrown without a client, not unlearned; set it to 0",
            ),
            Conflict(
                partition.divides, "partition", "lists of a run of trees are dealt evenly to its clients; leave it out"
            ),
            Conflict(privacy.sums_histograms == "", "privacy", not_summed, "privacy.no-histograms"),
            Conflict(
                privacy.sums_histograms == "noisy" and not plan.random,
                "learner.splits",
                noisy,
                "privacy.noisy-histograms",
            ),
        )
    )

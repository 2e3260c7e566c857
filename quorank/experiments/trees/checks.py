"""What an experiment that grows trees may hold beside its learner: parts are asked what they need and give."""

from __future__ import annotations

from quorank.data.partition import Partition
from quorank.errors import BadInput, require
from quorank.federation import Add, Federation
from quorank.rankers import Ranker


def check_trees(federation: Federation, ranker: Ranker, rounds: int, partition: Partition, keep_every: int) -> None:
    """Refuse a ranker and a learner that do not belong together, and parts that histograms have no place for."""
    learner = federation.learner
    if ranker.grown and not learner.grows_trees:
        sentence = f'trees are grown, and {learner.kind} sends updates; set learner.kind = "lambdamart"'
        raise BadInput("ranker.needs-growth", sentence, "learner")
    if not learner.grows_trees:
        return
    sentence = f'{learner.kind} grows trees, and a {ranker.kind} ranker has none; set ranker.kind = "trees"'
    require(ranker.grown, "learner.needs-trees", sentence, "ranker")
    try:
        ranker.with_trees(rounds * learner.trees_per_round)
    except BadInput as error:
        raise error.under("ranker") from None
    plan, privacy = learner.tree_plan(ranker.tree_leaves, 10), federation.privacy
    full = 1 << plan.growth.depth
    sentence = f"a random tree of depth {plan.growth.depth} has {full} leaves; set ranker.leaves to that or more"
    require(not plan.random or ranker.tree_leaves >= full, "option.conflict", sentence, "ranker.leaves")
    for wrong, where, sentence in (
        (federation.attack is not None, "attack", "attacks are on updates, and trees have none; leave it out"),
        (federation.aggregation.needs_single_updates, "federation.aggregation", "histograms are summed; use the mean"),
        (not federation.participation.everyone, "federation.participation", "a tree is of all clients; use full"),
        (federation.client_momentum > 0.0, "federation.client_momentum", "is of updates; leave it out"),
        (federation.server != Add(), "federation.server", "a tree's step is learner.eta; leave the server out"),
        (keep_every > 0, "federation.keep_every", "trees can only be grown anew without a client; set it to 0"),
        (partition.divides, "partition", "lists of a run of trees are dealt evenly to its clients; leave it out"),
    ):  # fmt: skip
        require(not wrong, "option.conflict", sentence, where)
    how = privacy.sums_histograms
    sentence = (
        f"{privacy.kind} as it is set here cannot sum histograms; use none, secure-sum without dropouts, or gaussian"
    )
    require(how != "", "privacy.no-histograms", sentence, "privacy")
    sentence = 'noise on the histograms of every level would leave nothing to learn from; set learner.splits = "random"'
    require(how != "noisy" or plan.random, "privacy.noisy-histograms", sentence, "learner.splits")

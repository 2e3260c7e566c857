"""Trees over parties: those of the pooled lists, whoever is started anew meanwhile; nothing but what was agreed is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from refusals import refused

from quorank.data.ranking import RankingData
from quorank.federation.boosting import Boosting, TrainingLists
from quorank.learning.lambdamart import LambdaMART
from quorank.learning.trees.bins import agreed_bins, cell_counts
from quorank.learning.trees.growth import columns_of
from quorank.rankers.trees import tree_parameters
from quorank.silos.training.lists import SearchedLists
from quorank.silos.training.sums import ONE, SumRequest
from quorank.silos.training.trees import TreeCourse, TreeTraining

FEATURES = 5
W0 = np.zeros(FEATURES)
TRAINING = TreeTraining(trees=6, depth=3, bins=16, least_data=3, least_lists=10, folds=4)


def made(lists: int, seed: int, documents: int = 12) -> SearchedLists:
    """Lists in random order, whose labels depend on two features together."""
    random = np.random.default_rng(seed)
    features = random.random((lists * documents, FEATURES)).astype(np.float32)
    labels = ((features[:, 0] > 0.5) == (features[:, 1] > 0.5)).astype(np.int8) + (features[:, 2] > 0.8)
    data = RankingData.from_arrays(features, labels, np.arange(0, lists * documents + 1, documents))
    gains = [np.sort(2.0 ** labels[data.rows_of(q)] - 1.0)[::-1] for q in range(lists)]
    ideal = np.array([(g[:10] / np.log2(np.arange(2, len(g[:10]) + 2))).sum() for g in gains])
    return SearchedLists(data, ideal, ideal)


PARTIES = [made(9, 1), made(17, 2), made(8, 3)]


def pooled() -> TrainingLists:
    """The training lists of all parties as if one had them: each fourth list of a party is held out."""
    features, labels, lengths = [], [], []
    for own in PARTIES:
        for q in range(own.n_lists):
            if q % 4 != 3:
                rows = own.data.rows_of(q)
                features.append(own.data.features[rows])
                labels.append(own.data.labels[rows])
                lengths.append(len(labels[-1]))
    offsets = np.cumsum([0, *lengths]).astype(np.int64)
    gains = 2.0 ** np.concatenate(labels).astype(np.float64) - 1.0
    return TrainingLists(np.concatenate(features), gains, offsets, np.zeros(len(lengths), dtype=np.int64))


def test_the_trees_are_those_of_a_central_lambdamart_on_the_pooled_lists() -> None:
    learner = LambdaMART(eta=0.1, depth=3, bins=16, least_data=3, truncation=30)
    lists = pooled()
    central = Boosting(learner.tree_plan(8, 10), lists, agreed_bins(cell_counts(lists.features), 16), 1, 0)
    wanted = [tree_parameters(columns_of(central.grow(number))) for number in range(6)]
    chosen, theta = TRAINING.train(PARTIES, W0)
    assert chosen in TRAINING.judged_numbers(6)
    numbers = TRAINING.ranker_part.numbers
    assert theta[: int(chosen) * numbers].tobytes() == np.concatenate(wanted[: int(chosen)]).tobytes()
    assert not theta[int(chosen) * numbers :].any()


@pytest.mark.parametrize("leaver", [None, 5])
def test_whoever_is_started_anew_after_every_sum_changes_no_bit(leaver: int | None) -> None:
    """Also where a tree is begun again, as it is when a party leaves."""
    course, sums = TRAINING.course(W0), 0
    while course.ranker is None:
        request = course.request
        parts = [TRAINING.answers(own, W0)(request) for own in PARTIES]
        assert all(len(part) == course.length for part in parts)
        course.advance(np.sum(parts, axis=0, dtype=np.uint64))
        sums += 1
        if course.ranker is None:
            course = TRAINING.course(W0, course.table())
            if sums == leaver:
                course.restart()
    assert course.ranker.tobytes() == TRAINING.train(PARTIES, W0)[1].tobytes()
    assert sums <= TRAINING.most_sums(len(PARTIES))


def test_of_too_few_lists_no_tree_is_grown() -> None:
    assert TRAINING.train(PARTIES, W0)[0] > 0
    few = replace(TRAINING, least_lists=27)
    assert few.train(PARTIES, W0)[0] == 0 and not few.train(PARTIES, W0)[1].any(), "26 of 34 lists are not held out"
    assert replace(TRAINING, least_lists=26).train(PARTIES, W0)[0] > 0


def test_features_that_say_nothing_leave_the_order_of_the_search() -> None:
    data = PARTIES[1].data
    blank = RankingData.from_arrays(np.zeros_like(data.features), data.labels, data.offsets)
    chosen, theta = TRAINING.train([replace(PARTIES[1], data=blank)], W0)
    assert chosen == 0 and not theta.any()


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        (np.array([[0.1, 0.12], [0.2, 0.22], [0.3, 0.32], [0.2, 0.24]]), 6),
        (np.array([[0.1, 0.12], [0.2, 0.22], [0.2, 0.21], [0.1, 0.11]]), 4),
        (np.array([[0.9, -0.7], [0.0, 0.0], [-0.1, -0.2], [0.9, -0.8]]), 0),
        (np.array([[0.9], [0.9], [0.9], [0.9]]), 0),
    ],
)
def test_the_number_of_trees_is_the_best_of_those_beyond_one_standard_error(gains: np.ndarray, expected: int) -> None:
    """Of the means, standard errors and numbers 2, 4, 6, 8 of a case written out; of one list there is no error."""
    lists = gains.shape[1]
    told = np.concatenate([[lists], gains.sum(axis=1) * ONE, (gains**2).sum(axis=1) * ONE])
    total = np.floor(told + 0.5).astype(np.int64).view(np.uint64)
    means = gains.mean(axis=1)
    beyond = means > (gains.std(axis=1, ddof=1) / np.sqrt(lists) if lists > 1 else np.inf)
    best = max(((mean, 2 * (at + 1)) for at, mean in enumerate(means) if beyond[at]), default=(0.0, 0))
    assert TRAINING.choose(total, 8) == best[1] == expected


def asked(**changes: object) -> SumRequest:
    """The request for the second level of the first tree, with some of it changed."""
    course = TRAINING.course(W0)
    assert isinstance(course, TreeCourse)
    sides = [TRAINING.answers(own, W0) for own in PARTIES]
    for _ in range(2):
        course.advance(np.sum([side(course.request) for side in sides], axis=0, dtype=np.uint64))
    request = course.request
    return SumRequest(request.judging, {**request.head, **changes}, request.numbers)


@pytest.mark.parametrize(
    "changes",
    [
        {"trees": 6},
        {"trees": -1},
        {"trees": True},
        {"wanted": [99]},
        {"wanted": [1, 1]},
        {"wanted": 3},
        {"splits": [[[0, 99, 0, 1, 2]]]},
        {"splits": [[[0, 0, 99, 1, 2]]]},
        {"splits": [[[1, 0, 0, 1, 2]]]},
        {"splits": [[[0, 0, 0, 5, 6]]]},
        {"splits": [[[0, 0, 0]]]},
        {"splits": [[], [], []]},
        {"splits": None},
        {"more": 1},
        {"step": None, "trees": 0.5},
    ],
)
def test_what_was_not_agreed_is_refused(changes: dict[str, object]) -> None:
    course, side = TRAINING.course(W0), TRAINING.answers(PARTIES[0], W0)
    course.advance(side(course.request) * np.uint64(4))
    side(course.request)
    with refused("silo-message.not-agreed"):
        side(asked(**changes))


@pytest.mark.parametrize("numbers", [np.zeros(0), np.ones(3), np.ones(36), np.zeros(5), np.full(5, np.nan)])
def test_trees_and_bins_that_are_none_are_refused(numbers: np.ndarray) -> None:
    side = TRAINING.answers(PARTIES[0], W0)
    with refused("silo-message.not-agreed"):
        side(SumRequest(True, {"step": "judge", "trees": 2}, numbers))
    for edges in ([5, 0, 0, 0, 0], [1, 1, 1, 1], [len(numbers) + 1, 0, 0, 0, 0], [99, 0, 0, 0, 0]):
        with refused("silo-message.not-agreed"):
            side(SumRequest(False, {"step": "level", "wanted": [0], "edges": edges}, numbers))

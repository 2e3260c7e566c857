"""What the library refuses before compiled code could read or write past the end of an array."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from quorank.data.ranking import RankingData
from quorank.engines.process import Simulator
from quorank.errors import BadInput
from quorank.experiments.experiment import Experiment
from quorank.federation import Federation, State
from quorank.kernels.draws import Purpose, key_of
from quorank.learning import Evolution, OnlineRanker, Simulation
from quorank.metrics.evaluator import Evaluator
from quorank.privacy import RandomisedResponse
from quorank.rankers import MLP, Linear, scores
from quorank.users import Cascade, PositionBased, simulate_clicks


def data(labels: list[int]) -> RankingData:
    features = np.arange(len(labels) * 5, dtype=np.float32).reshape(-1, 5) / 10
    return RankingData.from_arrays(features, labels, [0, len(labels)])


def simulator(**changes) -> Simulator:
    return Simulator(Federation(clients=4), Simulation(data([0, 1, 2]), Linear(), Cascade(), 3, 1), **changes)


@pytest.mark.parametrize("size", [3, 6])
def test_parameters_of_another_size(size) -> None:
    theta = np.zeros(size)
    with pytest.raises(BadInput, match="5 parameters"):
        simulator().gather(State(0, theta, {}))
    with pytest.raises(BadInput, match="5 parameters"):
        scores(Linear(), theta, np.ones((2, 5)))
    with pytest.raises(BadInput, match="5 parameters"):
        Evaluator(data([0, 1]), Linear()).all_means([theta])


@pytest.mark.parametrize("labels", [[0, 3], [0, -1]])
def test_labels_beyond_the_users_tables(labels) -> None:
    with pytest.raises(BadInput, match=r"labels must lie in 0\.\.2"):
        lists = replace(data([0, 1]), labels=np.array(labels, dtype=np.int8))
        Simulation(lists, Linear(), Cascade(), 3, 1).world()
    with pytest.raises(BadInput, match=r"labels must lie in 0\.\.2"):
        simulate_clicks(Cascade().tables(3, 10), labels, 1)


def test_lists_longer_than_the_users_tables() -> None:
    with pytest.raises(BadInput, match="lists of 3"):
        simulate_clicks(Cascade().tables(3, 3), [0, 1, 2, 0], 1)


def test_data_without_queries() -> None:
    empty = RankingData.from_arrays(np.zeros((0, 5)), [], [0])
    with pytest.raises(BadInput, match="no query"):
        Simulation(empty, Linear(), Cascade(), 3, 1).world()


@pytest.mark.parametrize("model", [Cascade(), PositionBased()])
def test_presets_exist_for_three_and_five_grades(model) -> None:
    with pytest.raises(BadInput, match="3 or 5 grades"):
        model.tables(4, 10)


@pytest.mark.parametrize("changes", [{"threads": 0}, {"chunk": 0}, {"chunk": -1}])
def test_threads_and_chunks_below_one(changes) -> None:
    with pytest.raises(BadInput, match="at least 1"):
        simulator(**changes)


def test_scores_that_overflow_still_show_a_list() -> None:
    ranker = OnlineRanker(np.full(5, 3e38), 5, Linear())
    assert sorted(ranker.rank(np.full((4, 5), 10.0)).order.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "experiment",
    [
        {"federation": Federation(learner=Evolution(), privacy=RandomisedResponse(p=0.05))},
        {"ranker": MLP(start="zero")},
        {"seed": -1},
    ],
)
def test_experiments_that_cannot_learn(experiment) -> None:
    with pytest.raises(BadInput):
        dataclasses.replace(Experiment(), **experiment)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_that_would_stand_for_another(seed) -> None:
    with pytest.raises(BadInput, match="seed"):
        key_of(seed, Purpose.QUERY)


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31mred", "\ud800", "x" * 10_000, "a\u2028b\r\n"])
def test_a_refusal_is_one_printable_line_whatever_a_file_put_into_it(text) -> None:
    for error in (BadInput("file.damaged", text), BadInput("file.damaged", "damaged", text)):
        for said in (error, error.at("file"), error.under("key"), error.at(text)):
            assert str(said).isprintable()
            assert len(str(said).splitlines()) == 1
            assert len(str(said)) < 2_000
            str(said).encode()

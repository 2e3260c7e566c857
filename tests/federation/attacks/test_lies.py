"""Clients that lie in secure sums: without groups they stop or turn a round, with groups they spoil their own group."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden_runs import SMALL
from quick_runs import run_quickly

from quorank.engines.process import Simulator
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, set_values
from quorank.federation import Federation
from quorank.federation.attacks.fitted import Lies, reversed_sum
from quorank.federation.rules import TrimmedMean
from quorank.learning import Simulation
from quorank.privacy import ClippedGaussian, SecureSum
from quorank.rankers import Linear
from quorank.users import Cascade


def gathered(collection, attack, **options):
    """(federation, state, what the first round's cohort of 12 sends)."""
    federation = Federation(12, 3, attack=attack, **options)
    simulator = Simulator(federation, Simulation(collection.train, Linear(), Cascade(), 3, 1), rounds=4)
    state = simulator.initial()
    return federation, state, simulator.gather(state)


NOISE = ClippedGaussian(noise_multiplier=0.1, clip=0.05, sum="secure", masks=False)


@pytest.mark.parametrize("privacy", [SecureSum(clip=0.05), SecureSum(clip=0.05, masks=False), NOISE], ids=str)
def test_words_stop_a_round_and_the_worst_turns_it(privacy, tiny_collection) -> None:
    federation, state, honest = gathered(tiny_collection, None, privacy=privacy)
    assert np.linalg.norm(honest.total) > 0.05
    _, _, words = gathered(tiny_collection, Lies(sends="words"), privacy=privacy)
    assert words.stays and words.dropped == ("secure-sum.out-of-bounds",)
    assert federation.round(state, words)[0].theta.tobytes() == state.theta.tobytes()
    _, _, worst = gathered(tiny_collection, Lies(), privacy=privacy)
    assert not worst.stays
    assert worst.total @ honest.total < 0.0 and np.linalg.norm(worst.total) > 0.9 * 12 * 0.05


@pytest.mark.parametrize("sends", ["words", "worst"])
@pytest.mark.parametrize("masks", [True, False])
def test_in_groups_a_rule_leaves_the_liar_s_group_out(sends, masks, tiny_collection) -> None:
    options = {"privacy": SecureSum(clip=0.05, masks=masks, groups=6), "aggregation": TrimmedMean(byzantine=1)}
    federation, state, honest = gathered(tiny_collection, None, **options)
    _, _, attacked = gathered(tiny_collection, Lies(sends=sends), **options)
    assert len(honest.updates) == 6 and len(attacked.updates) == (5 if sends == "words" else 6)
    unlike = sum(not any(np.array_equal(row, other) for other in honest.updates) for row in attacked.updates)
    assert unlike == (0 if sends == "words" else 1)
    steps = [federation.round(state, one)[0].theta - state.theta for one in (honest, attacked)]
    assert np.linalg.norm(steps[1]) <= 0.05 and steps[0] @ steps[1] > 0.0


def test_several_liars_of_one_sum_do_not_pass_the_bound_together(tiny_collection) -> None:
    _, _, worst = gathered(tiny_collection, Lies(clients=3), privacy=SecureSum(clip=0.05, masks=False))
    assert not worst.stays and np.linalg.norm(worst.total) > 0.9 * 12 * 0.05


def test_reversed_sum_is_within_both_bounds() -> None:
    total = np.array([30.0, -40.0, 0.0])
    assert reversed_sum(total, 1000.0, 500.0).tolist() == [-300.0, 400.0, 0.0]
    assert np.abs(reversed_sum(total, 100.0, 500.0)).max() <= 100.0
    assert reversed_sum(total, np.inf, np.inf).tolist() == [-300.0, 400.0, 0.0]
    assert not reversed_sum(np.zeros(3), 10.0, 10.0).any()


def test_dropped_rounds_are_counted_in_the_summary(tmp_path) -> None:
    """Words stop every round: the summary counts them, and the ledger counts what was opened."""
    lines = [*SMALL, "privacy=secure-sum", "attack.kind=lies", "attack.sends=words"]
    experiment = Experiment.read(set_values(parse_experiment_file("", "lies"), lines))
    summary = run_quickly(experiment, tmp_path / "run", threads=1)
    assert summary["dropped_rounds"] == summary["rounds"]
    entries = json.loads((tmp_path / "run" / "ledger.json").read_text(encoding="utf-8"))["releases"]
    assert sum(entry["releases"] for entry in entries) == summary["rounds"] * experiment.federation.clients

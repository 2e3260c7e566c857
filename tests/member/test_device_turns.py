"""The device keeps the limits that its terms name, whatever a coordinator asks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from devices import CLIENTS, device_of, simulator_of, task_of, user_of
from refusals import refused

from quorank.experiments.deployment import terms_of as experiment_terms
from quorank.experiments.experiment import Experiment
from quorank.federation import Arrivals, Federation
from quorank.privacy import ClippedGaussian, Setting
from quorank.protocol.messages import Declined

PART = Arrivals(enough=CLIENTS, least=2, most=2, rest=2)


def fleet(collection, **changes):
    federation = Federation(CLIENTS, 3, participation=PART, privacy=ClippedGaussian(epsilon=100.0, clip=0.1))
    return simulator_of(collection, replace(federation, **changes), rounds=12)


def test_a_device_rests_and_answers_no_oftener_than_was_agreed(tiny_collection, tmp_path) -> None:
    """A coordinator that asks in every round, and has forgotten what it asked: the device has not."""
    simulator = fleet(tiny_collection)
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    found = []
    for round_ in range(8):
        task = task_of(simulator, round_)
        device.answer(task)
        while not device.ready():
            user(device)
        found.append(device.answer(task))
        device.store.close()
        device = device_of(simulator, tmp_path)  # all of it is on disk
    resting, often = Declined("resting"), Declined("often")
    assert [one if isinstance(one, Declined) else "sent" for one in found] == [
        "sent",
        resting,
        resting,
        "sent",
        *[often] * 4,
    ]
    assert device.answer(task_of(simulator, 3)) == found[3], "what was sent is sent again, and is no further answer"
    assert device.store.ranker.round == 7, "the newest ranker is used all the same"


def test_terms_of_an_experiment_may_be_of_more_clients_than_its_file_plans_with() -> None:
    federation = Federation(20, 2, participation=Arrivals(enough=10, least=2, most=3, rest=1))
    terms = experiment_terms(Experiment(federation=federation, rounds=9), 46, 5000, report_epsilon=0.5)
    assert (terms.client, terms.setting.turns.most, terms.setting.turns.rest) == (5000, 3, 1)
    assert terms.reports["epsilon"] == pytest.approx(0.5 * 3), "one report for each round that it answers"
    with refused("value.out-of-range", "--client 5000"):
        experiment_terms(Experiment(federation=Federation(20, 2), rounds=9), 46, 5000)


def test_noise_of_a_device_s_terms_does_not_depend_on_how_many_are_enrolled() -> None:
    part = ClippedGaussian(3.0)
    few, many = (Setting(n, 50, 20, "arrivals", parameters=5, most_rounds=4) for n in (50, 10**6))
    assert part.mechanism(few, 0).start()["unit"].tolist() == part.mechanism(many, 0).start()["unit"].tolist()
    assert part.mechanism(few, 0).noise_multiplier == part.mechanism(many, 0).noise_multiplier

"""Privacy where a round takes whoever comes: ε is that of the rounds that one client can be in, and of no fewer."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from privacy_losses import epsilon_of, gaussian_losses, played_ledger
from refusals import accepts, refused

from quorank.federation import Arrivals, Federation
from quorank.privacy import ClippedGaussian, Setting, accounting
from quorank.privacy.accounting import Turns
from quorank.privacy.composition import compose, gaussian_loss
from quorank.privacy.ledger import read_ledger, recount

ROUNDS, MOST, REST, SIZE = 40, 6, 3, 5
FLEET = Setting(500, 50, ROUNDS, "arrivals", parameters=SIZE, most_rounds=MOST, rest=REST)


def allowed(turns: Turns, pattern: tuple[int, ...]) -> bool:
    """Whether one client may take part in these rounds, asked in each as a device and a coordinator are."""
    return all(
        accepts(turns.check, times, pattern[times - 1] if times else -1, round_) for times, round_ in enumerate(pattern)
    )


@pytest.mark.parametrize("most", [None, 1, 2, 3])
@pytest.mark.parametrize("rest", [0, 1, 2, 5])
def test_no_pattern_of_taking_part_has_more_rounds_than_are_counted(most, rest) -> None:
    turns = Turns(most, rest)
    for rounds in range(1, 9):
        subsets = itertools.chain.from_iterable(itertools.combinations(range(rounds), n) for n in range(rounds + 1))
        largest = max(len(pattern) for pattern in subsets if allowed(turns, pattern))
        setting = Setting(9, 5, 50, "arrivals", most_rounds=most, rest=rest)
        assert setting.participations(rounds) == largest == min(most or rounds, math.ceil(rounds / (rest + 1)))
        busiest = tuple(turns.busiest(rounds))
        assert len(busiest) == largest and allowed(turns, busiest)


def test_one_rule_refuses_with_two_codes() -> None:
    turns = Turns(most=2, rest=1)
    turns.check(0, -1, 0)
    turns.check(1, 0, 2)
    with refused("reply.resting"):
        turns.check(1, 0, 1)
    with refused("reply.too-often"):
        turns.check(2, 2, 9)
    for limits in ({"most": 0}, {"rest": -1}):
        with refused("value.out-of-range", next(iter(limits))):
            Turns(**limits)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("rounds", [0, 1, 4, 5, 12, ROUNDS])
def test_epsilon_is_that_of_as_many_rounds_with_everyone_in_each(rounds, accountant) -> None:
    """Without any amplification: neither the fleet's size nor the rounds that a client sat out make it smaller."""
    times, z, delta = min(MOST, math.ceil(rounds / (REST + 1))), 2.0, 1e-5
    alone = accounting.epsilon(Setting(50, 50, 99), z, delta, accountant, times)
    assert accounting.epsilon(FLEET, z, delta, accountant, rounds) == alone
    if times and accountant == "pld":
        least = epsilon_of([gaussian_losses(z)] * times, delta)  # by convolution, from below
        assert least <= alone <= 1.02 * least
        assert compose(gaussian_loss(FLEET, z, rounds), delta).epsilon == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize(
    "part", [ClippedGaussian(3.0), ClippedGaussian(3.0, quantile=0.5), ClippedGaussian(3.0, accountant="rdp")]
)
def test_noise_planned_for_whoever_comes_is_that_of_the_rounds_of_one_client(part) -> None:
    everyone = Setting(50, 50, MOST, parameters=SIZE)
    fleet, full = part.mechanism(FLEET, 1), part.mechanism(everyone, 1)
    assert fleet.noise_multiplier == full.noise_multiplier
    assert fleet.statement()["epsilon"] == full.statement()["epsilon"] <= 3.0
    assert fleet.loss(ROUNDS) == full.loss(MOST)
    assert [fleet.epsilon(t) for t in (1, 4, 5, 21, 39)] == [full.epsilon(t) for t in (1, 1, 2, 6, 6)]
    total = np.zeros(SIZE)
    few, planned = (fleet.finish(total, 0.0, 3, 3, 0, fleet.start()) for _ in range(2))
    assert few.noise == planned.noise == fleet.sum_multiplier * 0.05 and few.weight == 50.0


def book(setting=FLEET):
    came = np.array([50.0, 12.0, 31.0])[np.arange(ROUNDS) % 3]
    return played_ledger(ClippedGaussian(3.0), {"kind": "gaussian", "epsilon": 3.0}, setting, came)


def test_a_ledger_holds_the_limits_that_it_counts_on_and_is_counted_again_from_them(tmp_path) -> None:
    content = book()
    limits = content["setting"]["most_rounds"], content["setting"]["rest"]
    assert limits == (MOST, REST) and recount(content) == content["privacy"]["epsilon"]
    assert content["releases"][0]["participants"] == {"least": 12, "most": 50} and "withheld" not in content
    fleet = Federation(FLEET.clients, participation=Arrivals(20, 5), privacy=ClippedGaussian(3.0))
    assert not fleet.assumes_secret_cohorts, "who came is no secret"
    for change in ({"most_rounds": MOST + 1}, {"rest": REST + 4}):
        other = content | {"setting": content["setting"] | change}
        assert recount(other | {"mechanism": {"kind": "gaussian", "noise_multiplier": 2.0}}) != pytest.approx(
            recount(content | {"mechanism": {"kind": "gaussian", "noise_multiplier": 2.0}})
        )

    for limit in (-1, 1.5, "6", True, None):
        (tmp_path / "ledger.json").write_text(
            json.dumps(content | {"setting": content["setting"] | {"most_rounds": limit}})
        )
        with refused("file.damaged"):
            read_ledger(tmp_path)
    unlimited = book(setting=Setting(500, 50, ROUNDS, "arrivals", parameters=SIZE))
    assert "most_rounds" not in unlimited["setting"] and recount(unlimited) == unlimited["privacy"]["epsilon"]
    assert unlimited["privacy"]["noise_multiplier"] > content["privacy"]["noise_multiplier"]

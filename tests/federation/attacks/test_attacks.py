"""Attacks against their equations, and what all of them must hold."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from honest_cohorts import first, honest_updates
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from sampling import sampled
from scipy.stats import norm

from quorank.errors import BadInput
from quorank.federation.attacks import (
    ATTACKS,
    ClickPoisoning,
    Fang,
    InnerProduct,
    LittleIsEnough,
    Mimic,
    MinMax,
    MinSum,
    Scaled,
    SignFlip,
    Tailored,
    TwoPhase,
)
from quorank.federation.attacks.closed_form import largest_z
from quorank.kernels.draws import Purpose, key_of

KEY = key_of(1, Purpose.ATTACK)
BOTH = ("partial", "full")
EXAMPLES = [
    ClickPoisoning(),
    *(LittleIsEnough(knowledge=k) for k in BOTH),
    LittleIsEnough(z=1.5),
    *(Fang(knowledge=k, against=a) for k in BOTH for a in ("krum", "multi-krum", "trimmed-mean", "median")),
    SignFlip(),
    Scaled(),
    *(InnerProduct(knowledge=k) for k in BOTH),
    *(part(knowledge=k, direction=p) for part in (MinMax, MinSum) for k in BOTH for p in ("unit", "deviation", "sign")),
    *(Mimic(knowledge=k, victim=v) for k in BOTH for v in ("first", "farthest")),
    *(Tailored(against=a) for a in ("update", "sign", "deviation", "memory")),
    Tailored(apart=True, decoys=True),
    *(TwoPhase(before=b, turn=4) for b in ("honest", "drift", "memory")),
    *(TwoPhase(turn=0, after=a) for a in ("ranker", "axis")),
]
KINDS = pytest.mark.parametrize("kind", ATTACKS.members)


MASKS = [first(0), first(1), first(4), np.arange(10) % 3 == 1, first(6), first(10)]


@pytest.mark.parametrize(("attack", "mask"), sampled(EXAMPLES, MASKS, times=2), ids=str)
def test_honest_updates_pass_untouched_and_everything_is_finite(attack, mask) -> None:
    updates, theta = honest_updates(1)
    before, ranker = updates.copy(), theta.copy()
    sent = attack.poison(updates, mask, theta, KEY, 3)
    assert sent.shape == updates.shape
    assert sent[~mask].tobytes() == before[~mask].tobytes()
    assert np.isfinite(sent).all()
    assert updates.tobytes() == before.tobytes()
    assert theta.tobytes() == ranker.tobytes()
    assert attack.poison(updates, mask, theta, KEY, 3).tobytes() == sent.tobytes()
    sent[:] = 0.0
    assert updates.tobytes() == before.tobytes()


@KINDS
def test_partial_knowledge_sees_only_the_attacker_s_clients(kind) -> None:
    """What others would send changes nothing in what the attacker sends."""
    updates, theta = honest_updates(3)
    others = updates.copy()
    others[3:] = 7.0
    if ATTACKS.members[kind].knows_rule:
        pytest.skip("it knows everything")
    fields = {field.name for field in dataclasses.fields(ATTACKS.members[kind])}
    knows = {"knowledge": "partial"} if "knowledge" in fields else {}
    attack = ATTACKS.read({"kind": kind, "clients": 3, **knows}, "attack")
    one, other = (attack.poison(u, first(3), theta, KEY, 0)[:3] for u in (updates, others))
    assert one.tobytes() == other.tobytes()
    if knows:
        full = ATTACKS.read({"kind": kind, "clients": 3, "knowledge": "full"}, "attack")
        assert full.poison(updates, first(3), theta, KEY, 0)[:3].tobytes() != one.tobytes()


@KINDS
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 2), (5, 10), (12, 10)])
def test_half_or_more_malicious_clients_are_refused(kind, m, n) -> None:
    attack = ATTACKS.read({"kind": kind, "clients": m}, "attack")
    with pytest.raises(BadInput, match=f"attack: {m} of {n} clients would be malicious"):
        attack.check(n)
    attack.check(2 * m + 1)
    with refused("attack.no-clients", "attack.clients"):
        ATTACKS.read({"kind": kind, "clients": 0}, "attack")


@KINDS
def test_shapes_that_do_not_belong_together_are_refused(kind) -> None:
    attack, (updates, theta) = ATTACKS.members[kind](), honest_updates(4)
    for bad in ((updates, first(3, 9), theta), (updates, first(3), theta[1:]), (updates[0], first(3), theta)):
        with pytest.raises(BadInput, match="do not belong together"):
            attack.poison(*bad, KEY, 0)


def test_poisoned_clicks_are_table_5_1() -> None:
    attack = ClickPoisoning(clients=3)
    three, five = attack.users.tables(3, 10), attack.users.tables(5, 10)
    assert three.click.tolist() == [1.0, 0.5, 0.0]
    assert five.click.tolist() == [1.0, 0.8, 0.4, 0.2, 0.0]
    assert not three.stop.any()
    assert not five.stop.any()
    assert all(part.users is None for part in EXAMPLES if part.kind != "clicks")


@pytest.mark.parametrize(
    ("m", "share", "z"), [(1, 4 / 9, -0.1397), (2, 1 / 2, 0.0), (3, 4 / 7, 0.1800), (4, 4 / 6, 0.4307)]
)
def test_the_z_of_ten_clients(m, share, z) -> None:
    """s = 6 − m, so (10 − m − s)/(10 − m) = 4/(10 − m); z from a table of the normal distribution."""
    assert largest_z(10, m) == pytest.approx(z, abs=5e-5)
    assert norm.cdf(largest_z(10, m)) == pytest.approx(share, rel=1e-12)


@given(st.integers(3, 200), st.data())
def test_z_grows_with_the_malicious_and_leaves_a_majority(n, data) -> None:
    m = data.draw(st.integers(1, (n - 1) // 2))
    supporters = round((n - m) * (1 - norm.cdf(largest_z(n, m))))  # honest ones expected beyond z
    assert 2 * (supporters + m) > n
    assert 2 * (supporters + m - 1) <= n
    if 2 * (m + 1) < n:
        assert largest_z(n, m + 1) > largest_z(n, m)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
@pytest.mark.parametrize("knowledge", BOTH)
def test_little_is_enough_is_mean_minus_z_deviations(m, knowledge) -> None:
    """Of rankers, as the thesis writes it: θ_mal = μ − zσ over the θ_i that are known."""
    updates, theta = honest_updates(5)
    sent = LittleIsEnough(m, knowledge).poison(updates, first(m), theta, KEY, 0)
    known = [theta + u for u in (updates if knowledge == "full" else updates[:m])]
    z = norm.ppf(4 / (10 - m))
    for j in range(20):
        mu = sum(model[j] for model in known) / len(known)
        sigma = math.sqrt(sum((model[j] - mu) ** 2 for model in known) / len(known))
        for i in range(m):
            assert theta[j] + sent[i, j] == pytest.approx(mu - z * sigma, rel=1e-9, abs=1e-9)


@given(st.integers(0, 1000), st.floats(0.1, 5.0))
def test_sign_flip_sends_the_ranker_reversed_sum(seed, z) -> None:
    """Eq. 6.3: θ_g + Δ_mal = −z·(θ_g + Δ)."""
    updates, theta = honest_updates(seed)
    sent = SignFlip(2, z).poison(updates, first(2), theta, KEY, 0)
    np.testing.assert_allclose(theta + sent[:2], -z * (theta + updates[:2]), rtol=1e-9, atol=1e-9)

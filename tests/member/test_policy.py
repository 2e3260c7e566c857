"""The owner's policy: terms that protect hardly are declined, nothing is sent, and people read what they agree to."""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict, replace

import pytest
from refusals import refused
from small_service import SmallService

from quorank.member import Client, Policy
from quorank.member.policy import Promise
from quorank.privacy import ClippedGaussian, NoPrivacy, SecureSum, Setting, Signs
from quorank.protocol.terms import Terms

GOOD = Terms(
    "run", 0, 5, 20, 4, privacy=ClippedGaussian(epsilon=2.0, clip=0.3), setting=Setting(100, 50, 20, "poisson")
)
MOST = 10**6
BAD = {
    "epsilon": replace(GOOD, privacy=ClippedGaussian(epsilon=1e4, clip=0.3)),
    "delta": replace(GOOD, privacy=ClippedGaussian(epsilon=2.0, delta=0.999999, clip=0.3)),
    "clip": replace(GOOD, privacy=ClippedGaussian(epsilon=2.0, clip=1e9)),
    "cohort": replace(GOOD, setting=Setting(1, 1, 20)),
    "unstated": replace(GOOD, privacy=NoPrivacy()),
    "searches": replace(GOOD, interactions=1),
    "releases": replace(GOOD, rounds=MOST, setting=Setting(100, 50, MOST, "poisson")),
}


def joined(tmp_path, service: SmallService, **options) -> Client:
    return Client.open(tmp_path / "device", service.invitation(tmp_path / "invitation.json"), **options)


@pytest.mark.slow
@pytest.mark.parametrize("limit", BAD)
def test_a_service_with_terms_beyond_the_policy_hears_nothing(limit, tmp_path) -> None:
    """The real device over HTTPS, with the policy that it has when its owner sets none."""
    with SmallService(BAD[limit]).running(tmp_path) as service, joined(tmp_path, service) as client:
        with refused(f"policy.{limit}"):
            client.consent(True)
        assert client.status()["declined"] and not client.status()["consent"]
        assert client.sync(force=True).code == "device.consent" and service.heard == []
        client.store.set_consent(True, 0.0)  # however consent came about
        assert client.sync(force=True).code == f"policy.{limit}" and service.heard == []


@pytest.mark.slow
def test_a_stricter_policy_holds_from_the_next_sync_on_and_stays_with_the_device(tmp_path) -> None:
    with SmallService(GOOD).running(tmp_path) as service:
        with joined(tmp_path, service) as client:
            client.consent(True)
            assert client.sync(force=True).code == "task.none" and service.heard
        service.heard.clear()
        with Client.open(tmp_path / "device", policy=Policy(cohort=51)) as client:
            assert client.sync(force=True).code == "policy.cohort"
        with Client.open(tmp_path / "device") as client:
            assert client.sync(force=True).code == "policy.cohort" and service.heard == []
            assert client.leave().outcome == "leaving", "leaving is never declined"


def test_each_limit_is_checked_on_its_own() -> None:
    promise = Promise.of(GOOD)
    assert (promise.epsilon, promise.cohort, promise.releases, promise.searches) == (2.0, 50, 20, 4)
    exact = Policy(2.0, promise.delta, False, 50, 20, 4, 0.3, ("gaussian",))
    exact.check(promise)
    for name, worse in (
        ("epsilon", 1.99), ("delta", 9e-6), ("cohort", 51), ("releases", 19), ("searches", 5), ("clip", 0.29),
        ("privacy", ("signs",)),
    ):  # fmt: skip
        with refused(f"policy.{name}"):
            replace(exact, **{name: worse}).check(promise)


def test_reports_count_and_turns_bound_the_releases() -> None:
    setting = Setting(100, 50, 20, "arrivals", most_rounds=3, rest=1)
    terms = replace(GOOD, setting=setting, report_epsilon=0.5)
    promise = Promise.of(terms)
    assert promise.releases == 3
    assert promise.epsilon == pytest.approx(2.0 + 3 * 0.5)
    assert Promise.of(replace(terms, setting=replace(setting, most_rounds=None))).releases == 10


@pytest.mark.parametrize(
    ("privacy", "read"),
    [
        (ClippedGaussian(epsilon=2.0, clip=0.3), "can read each release"),
        (Signs(p=0.9), "adds noise to each release"),
        (SecureSum(clip=0.3), "only sums over at least 100 devices"),
    ],
    ids=str,
)
def test_the_statement_says_what_leaves_how_often_who_reads_it_and_what_epsilon_means(privacy, read) -> None:
    what, often, who, cost = Promise.of(replace(GOOD, privacy=privacy, setting=Setting(100, 100, 20))).sentences()
    assert "5 numbers" in what and "4 of your searches" in what
    assert "20 times" in often
    assert read in who
    if isinstance(privacy, ClippedGaussian):
        assert f"at most {math.exp(2.0):.1f} times" in cost
    if isinstance(privacy, SecureSum):
        assert "No ε" in cost


def test_policy_files(tmp_path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('epsilon = 1\ncohort = 20\nprivacy = ["gaussian", "signs"]\n')
    assert Policy.read(path) == Policy(epsilon=1.0, cohort=20, privacy=("gaussian", "signs"))
    assert set(tomllib.loads(path.read_text())) <= set(asdict(Policy()))
    for text, code in (
        ("epsilon = 0", "value.out-of-range"),
        ("most = 1", "part.unknown-key"),
        ("a b", "file.not-toml"),
    ):
        path.write_text(text)
        with refused(code):
            Policy.read(path)

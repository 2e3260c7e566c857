"""The ledger of a run: every release is in it, it survives a resume, and a false one is found out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from privacy_losses import played_ledger
from refusals import refused

from quorank.errors import BadInput
from quorank.privacy import ClippedGaussian, NoPrivacy, PublishedLaplace, Setting, Signs, accounting
from quorank.privacy.ledger import combined_privacy, compose_runs, read_ledger, recount, release_entries

NAN = float("nan")


def ledger_of(part, table, rounds=20):
    return played_ledger(part, table, Setting(50, 50, 20, parameters=5), np.full(rounds, 50.0))


def test_equal_rounds_are_one_entry() -> None:
    found = release_entries(
        np.array([3.0, 5.0, 4.0, 4.0]), np.array([0.1, 0.1, 0.2, 0.2]), np.array([1.0, 1.0, 2.0, 2.0])
    )
    assert [(e["first_round"], e["last_round"], e["releases"]) for e in found] == [(1, 2, 8), (3, 4, 8)]
    assert found[0]["participants"] == {"least": 3, "most": 5}
    assert [e["noise_multiplier"] for e in found] == [10.0, 10.0]
    assert release_entries(np.array([]), np.array([]), np.array([])) == []
    (plain,) = release_entries(np.array([2.0, 2.0]), np.array([NAN, NAN]), np.zeros(2))
    assert plain["sensitivity"] is None and plain["noise_multiplier"] is None


@pytest.mark.parametrize("rounds", [1, 7, 20])
def test_epsilon_is_that_of_the_rounds_that_were_played(rounds) -> None:
    content = ledger_of(ClippedGaussian(3.0), {"kind": "gaussian", "epsilon": 3.0}, rounds)
    assert recount(content) == content["privacy"]["epsilon"]
    assert (content["privacy"]["epsilon"] == pytest.approx(3.0)) == (rounds == 20)
    assert content["spent"] == [] or content["spent"][-1]["round"] <= rounds
    json.dumps(content, allow_nan=False)


def test_a_round_with_less_noise_than_planned_is_found_out() -> None:
    content = ledger_of(ClippedGaussian(3.0), {"kind": "gaussian", "epsilon": 3.0})
    content["releases"][0]["noise"] *= 0.5
    with pytest.raises(BadInput, match=r"rounds 1 to 20 had noise of .* does not add up"):
        recount(content)


@pytest.mark.parametrize(
    "change",
    [
        lambda book: book["releases"].clear(),
        lambda book: book["releases"][0].update(last_round=19),
        lambda book: book["releases"][0].update(first_round=2),
        lambda book: book["releases"][0].update(noise=0.0),
        lambda book: book["releases"][0].update(sensitivity=0.0, noise=0.0),
        lambda book: book["setting"].update(rounds=1),
    ],
)
def test_a_ledger_whose_entries_are_not_its_rounds_is_found_out(change) -> None:
    content = ledger_of(ClippedGaussian(3.0), {"kind": "gaussian", "epsilon": 3.0})
    change(content)
    with pytest.raises(BadInput, match="does not add up"):
        recount(content)


def test_a_ledger_from_elsewhere_imports_no_module(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted.py").write_text("open('imported', 'w')")
    content = ledger_of(ClippedGaussian(3.0), {"kind": "gaussian", "epsilon": 3.0})
    content["mechanism"]["kind"] = "planted:Privacy"
    with pytest.raises(BadInput, match="is code of a module, which is not run from here"):
        recount(content)
    assert not (tmp_path / "imported").exists()


def test_what_has_no_epsilon_is_not_counted() -> None:
    assert recount(ledger_of(NoPrivacy(), {"kind": "none"})) is None
    published = ledger_of(PublishedLaplace(), {"kind": "published"})
    assert published["privacy"]["epsilon"] is None and recount(published) is None


def poisson_ledger():
    there = np.array([7.0, 12.0, 10.0, 9.0, 11.0, 13.0])
    part = ClippedGaussian(noise_multiplier=2.0, accountant="rdp")
    table = {"kind": "gaussian", "noise_multiplier": 2.0, "accountant": "rdp"}
    return played_ledger(part, table, Setting(50, 10, 6, "poisson", parameters=5), there)


def test_beside_an_amplified_epsilon_the_numbers_of_participants_are_withheld() -> None:
    """Their number tells who was there: one client less is one less, at any noise on the sums."""
    content = poisson_ledger()
    assert [(e["releases"], e["participants"]) for e in content["releases"]] == [(None, {"planned": 10})]
    assert "withheld" in content and recount(content) == content["privacy"]["epsilon"]
    text = json.dumps(content)
    assert '"least"' not in text and '"most"' not in text
    everyone = ledger_of(ClippedGaussian(3.0), {"kind": "gaussian", "epsilon": 3.0})
    assert everyone["releases"][0]["participants"] == {"least": 50, "most": 50} and "withheld" not in everyone


def test_rebuildings_are_composed_with_their_run_at_its_delta() -> None:
    run = ledger_of(ClippedGaussian(3.0), {"kind": "gaussian", "epsilon": 3.0})
    again = ledger_of(ClippedGaussian(3.0), {"kind": "gaussian", "epsilon": 3.0}, rounds=7)
    stated = combined_privacy(run["mechanism"], [run, again])
    z = run["privacy"]["noise_multiplier"]
    expected = accounting.epsilon(Setting(1, 1, 27), z, 1e-5)
    assert stated["epsilon"] == pytest.approx(expected) and stated["delta"] == 1e-5 and stated["rounds"] == 27
    assert stated["epsilon"] < run["privacy"]["epsilon"] + again["privacy"]["epsilon"]
    assert combined_privacy(run["mechanism"], [run, {**again, "privacy": None}]) is None


def test_several_runs_are_composed_at_one_delta() -> None:
    run = ledger_of(ClippedGaussian(3.0), {"kind": "gaussian", "epsilon": 3.0})
    both = compose_runs([run, run])
    assert both["epsilon"] == pytest.approx(
        accounting.epsilon(Setting(1, 1, 40), run["privacy"]["noise_multiplier"], 1e-5)
    )
    assert (both["delta"], both["unit"], both["neighbouring"]) == (1e-5, "client", "add or remove one client")
    assert compose_runs([run, run], 1e-6)["epsilon"] > both["epsilon"]
    signs = ledger_of(Signs(p=0.6), {"kind": "signs", "p": 0.6})
    mixed = compose_runs([run, signs])
    assert mixed["epsilon"] == pytest.approx(run["privacy"]["epsilon"] + signs["privacy"]["epsilon"])
    assert mixed["delta"] == 1e-5 and "pure ε is added" in mixed["method"]
    assert compose_runs([signs, signs])["delta"] == 0.0
    assert compose_runs([run, ledger_of(NoPrivacy(), {"kind": "none"})])["epsilon"] is None
    with refused("privacy.delta-used-up"):
        compose_runs([run], 0.0)


def test_a_missing_ledger_is_named(tmp_path) -> None:
    with pytest.raises(BadInput, match="no ledger here"):
        read_ledger(tmp_path)

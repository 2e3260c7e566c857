"""The ledger of a run: every release is in it, it survives a resume, and a false one is found out."""

from __future__ import annotations

import json

import numpy as np
import pytest

from quorank.errors import BadInput
from quorank.privacy import ClippedGaussian, NoPrivacy, PublishedLaplace, Setting
from quorank.privacy.ledger import ledger, read_ledger, recount, release_entries

NAN = float("nan")


def ledger_of(part, table, rounds=20, **changes):
    setting = Setting(50, 50, 20, parameters=5)
    mechanism = part.mechanism(setting, 1)
    sums = [mechanism.finish(np.zeros(5), 50.0, 50, 50, t, mechanism.start()) for t in range(rounds)]
    columns = (np.full(rounds, 50.0), np.array([s.sensitivity for s in sums]), np.array([s.noise for s in sums]))
    return ledger(table, mechanism, setting, *columns)


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
@pytest.mark.parametrize("over_rounds", ["independent", "tree", "optimal"])
def test_epsilon_is_that_of_the_rounds_that_were_played(rounds, over_rounds) -> None:
    content = ledger_of(
        ClippedGaussian(3.0, over_rounds=over_rounds),
        {"kind": "gaussian", "epsilon": 3.0, "over_rounds": over_rounds},
        rounds,
    )
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


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "3",
        '{"mechanism": {}, "setting": {}, "releases": [], "privacy": null}',
        '{"mechanism": [], "setting": {}, "releases": [], "privacy": null}',
        '{"mechanism": {}, "setting": {"clients": "many"}, "releases": [{}], "privacy": "strong"}',
    ],
)
def test_shapes_that_are_no_ledger_are_refused(text, tmp_path) -> None:
    (tmp_path / "ledger.json").write_text(text)
    with pytest.raises(BadInput, match="damaged"):
        read_ledger(tmp_path)


def test_what_has_no_epsilon_is_not_counted() -> None:
    assert recount(ledger_of(NoPrivacy(), {"kind": "none"})) is None
    published = ledger_of(PublishedLaplace(), {"kind": "published"})
    assert recount(published) == published["privacy"]["epsilon"]


def test_damaged_ledgers_are_refused(tmp_path) -> None:
    with pytest.raises(BadInput, match="no ledger here"):
        read_ledger(tmp_path)
    path = tmp_path / "ledger.json"
    path.write_text("{")
    with pytest.raises(BadInput, match="not JSON"):
        read_ledger(tmp_path)
    path.write_text("{}")
    with pytest.raises(BadInput, match="'mechanism' is missing"):
        read_ledger(tmp_path)

"""`quorank privacy`: plans that agree with the accountant, ledgers that add up, audits that can fail."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import dp_accounting as dp
import pytest
from command_line import Quorank
from dp_accounting import pld

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.runner import run_experiment
from quorank.reports.report import report_page

PRIVATE = """\
[federation]
clients = 60
rounds = 30
[privacy]
kind = "gaussian"
epsilon = 8.0
delta = 1e-5
clip = 0.3
"""


def test_a_plan_is_what_the_accountant_says(quorank: Quorank) -> None:
    flags = ["--clients", 1000, "--cohort", 1000, "--rounds", 300, "--epsilon", 8, "--delta", 1e-5, "--json"]
    outcome = quorank("privacy", "plan", *flags)
    assert outcome.code == 0 and outcome.err == "" and outcome.out.count("\n") == 1
    plan = json.loads(outcome.out)
    composed = dp.SelfComposedDpEvent(dp.GaussianDpEvent(plan["noise_multiplier"]), 300)
    assert pld.PLDAccountant().compose(composed).get_epsilon(1e-5) == pytest.approx(8.0, rel=1e-4)
    assert plan["epsilon"] == pytest.approx(8.0, rel=1e-6) and plan["epsilon"] <= 8.0
    assert (plan["delta"], plan["unit"], plan["rounds"]) == (1e-5, "client", 300)
    assert plan["signal_to_noise"]["run"] == pytest.approx(plan["signal_to_noise"]["round"] * math.sqrt(300))


def test_a_plan_of_whoever_comes_is_that_of_the_rounds_one_client_is_in(quorank: Quorank) -> None:
    flags = ("--epsilon", "2", "--json")
    fleet = ("--clients", "10000", "--cohort", "1000", "--participation", "arrivals", "--rounds", "300")
    plan = json.loads(quorank("privacy", "plan", *fleet, "--most", "20", "--rest", "9", *flags).out)
    everyone = json.loads(quorank("privacy", "plan", "--clients", "1000", "--rounds", "20", *flags).out)
    assert plan["noise_multiplier"] == everyone["noise_multiplier"] and plan["participations"] == 20
    assert plan["participation"] == "arrivals" and "not hidden" in plan["neighbouring"]
    rested = json.loads(quorank("privacy", "plan", *fleet, "--rest", "29", *flags).out)
    assert rested["participations"] == 10 and rested["noise_multiplier"] < plan["noise_multiplier"]
    shown = quorank("privacy", "plan", *fleet, "--most", "20")
    assert "arrivals are public" in shown.out and max(len(line) for line in shown.out.splitlines()) <= 80
    outcome = quorank("privacy", "plan", "--clients", "10", "--rest", "3")
    assert outcome.code == 2 and "rest: " in outcome.err and outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--clients", "0"), "clients: must be at least 1"),
        (("--epsilon", "-1"), "epsilon"),
        (("--delta", "2"), "delta"),
        (("--cohort", "100", "--epsilon", "100000"), "next to no noise"),
        (("--epsilon", "1", "--noise-multiplier", "2"), "not both"),
        (("--parameters", "0"), "--parameters"),
        (("--clients", "10", "--cohort", "5", "--participation", "full"), "full participation"),
    ],
)
def test_bad_plans_are_one_sentence(quorank: Quorank, flags: tuple[str, ...], words: str) -> None:
    assert words in quorank("privacy", "plan", *flags).refused()


@pytest.fixture(scope="module")
def finished_private_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("private") / "made"
    experiment = Experiment.read(parse_experiment_file(PRIVATE, "private.toml"))
    run_experiment(experiment, folder, report=report_page)
    return folder


@pytest.fixture
def private_run(own_folder: Path, finished_private_run: Path) -> Path:
    """A copy that may be changed."""
    shutil.copytree(finished_private_run, own_folder / "made")
    return Path("made")


def test_a_run_states_its_privacy_and_its_ledger_adds_up(quorank: Quorank, private_run: Path) -> None:
    privacy = json.loads((private_run / "summary.json").read_text())["privacy"]
    assert (privacy["kind"], privacy["unit"], privacy["delta"]) == ("gaussian", "client", 1e-5)
    assert privacy["rounds"] == 30 and privacy["epsilon"] == pytest.approx(8.0, rel=1e-6)
    composed = dp.SelfComposedDpEvent(dp.GaussianDpEvent(privacy["noise_multiplier"]), 30)
    assert pld.PLDAccountant().compose(composed).get_epsilon(1e-5) == pytest.approx(8.0, rel=1e-4)
    ledger = json.loads(quorank("privacy", "ledger", private_run, "--json").out)
    assert ledger["recounted_epsilon"] == privacy["epsilon"] == ledger["privacy"]["epsilon"]
    assert [e["releases"] for e in ledger["releases"]] == [60 * 30]
    assert ledger["releases"][0]["noise"] == pytest.approx(0.3 * privacy["noise_multiplier"])
    assert "ε = 8" in quorank("privacy", "ledger", private_run).out
    page = (private_run / "report.html").read_text()
    assert "ε spent by one client at δ = 1e-05" in page


def test_a_falsified_ledger_is_said(quorank: Quorank, private_run: Path) -> None:
    path = private_run / "ledger.json"
    content = json.loads(path.read_text())
    content["privacy"]["epsilon"] = 1.0
    path.write_text(json.dumps(content))
    shutil.copytree(private_run, "again")
    for runs in ([private_run], [private_run, "again"]):
        outcome = quorank("privacy", "ledger", *runs, "--json")
        assert outcome.code == 1 and "compose to 8" in outcome.err and (len(runs) == 1 or outcome.out == "")


def copy_with_seed(run: Path, name: str, seed: int) -> None:
    """A copy of a run, as another seed would have given it but for its numbers."""
    shutil.copytree(run, name)
    summary = json.loads((run / "summary.json").read_text()) | {"seed": seed}
    Path(name, "summary.json").write_text(json.dumps(summary))


def test_runs_of_one_seed_share_their_noise_and_state_no_epsilon(quorank: Quorank, private_run: Path) -> None:
    """The difference of two sums under the same noise has none."""
    copy_with_seed(private_run, "same", 1)
    copy_with_seed(private_run, "other", 2)
    outcome = quorank("privacy", "ledger", private_run, "other", "same", "--json")
    together = json.loads(outcome.out)["together"]
    assert (outcome.code, together["epsilon"], together["shared_seeds"]) == (0, None, [1])
    assert outcome.err == f"quorank: warning: {together['method']}\n" and "made, same: drawn from seed 1" in outcome.err
    assert "the run states no ε" in quorank("privacy", "ledger", private_run, "same").out
    apart = quorank("privacy", "ledger", private_run, "other", "--json")
    assert apart.err == "" and json.loads(apart.out)["together"]["shared_seeds"] == []


def test_several_runs_are_composed_at_one_delta(quorank: Quorank, private_run: Path) -> None:
    """Two runs of 30 rounds with the same noise are one of 60; ε used to be known of each alone."""
    copy_with_seed(private_run, "again", 2)
    z = json.loads((private_run / "summary.json").read_text())["privacy"]["noise_multiplier"]
    found = json.loads(quorank("privacy", "ledger", private_run, "again", "--json").out)
    composed = dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), 60)
    expected = pld.PLDAccountant().compose(composed).get_epsilon(1e-5)
    assert found["together"]["epsilon"] == pytest.approx(expected, rel=1e-4) and found["together"]["delta"] == 1e-5
    assert 8.0 < found["together"]["epsilon"] < 16.0 and found["together"]["rounds"] == 60
    assert [run["epsilon"] for run in found["runs"]] == pytest.approx([8.0, 8.0])
    assert found["together"]["method"] and found["together"]["neighbouring"] == "add or remove one client"
    finer = json.loads(quorank("privacy", "ledger", private_run, "again", "--delta", 1e-7, "--json").out)
    assert finer["together"]["epsilon"] > found["together"]["epsilon"] and finer["together"]["delta"] == 1e-7
    one = json.loads(quorank("privacy", "ledger", private_run, "--delta", 1e-5, "--json").out)
    assert one["together"]["epsilon"] == pytest.approx(8.0)
    shown = quorank("privacy", "ledger", private_run, "again").out
    assert f"ε = {found['together']['epsilon']:.4g} at δ = 1e-05 (unit: client" in shown
    assert "given twice" in quorank("privacy", "ledger", private_run, "./made").refused()
    assert "δ" in quorank("privacy", "ledger", private_run, "again", "--delta", 0).refused()


def test_an_audit_of_an_honest_run_passes(quorank: Quorank, private_run: Path) -> None:
    flags = ("--canaries", "120", "--victims", "3", "-q")
    outcome = quorank("privacy", "audit", private_run, *flags, "--json")
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    assert result["passed"] and result["lower_bound"] <= result["claimed"]["epsilon"] == pytest.approx(8.0)
    lines = result["reconstruction"]["lines"]
    assert lines["manipulated/no privacy"]["auc"] > 0.95 > lines["manipulated/noisy sum"]["auc"]
    assert "passed" in quorank("privacy", "audit", private_run, *flags[:3], "1", "-q").out


def test_an_audit_of_a_run_with_too_little_noise_fails(
    quorank: Quorank, private_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same claim, a hundredth of the noise: the canaries stand out, and the audit exits with 1."""
    from quorank.privacy.mechanisms.gaussian import GaussianMechanism

    honest = GaussianMechanism.sum_multiplier.fget
    monkeypatch.setattr(GaussianMechanism, "sum_multiplier", property(lambda self: honest(self) / 100))
    file = private_run / "run.toml"
    file.write_text(file.read_text().replace("epsilon = 8.0", "epsilon = 2.0"))
    outcome = quorank("privacy", "audit", private_run, "--canaries", "300", "--victims", "0", "-q")
    assert outcome.code == 1 and "REFUTED" in outcome.out


def test_the_published_claim_is_refuted_by_its_own_run(quorank: Quorank) -> None:
    Path("p.toml").write_text(
        '[federation]\nclients = 60\nrounds = 40\n[privacy]\nkind = "published"\nepsilon = 1.2\nsensitivity = 3.0\n'
    )
    outcome = quorank("privacy", "audit", "p.toml", "--canaries", "300", "--victims", "0", "-q", "--json")
    result = json.loads(outcome.out)
    assert result["published"] == {"epsilon": 1.2, "read_as": result["published"]["read_as"], "refuted": True}
    assert result["passed"]  # what the ledger claims, all rounds added up, holds
    made = quorank("run", "p.toml", "--out", "made", "--json", "-q")
    privacy = json.loads(made.out)["privacy"]
    assert privacy["kind"] == "published" and "one round" in privacy["warning"]


@pytest.mark.parametrize(
    ("participation", "noise"),
    [
        ('{ kind = "poisson", rate = 0.1 }', 2.0074),
        ('{ kind = "sampled", cohort = 20 }', 7.0875),
        ('{ kind = "arrivals", enough = 40, least = 5, most = 15, rest = 2 }', 8.3235),
    ],
)
def test_an_audit_counts_on_sampling_as_the_claim_does(quorank: Quorank, participation: str, noise: float) -> None:
    """A canary is in as many rounds as anyone; in all of them it would refute a true claim."""
    Path("s.toml").write_text(
        f"[federation]\nclients = 200\nrounds = 60\nparticipation = {participation}\n"
        f'[privacy]\nkind = "gaussian"\nnoise_multiplier = {noise}\naccountant = "rdp"\n'
    )
    outcome = quorank("privacy", "audit", "s.toml", "--canaries", "300", "--victims", "0", "-q", "--json")
    result = json.loads(outcome.out)
    assert result["claimed"]["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert outcome.code == 0 and result["passed"] and result["lower_bound"] < 2.0
    if "arrivals" in participation:  # canaries come as often as they may, and little noise does not hide them
        Path("s.toml").write_text(Path("s.toml").read_text().replace(str(noise), "0.4"))
        outcome = quorank("privacy", "audit", "s.toml", "--canaries", "300", "--victims", "0", "-q", "--json")
        assert json.loads(outcome.out)["lower_bound"] > 2.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ledger", "nowhere"), "no ledger here"),
        (("audit", "nowhere"), "no such experiment file"),
        (("audit", "small.toml", "--canaries", "3"), "canaries: must be at least 10"),
        (("audit", "small.toml", "--canaries", "5000"), "do not fit 12 rounds"),
        (("audit", "small.toml", "--confidence", "2"), "confidence"),
    ],
)
def test_bad_calls_are_one_sentence(quorank: Quorank, arguments: tuple[str, ...], words: str) -> None:
    assert words in quorank("privacy", *arguments).refused()

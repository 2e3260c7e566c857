"""`quorank unlearn`: a ranker without the leavers, data that are gone, and every refusal."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import Quorank
from dp_accounting import gaussian_mechanism
from quick_runs import run_quickly, stopped_run
from unlearning_runs import experiment, kept, made

from quorank.data.source import DataSource
from quorank.engines.process import Simulator
from quorank.experiments import run_directory as storage
from quorank.experiments import runner
from quorank.experiments.unlearning import commit
from quorank.experiments.unlearning.commit import erase
from quorank.experiments.workload import collection_of
from quorank.federation.unlearning.methods import KeptRound, fresh_seed, rebuild
from quorank.files.atomic import write_whole
from quorank.metrics.evaluator import Evaluator
from quorank.rankers import Linear
from quorank.reports import report

FLAGS = ("--compare", "--seeds", "1", "--json", "-q")


def test_unlearning_gives_the_figures_that_are_asked_for(quorank: Quorank) -> None:
    folder = made()
    summary = json.loads((folder / "summary.json").read_text())
    outcome = quorank("unlearn", folder, "--client", 5, *FLAGS)
    assert outcome.code == 0 and outcome.err == "", outcome.err
    result = json.loads(outcome.out)
    assert result["before"] == summary["offline"]["ndcg@10"]
    assert result["local_updates_share"] == pytest.approx(4 / 40) and result["local_updates"] == 5 * 5 * 4
    assert result["retrained_local_updates"] == 5 * 5 * 40
    assert (result["clients"], result["interval"], result["local_steps"], result["rounds"]) == ([5], 10, 5, 4)
    distance = result["distance"]
    assert 0 < distance["before_to_retrained"] < 1 and 0 < distance["unlearned_to_retrained"] < 1
    assert 0 < distance["retrained_seeds"] < 1
    collection = collection_of(DataSource("synthetic:mq2007", queries=60))
    theta = np.array(json.loads((folder / "ranker.json").read_text())["parameters"])
    assert result["after"] == Evaluator(collection.test, Linear()).all_means([theta])[0][0]
    assert (folder / "unlearned" / "ranker.json").read_bytes() == (folder / "ranker.json").read_bytes()


@pytest.mark.parametrize(("method", "beta"), [("published", 0.0), ("published", 0.8), ("fresh", 0.0), ("fresh", 0.8)])
def test_the_command_is_the_rebuilding_from_the_kept_files(quorank: Quorank, method: str, beta: float) -> None:
    """The command against `rebuild` fed by hand from the float32 files; the simulator's loop is tested beside it."""
    extra = f"client_momentum = {beta}"
    folder, chosen = made(extra=extra), experiment(extra)
    lengths = []
    for client in (0, 2, 3, 5):
        with np.load(folder / "clients" / f"{client}.npz") as saved:
            lengths.append(np.sqrt((saved["updates"].astype(np.float64) ** 2).sum(axis=1)))
    flags = ["--client", 1, "--client", 4, "--interval", 20, "--local-steps", 2, "-q"]
    assert quorank("unlearn", folder, *flags, "--method", method).code == 0
    played = runner.Runner(chosen, 1)
    simulation = replace(played.workload.simulation, seed=fresh_seed(1, "unlearning", (1, 4)))
    federation = replace(chosen.federation, interactions=2, client_momentum=beta**20)
    simulator = Simulator(federation, simulation, rounds=2, absent=(1, 4))
    members = np.array([0, 2, 3, 5])
    entries = [KeptRound(t, members, np.array([own[at] for own in lengths])) for t, at in ((1, 0), (21, 2))]
    ways: dict[str, dict[str, Any]] = {
        "published": {},
        "fresh": {"step_factor": 20.0 * 5 / 2, "average": 3.0, "lengths": "own", "gain": (1 - beta**20) / (1 - beta)},
    }
    expected = rebuild(simulator, np.zeros(46), entries, **ways[method]).theta
    theta = json.loads((folder / "ranker.json").read_text())["parameters"]
    np.testing.assert_allclose(theta, expected, rtol=1e-12)


@pytest.mark.usefixtures("no_pages")
def test_fresh_and_retrained_rankers_do_not_depend_on_the_leaver(quorank: Quorank) -> None:
    """Whatever client 0 had done, the ranker without it has the same bits; the other methods give two rankers."""
    made("honest", rounds=20)
    made("hostile", extra='[attack]\nkind = "sign-flip"\nclients = 1', rounds=20)
    for method in ("fresh", "retrain", "published"):
        found = []
        for run in ("honest", "hostile"):
            shutil.copytree(run, f"{run}-{method}")
            assert quorank("unlearn", f"{run}-{method}", "--client", 0, "--method", method, "-q").code == 0
            found.append(json.loads(Path(f"{run}-{method}", "ranker.json").read_text())["parameters"])
        assert (found[0] == found[1]) is (method in ("fresh", "retrain")), method


def test_a_leaver_s_data_are_gone_and_the_others_are_untouched(quorank: Quorank) -> None:
    folder = made()
    others = {name: content for name, content in kept(folder).items() if name != "3.npz"}
    with np.load(folder / "clients" / "3.npz") as saved:
        rows = [row.tobytes() for row in saved["updates"] if row.any()]
    assert rows and any(rows[0] in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    result = json.loads(quorank("unlearn", folder, "--client", 3, "--json", "-q").out)
    assert result["erased"] == ["clients/3.npz"] and result["files_checked"] >= 12
    assert kept(folder) == others
    for path in folder.rglob("*"):
        assert not path.is_file() or not any(row in path.read_bytes() for row in rows), path


def numbers_in(*files: Path) -> set[float]:
    """All numbers of tables and texts that are long enough to be recognised."""
    found = set[float]()
    for path in files:
        if path.suffix == ".parquet":
            found |= {x for column in pq.read_table(path).to_pydict().values() for x in column if x is not None}
        elif path.suffix in (".json", ".html", ".toml"):
            found |= {float(word) for word in re.findall(r"\d+\.\d+(?:e-?\d+)?", path.read_text())}
    return {x for x in found if len(repr(x)) >= 12}


def test_no_number_of_a_round_or_ranker_with_the_leaver_is_left(quorank: Quorank) -> None:
    """Beside the others' kept updates, the norm of a round's mean would confirm a guess of the leaver's."""
    folder = made(page=True, extra="[evaluation]\nevery = 2")
    updates = [np.load(path)["updates"][0].astype(float) for path in sorted(folder.glob("clients/*.npz"))]
    norms = pq.read_table(folder / "rounds.parquet")["update_norm"].to_pylist()
    assert norms[0] == pytest.approx(np.linalg.norm(np.mean(updates, axis=0)), rel=1e-6), "what the attacker computes"
    names = ("history.parquet", "rounds.parquet", "summary.json")
    secret = numbers_in(*(folder / name for name in names))
    assert len(secret) > 100
    result = json.loads(quorank("unlearn", folder, "--client", 3, "--json", "-q").out)
    summary = json.loads((folder / "summary.json").read_text())
    own = {*summary["offline"].values(), *summary["seconds"].values(), summary["interactions_per_second"]}
    assert not secret & numbers_in(*folder.rglob("*")) - own
    assert result["erased"] == ["clients/3.npz", "rounds.parquet"]
    history = pq.read_table(folder / "history.parquet").to_pydict()
    assert (history["round"], history["offline_ndcg@10"]) == ([40], [result["after"]])
    assert quorank("compare", folder).code == 0 and quorank("report", folder).code == 0


@pytest.mark.parametrize("form", ["parquet", "csv", "sqlite"])
def test_a_copy_of_the_rounds_with_the_leaver_is_found(quorank: Quorank, form: str) -> None:
    folder = made()
    norms = pq.read_table(folder / "history.parquet")["update_norm"].to_pylist()
    if form == "parquet":
        shutil.copy(folder / "history.parquet", folder / "old.parquet")
    elif form == "csv":
        (folder / "old.csv").write_text("\n".join(map(repr, norms)))
    else:
        with closing(sqlite3.connect(folder / "old.sqlite")) as database, database:
            database.execute("CREATE TABLE metrics (value REAL)")
            database.executemany("INSERT INTO metrics VALUES (?)", [(norm,) for norm in norms])
    before = everything(folder)
    assert f"old.{form}: this file still holds data" in quorank("unlearn", folder, "--client", 3, "-q").refused()
    assert everything(folder) == before


def test_a_copy_of_a_leaver_s_data_is_found_before_anything_is_done(quorank: Quorank) -> None:
    folder = made()
    shutil.copy(folder / "clients" / "3.npz", folder / "backup.bin")
    before = everything(folder)
    assert "backup.bin: this file still holds data" in quorank("unlearn", folder, "--client", 3, "-q").refused()
    assert everything(folder) == before
    (folder / "backup.bin").unlink()
    (folder / "clients" / ".3.npz.77.abcd.tmp").write_bytes(b"half")
    (folder / "checkpoint.npz").write_bytes(b"late")
    result = json.loads(quorank("unlearn", folder, "--client", 3, "--json", "-q").out)
    assert result["erased"] == ["clients/3.npz", "clients/.3.npz.77.abcd.tmp"]
    assert not (folder / "checkpoint.npz").exists()


def test_a_leaver_s_damaged_file_does_not_keep_it_in(quorank: Quorank) -> None:
    folder = made()
    (folder / "clients" / "2.npz").write_bytes(b"PK nothing")
    result = json.loads(quorank("unlearn", folder, "--client", 2, "--json", "-q").out)
    assert result["erased"] == ["clients/2.npz"] and "2.npz" not in kept(folder)


def everything(folder: Path) -> dict[str, bytes]:
    """All files of a run."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_request_that_was_cut_short_anywhere_is_finished_by_repeating_it(
    quorank: Quorank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write and every deletion is made to fail once: then nothing has changed, or the next try does the rest."""
    monkeypatch.setattr(report, "report_page", lambda run: f"a page about {run.summary}")  # drawing takes long
    made(page=True)
    flags = ["unlearn", "run", "--client", 3, "--json", "-q"]

    def fresh() -> None:
        shutil.rmtree("run", ignore_errors=True)
        shutil.copytree("made", "run")

    fresh()
    before = everything(Path("run"))
    whole = json.loads(quorank(*flags).out)
    expected = everything(Path("run"))
    assert set(expected) - set(before) == {"unlearned.json", *storage.REBUILT}
    failed = 0
    for steps in range(30):
        fresh()
        left = [steps]

        def count(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise OSError(28, "No space left on device", "somewhere")

        with monkeypatch.context() as patched:
            for name, plain in (("write_whole", write_whole), ("erase", erase)):

                def first_count(*arguments: Any, plain: Any = plain, count: Any = count) -> Any:
                    count()
                    return plain(*arguments)

                patched.setattr(commit, name, first_count)
            outcome = quorank(*flags)
        if outcome.code == 0:
            break
        failed += 1
        assert outcome.code == 1 and "No space left" in outcome.err
        if steps == 0:
            assert everything(Path("run")) == before
        else:
            assert "cut short; finish it first with" in quorank("unlearn", "run", "--client", 1).refused()
        again = json.loads(quorank(*flags).out)
        assert {k: v for k, v in again.items() if k not in ("erased", "files_checked")} == {
            k: v for k, v in whole.items() if k not in ("erased", "files_checked")
        }
        found = everything(Path("run"))
        for name in expected:
            assert name in storage.REBUILT or found[name] == expected[name], (steps, name)
        assert set(found) == set(expected)
        assert "unlearned this client already" in quorank("unlearn", "run", "--client", 3).refused()
    assert failed >= 9


def test_summary_report_and_ledger_are_of_the_rebuilt_ranker(quorank: Quorank) -> None:
    folder = made()
    as_run = json.loads((folder / "summary.json").read_text())
    first = json.loads(quorank("unlearn", folder, "--client", 5, "--json", "-q").out)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["offline"]["ndcg@10"] == first["after"] != as_run["offline"]["ndcg@10"]
    assert {k: v for k, v in summary.items() if k not in ("offline", "online", "unlearned")} == {
        k: v for k, v in as_run.items() if k not in ("offline", "online")
    }
    assert summary["online"] == {"ndcg@10": None, "discounted": None}
    note = summary["unlearned"]
    assert note["clients"] == [5] and note["local_updates_share"] == first["local_updates_share"]
    assert note["after"] == summary["offline"] and first["before"] == as_run["offline"]["ndcg@10"]
    page = (folder / "report.html").read_text()
    assert "Client 5 left after the run." in page and f"{first['after']:.4f}" in page
    assert quorank("evaluate", folder / "ranker.json", "--data", "synthetic:mq2007").code == 0
    second = json.loads(quorank("unlearn", folder, "--client", 0, "--json", "-q").out)
    note = json.loads((folder / "summary.json").read_text())["unlearned"]
    assert note["clients"] == [0, 5] and second["before"] == first["after"]
    book = json.loads((folder / "ledger.json").read_text())
    assert [entry["without"] for entry in book["unlearning"]] == [[5], [0, 5]]
    assert book["unlearning"][0]["releases"][0]["releases"] == 4 * 5 and book["altogether"] is None
    assert "Clients 0, 5 left" in (folder / "report.html").read_text()
    assert quorank("privacy", "ledger", folder).code == 0
    assert quorank("report", folder).code == 0


@pytest.mark.parametrize(
    ("extra", "flags"),
    [
        ('[privacy]\nkind = "secure-sum"\nclip = 1.0\nmasks = false', ()),
        ('[learner]\nkind = "evolution"', ("--local-steps", 4)),
        ('aggregation = { kind = "median" }\n[attack]\nkind = "sign-flip"\nclients = 2', ()),
        ('server = "adam"', ("--method", "published")),
        ("client_momentum = 0.9", ()),
    ],
    ids=["secure sum", "evolution", "median", "adam", "momentum"],
)
def test_runs_of_all_kinds(quorank: Quorank, extra: str, flags: tuple[object, ...]) -> None:
    folder = made(extra=extra, rounds=11, interactions=4)
    outcome = quorank("unlearn", folder, "--client", 0, *flags, *FLAGS)
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    assert 0 < result["after"] <= 1 and 0 < result["retrained"] <= 1
    assert "0.npz" not in kept(folder)


def test_what_a_private_run_states_covers_its_rebuilding(quorank: Quorank) -> None:
    """T rounds with multiplier z and T' with z' are one Gaussian release with (T/z² + T'/z'²)^(−1/2)."""
    folder = made(extra='[privacy]\nkind = "gaussian"\nepsilon = 8.0\nclip = 0.3', clients=60)
    alone = json.loads((folder / "summary.json").read_text())["privacy"]
    result = json.loads(quorank("unlearn", folder, "--client", 7, "--json", "-q").out)
    own = result["privacy"]
    assert own["epsilon"] == pytest.approx(8.0, rel=1e-3) and (own["unit"], own["rounds"]) == ("client", 4)
    summary, book = (json.loads((folder / name).read_text()) for name in ("summary.json", "ledger.json"))
    stated = summary["privacy"]
    z = (40 / alone["noise_multiplier"] ** 2 + 4 / own["noise_multiplier"] ** 2) ** -0.5
    assert stated["epsilon"] == pytest.approx(gaussian_mechanism.get_epsilon_gaussian(z, 1e-5))
    assert 8.0 < stated["epsilon"] < 16.0 and stated["delta"] == 1e-5 and stated["run_alone"]["epsilon"] < 8.1
    assert "whole run of 40 rounds, and the rebuilding of 4 rounds" in stated["horizon"]
    assert book["altogether"] == stated and book["privacy"] == alone
    (entry,) = book["unlearning"]
    (release,) = entry["releases"]
    assert (release["releases"], entry["setting"]["clients"]) == (4 * 59, 59)
    assert release["noise_multiplier"] == pytest.approx(own["noise_multiplier"])
    assert f"ε = {stated['epsilon']:.4g}" in (folder / "report.html").read_text()
    assert quorank("privacy", "ledger", folder).code == 0


def test_poison_is_forgotten(quorank: Quorank) -> None:
    """Thesis §6.1.4: a leaver that sent −2·θ; the rebuilt ranker makes up most of what it had spoilt."""
    folder = made(extra='[attack]\nkind = "sign-flip"\nclients = 1', rounds=400)
    result = json.loads(quorank("unlearn", folder, "--client", 0, *FLAGS).out)
    assert result["before"] < result["retrained"] - 0.02
    assert result["after"] > result["retrained"] - 0.5 * (result["retrained"] - result["before"])
    assert result["distance"]["unlearned_to_retrained"] < result["distance"]["before_to_retrained"]


@pytest.fixture(scope="module")
def for_refusals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refusals")
    run_quickly(experiment(rounds=12), folder / "made")
    run_quickly(experiment(rounds=3, keep_every=0), folder / "none")
    run_quickly(experiment('personal = "offset"', rounds=3), folder / "own")
    run_quickly(experiment('aggregation = { kind = "krum", byzantine = 1 }', rounds=3, clients=5), folder / "krum")
    run_quickly(experiment('[learner]\nkind = "evolution"', rounds=3, interactions=4), folder / "es")
    stopped_run(experiment(), folder / "cut", 15)
    drawn = 'participation = { kind = "poisson", rate = 0.5 }\nkeep_every = 1\n[privacy]\nkind = "gaussian"'
    drawn += '\nnoise_multiplier = 1.0\naccountant = "rdp"'
    run_quickly(experiment(drawn, rounds=3, clients=60), folder / "drawn")
    sums = '[privacy]\nkind = "secure-sum"\nclip = 1.0\nmasks = false'
    run_quickly(experiment(sums, rounds=3), folder / "sums")
    run_quickly(experiment(rounds=3), folder / "torn")
    (folder / "torn" / "clients" / "2.npz").write_bytes(b"PK nothing")
    return folder


@pytest.mark.parametrize(
    ("run", "flags", "words"),
    [
        ("made", ("--client", 6), "no such client; made has clients 0 to 5"),
        ("made", ("--client", 2, "--client", 2), "named twice"),
        ("made", [x for c in range(6) for x in ("--client", c)], "all clients would leave"),
        ("none", ("--client", 1, "--method", "published"), "run it again with --set federation.keep_every=10"),
        ("made", ("--client", 1, "--method", "published", "--interval", 15), "every 10 rounds; give a multiple of 10"),
        ("made", ("--client", 1, "--interval", 0), "--interval 0: expected at least 1 round"),
        ("made", ("--client", 1, "--local-steps", 6), "expected 1 to 5"),
        ("made", ("--client", 1, "--compare", "--seeds", 0), "at least 1 retraining"),
        ("es", ("--client", 1, "--local-steps", 3), "even"),
        ("made", ("--client", 1, "--method", "retrain", "--interval", 5), "--interval 5: retraining repeats every round"),
        ("cut", ("--client", 1), "unfinished"),
        ("own", ("--client", 1), "rankers of their own"),
        ("krum", ("--client", 1, "--client", 2), "krum"),
        ("torn", ("--client", 1, "--method", "published"), "2.npz: damaged file of kept updates"),
        ("drawn", ("--client", 1), "no ε could be stated for both; run it again without the client"),
    ],
)  # fmt: skip
def test_every_refusal_is_a_sentence_and_changes_nothing(
    quorank: Quorank, monkeypatch: pytest.MonkeyPatch, for_refusals: Path, run: str, flags: Any, words: str
) -> None:
    monkeypatch.chdir(for_refusals)
    before = {p: p.read_bytes() for p in Path(run).rglob("*") if p.is_file()}
    assert words in quorank("unlearn", run, *flags, "-q").refused()
    assert {p: p.read_bytes() for p in Path(run).rglob("*") if p.is_file()} == before

"""`quorank unlearn`: a ranker without the leavers, data that are gone, and every refusal."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Quorank
from unlearning_runs import experiment, kept, made

from quorank.data.source import DataSource
from quorank.errors import Interrupted
from quorank.evaluation.ranker import Evaluator
from quorank.experiments import runner, storage, unlearning
from quorank.experiments.runner import run_experiment
from quorank.federation import Simulator
from quorank.federation.unlearning import KeptRound, fresh_seed, rebuild, scaled_steps
from quorank.rankers import Linear

FLAGS = ("--compare", "--seeds", "1", "--json", "-q")


def test_overwriting_a_run_takes_its_clients_files_along(quorank: Quorank) -> None:
    folder = made()
    assert quorank("unlearn", folder, "--client", 0, "-q").code == 0
    run_experiment(experiment(clients=3, rounds=5), folder, overwrite=True)
    assert sorted(kept(folder)) == ["0.npz", "1.npz", "2.npz"]
    assert not (folder / "unlearned").exists() and not (folder / "unlearned.json").exists()


def test_unlearning_gives_the_figures_that_are_asked_for(quorank: Quorank) -> None:
    folder = made()
    summary = json.loads((folder / "summary.json").read_text())
    outcome = quorank("unlearn", folder, "--client", 5, *FLAGS)
    assert outcome.code == 0 and outcome.err == "", outcome.err
    result = json.loads(outcome.out)
    assert result["before"] == summary["offline"]["ndcg@10"]
    assert result["local_updates_share"] == pytest.approx(3 * 4 / (5 * 40)) and result["local_updates"] == 60
    assert result["retrained_local_updates"] == 5 * 5 * 40
    assert (result["clients"], result["interval"], result["local_steps"], result["rounds"]) == ([5], 10, 3, 4)
    distance = result["distance"]
    assert 0 < distance["before_to_retrained"] < 1 and 0 < distance["unlearned_to_retrained"] < 1
    assert 0 < distance["retrained_seeds"] < 1
    collection = runner.collection_of(DataSource("synthetic:mq2007", queries=60))
    theta = np.array(json.loads((folder / "ranker.json").read_text())["parameters"])
    assert result["after"] == Evaluator(collection.test, Linear()).means([theta])[0][0]
    assert (folder / "unlearned" / "ranker.json").read_bytes() == (folder / "ranker.json").read_bytes()


@pytest.mark.parametrize("published", [True, False])
def test_the_command_is_the_rebuilding_from_the_kept_files(quorank: Quorank, published: bool) -> None:
    """The command against `rebuild` fed by hand from the float32 files; the simulator's loop is tested beside it."""
    folder, chosen = made(), experiment()
    lengths = []
    for client in (0, 2, 3, 5):
        with np.load(folder / "clients" / f"{client}.npz") as saved:
            lengths.append(np.sqrt((saved["updates"].astype(np.float64) ** 2).sum(axis=1)))
    flags = ["--client", 1, "--client", 4, "--interval", 20, "--local-steps", 2, "-q"]
    assert quorank("unlearn", folder, *flags, *(["--as-published"] if published else [])).code == 0
    played = runner.Runner(chosen, 1)
    simulation = replace(played.scene.simulation, seed=fresh_seed(1, "unlearning", (1, 4)))
    simulator = Simulator(replace(chosen.federation, interactions=2), simulation, rounds=2, absent=(1, 4))
    members = np.array([0, 2, 3, 5])
    entries = [KeptRound(t, members, np.array([own[at] for own in lengths])) for t, at in ((1, 0), (21, 2))]
    how = {} if published else {"stretch": 20.0, "average": 3.0}
    expected = rebuild(simulator, np.zeros(46), entries, **how).theta
    theta = json.loads((folder / "ranker.json").read_text())["parameters"]
    np.testing.assert_allclose(theta, expected, rtol=1e-12)


def test_two_leavers_at_once_or_threads_are_the_same_request(quorank: Quorank) -> None:
    made()
    results = []
    for name, flags in (("a", ("--threads", 1)), ("b", ("--threads", 3)), ("c", ())):
        shutil.copytree("made", name)
        clients = (1, 4) if name != "c" else (4, 1)
        who = [x for c in clients for x in ("--client", c)]
        assert quorank("unlearn", name, *who, *flags, "-q").code == 0
        results.append((Path(name) / "ranker.json").read_bytes())
        assert sorted(kept(Path(name))) == ["0.npz", "2.npz", "3.npz", "5.npz"]
    assert len(set(results)) == 1


def test_one_after_the_other_leaves_without_both(quorank: Quorank) -> None:
    shutil.copytree(made(), "together")
    assert quorank("unlearn", "made", "--client", 1, "-q").code == 0
    assert quorank("unlearn", "made", "--client", 4, *FLAGS).code == 0
    assert quorank("unlearn", "together", "--client", 4, "--client", 1, *FLAGS).code == 0
    assert Path("made/ranker.json").read_bytes() == Path("together/ranker.json").read_bytes()
    assert json.loads(Path("made/unlearned.json").read_text())["clients"] == [1, 4]
    assert "unlearned this client already" in quorank("unlearn", "made", "--client", 1).refused()


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


def test_a_copy_of_a_leaver_s_data_is_found_and_the_request_can_be_repeated(quorank: Quorank) -> None:
    folder = made()
    shutil.copy(folder / "clients" / "3.npz", folder / "backup.bin")
    assert (
        "backup.bin: this file still holds data" in quorank("unlearn", folder, "--client", 3, "-q").refused()
    )
    assert not (folder / "unlearned.json").exists()
    (folder / "backup.bin").unlink()
    (folder / "clients" / ".3.npz.77.abcd.tmp").write_bytes(b"half")
    (folder / "checkpoint.npz").write_bytes(b"late")
    result = json.loads(quorank("unlearn", folder, "--client", 3, "--json", "-q").out)
    assert result["erased"] == ["clients/.3.npz.77.abcd.tmp", "checkpoint.npz"]
    assert result["before"] == result["after"]  # the first attempt had put the rebuilt ranker in place


@pytest.mark.parametrize("name", ["ranker.json", "unlearning.json"])
def test_a_full_disk_leaves_the_run_as_it_was(
    quorank: Quorank, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = made()
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    files = kept(folder)

    def full(path: Path, content: bytes) -> None:
        if Path(path).name == name:
            raise OSError(28, "No space left on device", str(path))
        path.write_bytes(content)

    with monkeypatch.context() as patched:
        patched.setattr(unlearning, "write_whole", full)
        outcome = quorank("unlearn", folder, "--client", 3, "-q")
    assert outcome.code == 1 and "No space left" in outcome.err
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()} == before
    assert kept(folder) == files


def test_the_rebuilt_ranker_goes_where_it_is_asked_to(quorank: Quorank) -> None:
    folder = made()
    outcome = quorank(
        "unlearn", folder, "--client", 0, "--compare", "--seeds", 1, "--out", "elsewhere/here", "-q"
    )
    assert outcome.code == 0, outcome.err
    written = Path("elsewhere/here/ranker.json").read_bytes()
    assert written == (folder / "ranker.json").read_bytes() and not (folder / "unlearned").exists()
    for word in ("before", "after", "retrained", "6.0%", "distance", "clients/0.npz"):
        assert word in outcome.out
    assert max(len(line) for line in outcome.out.splitlines()) <= 80
    made("other", rounds=2)
    assert "another run here" in quorank("unlearn", folder, "--client", 1, "--out", "other").refused()
    assert (folder / "clients" / "1.npz").exists()


@pytest.mark.parametrize(
    ("extra", "flags"),
    [
        ('[privacy]\nkind = "secure-sum"\nclip = 1.0\nmasks = false', ()),
        ('participation = { kind = "sampled", cohort = 4 }\nkeep_every = 2', ()),
        ('[learner]\nkind = "evolution"', ("--local-steps", 4)),
        ('aggregation = { kind = "median" }\n[attack]\nkind = "sign-flip"\nclients = 2', ()),
        ('[attack]\nkind = "clicks"\nclients = 2\n[ranker]\nkind = "mlp"\nhidden = 3', ()),
        ('[partition]\nkind = "quantity"', ()),
        ('server = { kind = "add", step = 1.0, average = 3.0 }', ("--as-published",)),
        ('server = "adam"', ()),
    ],
    ids=["secure sum", "sampled", "evolution", "median", "mlp", "quantity", "average", "adam"],
)
def test_runs_of_all_kinds(quorank: Quorank, extra: str, flags: tuple[object, ...]) -> None:
    folder = made(extra=extra, rounds=11, interactions=4)
    outcome = quorank("unlearn", folder, "--client", 0, *flags, *FLAGS)
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    assert 0 < result["after"] <= 1 and 0 < result["retrained"] <= 1
    assert "0.npz" not in kept(folder)


def test_clients_who_search_more_also_do_more_of_the_rebuilding(quorank: Quorank) -> None:
    folder = made(extra='[partition]\nkind = "quantity"')
    each = runner.Runner(storage.read_experiment(folder), 1).simulator.interactions
    assert each is not None and len(set(each.tolist())) > 1
    result = json.loads(quorank("unlearn", folder, "--client", 2, "--json", "-q").out)
    assert result["local_updates"] == 4 * int(np.delete(scaled_steps(each, 5, 3), 2).sum())


def test_a_private_run_says_what_its_rebuilding_costs_on_top(quorank: Quorank) -> None:
    folder = made(extra='[privacy]\nkind = "gaussian"\nepsilon = 8.0\nclip = 0.3', clients=60)
    result = json.loads(quorank("unlearn", folder, "--client", 7, "--json", "-q").out)
    assert result["privacy"]["epsilon"] == pytest.approx(8.0, rel=1e-3)
    assert (result["privacy"]["unit"], result["privacy"]["rounds"]) == ("client", 4)
    assert "the run itself" in result["privacy"]["adds_to"]


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
    run_experiment(experiment(rounds=12), folder / "made")
    run_experiment(experiment(rounds=3, keep_every=0), folder / "none")
    run_experiment(experiment('personal = "offset"', rounds=3), folder / "own")
    run_experiment(
        experiment('aggregation = { kind = "krum", byzantine = 1 }', rounds=3, clients=5), folder / "krum"
    )
    run_experiment(experiment('[learner]\nkind = "evolution"', rounds=3, interactions=4), folder / "es")
    rounds = iter(range(1, 100))
    with pytest.raises(Interrupted):
        run_experiment(experiment(), folder / "cut", stop=lambda: next(rounds) >= 15)
    run_experiment(experiment(rounds=3), folder / "torn")
    (folder / "torn" / "clients" / "2.npz").write_bytes(b"PK nothing")
    return folder


@pytest.mark.parametrize(
    ("run", "flags", "words"),
    [
        ("made", ("--client", 6), "no such client; made has clients 0 to 5"),
        ("made", ("--client", -1), "no such client"),
        ("made", ("--client", 2, "--client", 2), "named twice"),
        ("made", [x for c in range(6) for x in ("--client", c)], "all clients would leave"),
        ("none", ("--client", 1), "kept no updates; run it again with --set federation.keep_every=10"),
        ("made", ("--client", 1, "--interval", 15), "every 10 rounds; give a multiple of 10"),
        ("made", ("--client", 1, "--interval", 0), "give a multiple of 10"),
        ("made", ("--client", 1, "--local-steps", 6), "expected 1 to 5"),
        ("made", ("--client", 1, "--local-steps", 0), "expected 1 to 5"),
        ("made", ("--client", 1, "--compare", "--seeds", 0), "at least 1 retraining"),
        ("es", ("--client", 1, "--local-steps", 3), "even"),
        ("cut", ("--client", 1), "unfinished"),
        ("nowhere", ("--client", 1), "no such directory"),
        ("own", ("--client", 1), "rankers of their own"),
        ("krum", ("--client", 1, "--client", 2), "krum"),
        ("torn", ("--client", 1), "2.npz: damaged file of kept updates"),
    ],
)  # fmt: skip
def test_every_refusal_is_a_sentence_and_changes_nothing(
    quorank: Quorank, monkeypatch: pytest.MonkeyPatch, for_refusals: Path, run: str, flags: Any, words: str
) -> None:
    monkeypatch.chdir(for_refusals)
    before = {p: p.read_bytes() for p in Path(run).rglob("*") if p.is_file()}
    assert words in quorank("unlearn", run, *flags, "-q").refused()
    assert {p: p.read_bytes() for p in Path(run).rglob("*") if p.is_file()} == before

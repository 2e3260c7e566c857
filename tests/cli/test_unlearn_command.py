"""`quorank unlearn`: what runs keep, a ranker without the leavers, data that are gone, and every refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Quorank

from quorank.data.source import DataSource
from quorank.errors import Interrupted
from quorank.evaluation.ranker import Evaluator
from quorank.experiments import runner, storage, unlearning
from quorank.experiments.documents import parse_document
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import KeptUpdates
from quorank.experiments.runner import run_experiment
from quorank.federation import Simulator
from quorank.federation.unlearning import KeptRound, rebuild, scaled_steps
from quorank.rankers import Linear

FILE = """\
[data]
source = "synthetic:mq2007"
queries = 60
[federation]
clients = 6
interactions = 5
rounds = 40
"""
FLAGS = ("--compare", "--seeds", "1", "--json", "-q")


def experiment(extra: str = "", **changes: object) -> Experiment:
    text = FILE
    for key, value in changes.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{key} =")]
        text = "\n".join([*lines, f"{key} = {value}", ""])
    return Experiment.read(parse_document(text + extra, "small.toml"))


def made(name: str = "made", extra: str = "", **changes: object) -> Path:
    run_experiment(experiment(extra, **changes), Path(name), threads=1)
    return Path(name)


def kept(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "clients").iterdir()}


def test_a_small_run_keeps_every_tenth_update_of_each_client_as_it_was_sent() -> None:
    folder = made()
    assert sorted(kept(folder)) == [f"{c}.npz" for c in range(6)]
    chosen = experiment()
    assert chosen.keep_every == 10 and "keep_every = 10" in (folder / "run.toml").read_text()
    played, seen = runner.Runner(chosen, 1), {}
    simulator, state = played.simulator, played.simulator.initial()
    for t in range(40):
        gathered = simulator.gather(state, sent=lambda clients, rows, t=t: seen.update({t + 1: rows.copy()}))
        state, _ = chosen.federation.round(state, gathered)
    for client in range(6):
        with np.load(folder / "clients" / f"{client}.npz") as saved:
            assert saved["rounds"].tolist() == [1, 11, 21, 31] and saved["updates"].dtype == np.float32
            expected = np.array([seen[t][client] for t in (1, 11, 21, 31)], dtype=np.float32)
            np.testing.assert_array_equal(saved["updates"], expected)
    ranker = json.loads((folder / "ranker.json").read_text())["parameters"]
    assert ranker == state.theta.tolist()  # keeping changes nothing


@pytest.mark.parametrize(
    ("changes", "every"),
    [({"clients": 101}, 0), ({"clients": 100}, 10), ({"keep_every": 0}, 0), ({"keep_every": 7}, 7),
     ({"clients": 100, "rounds": 20000}, 0), ({"participation": '{ kind = "sampled", cohort = 3 }'}, 0)],
)  # fmt: skip
def test_what_is_kept_by_default(changes: dict[str, Any], every: int) -> None:
    assert experiment(**changes).keep_every == every


def test_large_runs_keep_nothing_on_disk() -> None:
    assert not (made(clients=101, rounds=3) / "clients").exists()


@pytest.mark.parametrize("value", ["-1", "1.5", "true", '"ten"'])
def test_odd_intervals_of_keeping_are_refused_with_their_line(quorank: Quorank, value: str) -> None:
    Path("odd.toml").write_text(FILE + f"keep_every = {value}\n")
    assert "keep_every" in quorank("run", "odd.toml", "--out", "made").refused()


@pytest.mark.parametrize("part", ["", '\nparticipation = { kind = "sampled", cohort = 3 }\nkeep_every = 4'])
def test_resumed_runs_keep_neither_more_nor_less(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    whole = kept(made("whole", part))
    folder, chosen = Path("pieces"), experiment(part)
    for number, stop in enumerate((1, 10, 11, 25)):
        monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", -1.0 if number == 2 else 20.0)
        before = (1, 10, 11, 25)[number - 1] if number else 0
        rounds = iter(range(before + 1, 1000))
        with pytest.raises(Interrupted):
            run_experiment(
                chosen, folder, threads=1, resume=number > 0, stop=lambda r=rounds, s=stop: next(r) >= s
            )
    run_experiment(chosen, folder, threads=2, resume=True)
    assert kept(folder) == whole


def test_updates_kept_after_the_last_checkpoint_are_dropped_and_missing_ones_refused() -> None:
    folder, chosen, rounds = Path("cut"), experiment(), iter(range(1, 100))
    with pytest.raises(Interrupted):
        run_experiment(chosen, folder, stop=lambda: next(rounds) >= 15)
    later = KeptUpdates(10)
    later.restore(folder, 15, 6, 46)
    assert later.rounds == [1, 11]
    later.keep(
        21, np.arange(6), np.ones((6, 46))
    )  # as if the run was killed after writing, before its checkpoint
    later.write(folder)
    copy = shutil.copytree(folder, "copy")
    run_experiment(chosen, folder, resume=True)
    assert kept(folder) == kept(made("whole"))
    (Path(copy) / "clients" / "4.npz").unlink()
    with pytest.raises(
        runner.BadInput, match=r"4\.npz: updates that client 4 kept before the checkpoint are missing"
    ):
        run_experiment(chosen, Path(copy), resume=True)


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


def test_as_published_is_eq_6_2_from_the_kept_files(quorank: Quorank) -> None:
    """The command against `rebuild` fed by hand from the float32 files; the simulator's loop is tested beside it."""
    folder, chosen = made(), experiment()
    lengths = []
    for client in (0, 2, 3, 5):
        with np.load(folder / "clients" / f"{client}.npz") as saved:
            lengths.append(np.sqrt((saved["updates"].astype(np.float64) ** 2).sum(axis=1)))
    flags = (
        "--client",
        1,
        "--client",
        4,
        "--interval",
        20,
        "--local-steps",
        2,
        "--as-published",
        "--json",
        "-q",
    )
    assert quorank("unlearn", folder, *flags).code == 0
    from dataclasses import replace

    from quorank.federation.unlearning import fresh_seed

    played = runner.Runner(chosen, 1)
    simulation = replace(played.scene.simulation, seed=fresh_seed(1, "unlearning", (1, 4)))
    simulator = Simulator(replace(chosen.federation, interactions=2), simulation, rounds=2, absent=(1, 4))
    members = np.array([0, 2, 3, 5])
    entries = [KeptRound(t, members, np.array([own[at] for own in lengths])) for t, at in ((1, 0), (21, 2))]
    expected = rebuild(simulator, np.zeros(46), entries).theta
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

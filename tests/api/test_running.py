"""Runs from Python: the bits of `quorank run`, arrays as data, every round in the history, resumption, refusals."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lists import Contrast
from refusals import refused
from small_runs import SMALL as FILE
from small_runs import experiment, files_of

import quorank as qr
from quorank.errors import Interrupted
from quorank.experiments.progress import Progress
from quorank.federation import Krum
from quorank.privacy import PRIVACIES

SMALL = {"data.queries": 60, "federation.clients": 20, "federation.rounds": 12}
pandas = pytest.importorskip("pandas", reason="pandas is not installed")


def interrupt_at(round_: int) -> object:
    """A watcher that presses Ctrl-C after a round."""

    def watch(progress: Progress) -> None:
        if progress.done == round_:
            os.kill(os.getpid(), signal.SIGINT)

    return watch


def test_a_file_gives_the_bytes_of_the_same_value_and_tables(own_folder: Path) -> None:
    Path("small.toml").write_text(FILE)
    made = qr.run("small.toml", seed=4, threads=1)
    assert made.path == Path("runs/small")
    value = qr.run(replace(experiment(), seed=4), out="value", report=False)
    tables = qr.run({"federation": {"clients": 20}}, set={**SMALL, "federation.clients": np.int64(20)}, seed=4, out="t")
    assert files_of(made.path) == files_of(value.path) == files_of(tables.path)
    assert qr.run("small.toml", report=False).path == Path("runs/small-2")


def test_a_run_tells_what_its_files_hold(own_folder: Path) -> None:
    made = qr.run("fpdgd", set=SMALL, out="run", seed=2)
    opened = qr.open_run("run")
    assert opened.summary == made.summary == json.loads(Path("run/summary.json").read_text())
    assert opened.ledger == json.loads(Path("run/ledger.json").read_text())
    assert opened.config["seed"] == 2
    assert opened.ranker.theta.tolist() == json.loads(Path("run/ranker.json").read_text())["parameters"]
    assert repr(opened).startswith("RunResult('run': 12 rounds, ndcg@10 0.")
    page = opened.report()
    written = page.read_bytes()
    page.unlink()
    assert opened.report() == page and page.read_bytes() == written


def test_arrays_give_the_ranker_of_the_source_that_they_are_of(own_folder: Path) -> None:
    arrays = qr.load("synthetic:mq2007", queries=60)
    by_name = qr.run("fpdgd", set=SMALL, out="named", seed=5, report=False)
    rest = {key: value for key, value in SMALL.items() if not key.startswith("data.")}
    given = qr.run("fpdgd", data=arrays, set=rest, out="given", seed=5, report=False)
    assert np.array_equal(given.ranker.theta, by_name.ranker.theta)
    assert given.history().equals(by_name.history())
    assert given.config["data"]["source"].startswith("arrays:")
    with refused("data.not-in-a-file"):
        qr.run(given.path / "run.toml", out="again")
    assert not Path("again").exists()


def test_the_history_has_every_round_however_seldom_it_is_evaluated(own_folder: Path) -> None:
    each = qr.run("fpdgd", set=SMALL, out="each", report=False).history()
    seldom = qr.run("fpdgd", set={**SMALL, "evaluation.every": 5}, out="seldom", report=False)
    found = seldom.history()
    assert found["round"].tolist() == list(range(1, 13)) and list(found.columns) == list(each.columns)
    evaluated = found["round"].isin([5, 10, 12])
    for name in each.columns:
        shown = found[name] if not name.startswith("offline") else found[name][evaluated]
        assert np.array_equal(shown, each[name][shown.index]), name
    assert found.loc[~evaluated, "offline_ndcg@10"].isna().all()
    assert not Path("each/rounds.parquet").exists()


def test_a_changed_history_of_rounds_is_refused(own_folder: Path) -> None:
    found = qr.run("fpdgd", set={**SMALL, "evaluation.every": 7}, out="run", report=False)
    other = qr.run("fpdgd", set={**SMALL, "evaluation.every": 7}, out="other", seed=9, report=False)
    (found.path / "rounds.parquet").write_bytes((other.path / "rounds.parquet").read_bytes())
    with refused("file.damaged"):
        found.history()
    (found.path / "rounds.parquet").unlink()
    with refused("file.missing"):
        found.history()


def test_ctrl_c_and_resume_give_the_bits_of_an_unbroken_run(own_folder: Path) -> None:
    data = qr.load("synthetic:mq2007", queries=60)
    how = {"federation.rounds": 12, "federation.clients": 20, "evaluation.every": 5, "learner": Contrast()}
    whole = qr.run("fpdgd", data=data, set=how, out="whole", report=False)
    with pytest.raises(Interrupted) as stopped:
        qr.run("fpdgd", data=data, set=how, out="broken", watch=interrupt_at(6), report=False)  # type: ignore[arg-type]
    assert stopped.value.round == 6
    with refused("data.not-in-a-file"):
        qr.resume("broken")
    with refused("data.other-arrays"):
        qr.resume("broken", data=data.test)
    again = qr.resume("broken", data=data)
    assert files_of(again.path) == files_of(whole.path)
    assert again.history().equals(whole.history())
    with refused("run.finished", "broken"):
        qr.resume("broken", data=data)


def test_parts_are_values_of_set(own_folder: Path) -> None:
    private = PRIVACIES.read({"kind": "gaussian", "epsilon": 4.0}, "privacy")
    found = qr.run("fpdgd", set={**SMALL, "privacy": private}, out="run", report=False)
    assert found.config["privacy"]["kind"] == "gaussian"
    assert found.summary["privacy"]["epsilon"] <= 4.0
    robust = qr.run("fpdgd", set={**SMALL, "federation.aggregation": Krum(byzantine=3)}, out="krum", report=False)
    assert robust.config["federation"]["aggregation"]["byzantine"] == 3


@pytest.mark.parametrize(
    ("arguments", "code", "where"),
    [
        ({"experiment": "fpgdd"}, "file.missing", "fpgdd"),
        ({"set": {"federation.rounds": 0}}, "value.out-of-range", "set['federation.rounds']: federation.rounds"),
        ({"set": {"federation.round": 9}}, "experiment.unknown-key", "set['federation.round']: federation.round"),
        ({"seed": -1}, "value.out-of-range", "seed=-1: seed"),
        ({"data": "nowhere"}, "source.unknown", None),
        ({"log": ["papers:x"]}, "option.unknown-value", "--log papers:x"),
        ({"experiment": {"grid": {"seed": [1, 2]}}}, "experiment.is-grid", "experiment"),
    ],
)
def test_refusals_say_where_and_leave_nothing(own_folder: Path, arguments: dict, code: str, where: str | None) -> None:
    chosen = {"experiment": "fpdgd", **arguments}
    with refused(code, where):
        qr.run(chosen.pop("experiment"), out="run", **chosen)
    assert not Path("run").exists()

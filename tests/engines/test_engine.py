"""Engines in the runner: a run whose rounds are played elsewhere leaves the files of a run in process."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from command_line import in_process
from memory_transport import MemoryTransport
from quick_runs import run_quickly
from small_runs import SMALL, all_files_of, experiment

from quorank.engines.driver import Driver
from quorank.engines.engine import SharedNodes, Stopped
from quorank.errors import BadInput, Interrupted
from quorank.experiments.experiment import Experiment
from quorank.experiments.network import check_network, clients_of
from quorank.experiments.progress import load_checkpoint
from quorank.experiments.runner import Runner, run_experiment
from quorank.protocol.transport import FAILED, Failure
from quorank.reports.report import report_page

NAMES = ("node-0", "node-1", "node-2")
KINDS = {
    "plain": (),
    "gaussian": ('privacy.kind="gaussian"', "privacy.epsilon=50", "privacy.clip=0.2"),
    "signs": ('privacy.kind="signs"',),
    "evolution": ('learner.kind="evolution"', 'privacy.kind="randomised-response"'),
    "median": ('federation.aggregation="median"',),
    "quantity": ('partition.kind="quantity"',),
    "momentum": ("federation.client_momentum=0.9", 'privacy.kind="gaussian"', "privacy.epsilon=50", "privacy.clip=0.2"),
}


experiment_of = partial(experiment, "federation.keep_every=5")


def memory(*, answer=None, tend=lambda: None, **faults):
    """An engine whose nodes are in this process, behind a network that is as bad as wished."""

    @contextmanager
    def start(run):
        clients = run.clients()

        def respond(_: str, content: bytes) -> bytes | Failure:
            try:
                return clients.respond(content)
            except BadInput:  # as the worker of a network does it
                return Failure(FAILED)

        transport = MemoryTransport(answer or respond, NAMES, **faults)
        driver = Driver(transport, SharedNodes(NAMES), poll=0.0, patience=0.05, stop=run.stop, tend=tend)
        yield driver.round

    return start


def saved_round(experiment: Experiment, folder: Path) -> int:
    saved = load_checkpoint(folder, experiment, Runner(experiment, threads=1).simulator.initial())
    assert saved is not None
    return saved[0].round


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_is_that_of_a_run_in_process(kind, tmp_path) -> None:
    experiment = experiment_of(*KINDS[kind])
    run_quickly(experiment, tmp_path / "a", threads=1)
    engine = memory(loss=0.1, duplicates=0.2, delay=3)
    run_experiment(experiment, tmp_path / "b", threads=1, engine=engine, report=report_page)
    assert all_files_of(tmp_path / "b") == all_files_of(tmp_path / "a")
    kept = len(list((tmp_path / "b" / "clients").glob("*.npz")))
    assert kept == (20 if experiment.keep_every else 0)
    assert (tmp_path / "b" / "summary.json").exists() and (tmp_path / "b" / "report.html").exists()


@pytest.mark.parametrize(("kind", "elsewhere"), [("plain", False), ("momentum", False), ("momentum", True)])
def test_stopped_in_the_middle_of_a_round_it_goes_on_to_the_same_files(kind, elsewhere, tmp_path) -> None:
    experiment = experiment_of(*KINDS[kind])
    run_quickly(experiment, tmp_path / "a", threads=1)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1

    with pytest.raises(Interrupted) as stopped:
        run_quickly(experiment, tmp_path / "b", threads=1, engine=memory(tend=look, delay=3), stop=lambda: looks >= 20)
    assert 0 < stopped.value.round < 12
    assert not (tmp_path / "b" / "summary.json").exists()
    assert saved_round(experiment, tmp_path / "b") == stopped.value.round
    engine = None if elsewhere else memory()  # with what clients carry on another engine goes on too
    run_quickly(experiment, tmp_path / "b", threads=1, engine=engine, resume=True)
    assert all_files_of(tmp_path / "b") == all_files_of(tmp_path / "a")


def test_a_network_that_fails_keeps_the_rounds_that_are_done(tmp_path) -> None:
    experiment = experiment_of()
    run_quickly(experiment, tmp_path / "a", threads=1)
    left = 3 * 4
    clients = clients_of(experiment, tmp_path)

    def answer(node, content):
        nonlocal left
        left -= 1
        return clients.respond(content) if left >= 0 else Failure(FAILED)

    with pytest.raises(Stopped) as stopped:
        run_quickly(experiment, tmp_path / "b", threads=1, engine=memory(answer=answer))
    assert stopped.value.round == saved_round(experiment, tmp_path / "b") == 4
    assert "could not answer" in stopped.value.reason
    run_quickly(experiment, tmp_path / "b", threads=1, engine=memory(), resume=True)
    assert all_files_of(tmp_path / "b")["ranker.json"] == all_files_of(tmp_path / "a")["ranker.json"]


REFUSED = {
    "attack": (('attack.kind="sign-flip"', "attack.clients=2"), "attackers collude"),
    "personal": (('federation.personal="offset"',), "personal parameters"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_go_over_a_network_is_refused_before_anything_starts(what) -> None:
    assignments, words = REFUSED[what]
    with pytest.raises(BadInput, match=words):
        check_network(experiment_of(*assignments))


def test_the_command_line_refuses_with_a_sentence_and_leaves_nothing(monkeypatch, capfd, tmp_path) -> None:
    file, out = tmp_path / "file.toml", tmp_path / "run"

    def refused(text: str, *words: str) -> str:
        file.write_text(text)
        sentence = in_process(monkeypatch, capfd, "run", file, "--out", out, *words).refused()
        assert not out.exists()
        return sentence

    assert "expected process or flower or https, got 'flwr'" in refused(SMALL, "--engine", "flwr")
    hostile = SMALL + '[attack]\nkind = "sign-flip"\nclients = 2\n'
    assert "attackers collude" in refused(hostile, "--engine", "flower")
    grid = SMALL + "[grid]\nseed = [1, 2]\n"
    assert "--engine is for one run" in refused(grid, "--engine", "flower")

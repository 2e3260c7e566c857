"""Figures that devices report privately: what they are, how they travel, what a coordinator shows of them."""

from __future__ import annotations

import io
import json
import math
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chance import assert_follows, assert_mean
from devices import answered, device_of, search, simulator_of, task_of, terms_of, user_of
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from quorank import frames
from quorank.cli.coordinator import app as coordinator_app
from quorank.cli.flower_status import print_status, status_of
from quorank.cli.join import show_log, show_status
from quorank.device.device import Device
from quorank.device.private_store import PrivateStore
from quorank.device.simulated_user import SimulatedUser
from quorank.errors import BadInput
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.runner import Runner
from quorank.federation import Federation, notices, wire
from quorank.federation.bundle import Bundle
from quorank.federation.private_figures import DECAY, LEAST_DEVICES, device_figure, list_figure, report_of, reported
from quorank.federation.rounds import Report
from quorank.federation.terms import Terms
from quorank.federation.transport import Memory
from quorank.flower import app as flower_app
from quorank.network import service_run
from quorank.network.service_run import run
from quorank.privacy import ClippedGaussian, SecureSum
from quorank.privacy.mechanisms.figure_response import FigureResponse
from quorank.service.flower_figures import Figures, exposition
from quorank.service.home import Home, Settings
from quorank.service.members import invite, members
from quorank.service.observe import EventLog
from quorank.service.service import NO_NDCG

CLIENTS, ROUNDS = 5, 3


def clicks(*ranks: int, shown: int = 10) -> np.ndarray:
    found = np.zeros(shown, dtype=np.bool_)
    found[[rank - 1 for rank in ranks]] = True
    return found


# the figure


def test_the_figure_of_a_list_by_hand() -> None:
    assert list_figure(clicks(), 10) == 0.0
    assert list_figure(clicks(1), 10) == list_figure(clicks(1, 2, 3), 10) == 1.0
    assert list_figure(clicks(3), 10) == pytest.approx((1 / math.log2(4)) / (1 / math.log2(2)))
    both = (1 / math.log2(3) + 1 / math.log2(6)) / (1 / math.log2(2) + 1 / math.log2(3))
    assert list_figure(clicks(2, 5), 10) == pytest.approx(both)
    assert list_figure(clicks(8), 5) == 0.0, "what stands below k is not looked at"
    assert device_figure([clicks(1), clicks(), clicks(3), clicks()], 10) == pytest.approx(1.5 / 4)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=6), st.integers(1, 12))
def test_the_figure_lies_between_0_and_1_and_a_list_more_moves_it_by_its_share(lists, k) -> None:
    found = [np.array(one, dtype=np.bool_) for one in lists]
    figure = device_figure(found, k)
    assert 0.0 <= figure <= 1.0
    assert device_figure([*found, clicks()], k) == pytest.approx(figure * len(found) / (len(found) + 1))


# on a device


def test_a_device_reports_by_the_law_and_only_where_that_was_agreed(tiny_collection) -> None:
    simulator = simulator_of(tiny_collection)
    silent = terms_of(simulator, 0)
    assert report_of(silent, [clicks(1)], lambda n: pytest.fail("drawn"), 0) == ((0.0, 0.0, 0.0), {})
    terms = terms_of(simulator, 0, report_epsilon=2.0)
    random, sent, asked = np.random.default_rng(5), [], []
    figure = terms.figure

    def entropy(count: int) -> bytes:
        asked.append(count)
        return random.bytes(count)

    lists = [clicks(3), clicks(1), clicks()]  # 0.5, 1 and 0: their mean is one of the three values
    for _ in range(2000):
        statistics, note = report_of(terms, lists, entropy, 4)
        assert statistics[1:] == (0.0, 0.0) and note["report"]["epsilon_per_report"] == 2.0
        assert note["report"]["value"] == figure.unbiased(statistics[0])
        sent.append(int(statistics[0]))
    assert set(asked) == {32} and len(asked) == 2000
    share = 1.0 / (math.exp(2.0) + 2.0)
    assert_follows(sent, {0: share, 1: math.exp(2.0) * share, 2: share})
    assert_mean([figure.unbiased(steps) for steps in sent], 0.5)


def test_a_device_s_reply_holds_its_report_and_its_log_says_so(tiny_collection, tmp_path, capsys) -> None:
    simulator = simulator_of(tiny_collection)
    user, task = user_of(simulator), task_of(simulator)
    device = device_of(simulator, tmp_path / "a", report_epsilon=1.0)
    first = answered(device, user, task)
    assert device.answer(task) == first, "the same bytes again, never a second report"
    reply = wire.decode_reply(first)
    plain = wire.decode_reply(answered(device_of(simulator, tmp_path / "b"), user_of(simulator), task))
    assert np.array_equal(reply.release, plain.release) and plain.statistics == (0.0, 0.0, 0.0)
    assert reply.statistics in {(0.0, 0.0, 0.0), (1.0, 0.0, 0.0)}
    (release,) = device.store.releases()
    report = release.privacy["report"]
    assert report["value"] == FigureResponse(1.0).unbiased(reply.statistics[0])
    assert (report["epsilon"], report["epsilon_per_report"], report["delta"]) == (4.0, 1.0, 0.0)
    with device.store.transaction():
        device.store.set_fact("terms", json.dumps(device.terms.table()).encode())
    device.store.close()
    show_log(tmp_path / "a", json=False)
    told = " ".join(capsys.readouterr().out.split())
    assert f"{report['value']:.4g}" in told and "ε = 1 each (δ = 0, unit: client)" in told
    assert "4 reports, one a round, by adding up: ε = 4" in told
    show_log(tmp_path / "a", json=True)
    assert json.loads(capsys.readouterr().out)["releases"][0]["privacy"]["report"] == report
    show_status(tmp_path / "a", json=False)
    assert "on top of the ε of the updates" in " ".join(capsys.readouterr().out.split())


def test_a_report_is_of_the_lists_that_the_update_is_made_of(tiny_collection, tmp_path, monkeypatch) -> None:
    simulator = simulator_of(tiny_collection)
    device, user = device_of(simulator, tmp_path, report_epsilon=1.0), user_of(simulator)
    device.answer(task_of(simulator))
    search(device, user, 5)
    waiting = [interaction.clicks for _, interaction in device.store.interactions(0, 3)]
    seen = []
    monkeypatch.setattr(
        FigureResponse, "respond", lambda self, x, seed, round_, client: seen.append((x, round_, client)) or 1
    )
    device.answer(task_of(simulator))
    assert seen == [(device_figure(waiting, simulator.simulation.k), 0, 0)]


# terms


def test_terms_with_reports_and_back(tiny_collection) -> None:
    simulator = simulator_of(tiny_collection)
    terms = terms_of(simulator, 0, report_epsilon=0.5)
    assert Terms.read(json.loads(json.dumps(terms.table()))) == terms and terms.table()["version"] == 2
    assert terms.figure == FigureResponse(0.5)
    assert terms.reports["epsilon"] == 0.5 * terms.rounds and terms.reports["composed"]["delta"] == 1e-5
    silent = terms_of(simulator, 0)
    assert silent.table()["version"] == 1 and "report_epsilon" not in silent.table()
    assert Terms.read(silent.table()).figure is None and silent.reports is None
    budget = ClippedGaussian(noise_multiplier=1.0, delta=1e-7)
    assert terms_of(simulator, 0, report_epsilon=1.0, privacy=budget).reports["composed"]["delta"] == 1e-7
    for value in ("1", None, True, math.nan, -1.0, 1000.0):
        with pytest.raises(BadInput, match="terms"):
            Terms.read(terms.table() | {"report_epsilon": value})
    missing = terms.table()
    del missing["report_epsilon"]
    with pytest.raises(BadInput, match="terms: something is missing"):
        Terms.read(missing)
    with pytest.raises(BadInput, match="terms: of version 3"):
        Terms.read(terms.table() | {"version": 3})


def test_secure_sums_carry_no_reports(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection)
    for part in (SecureSum(), ClippedGaussian(noise_multiplier=1.0, sum="secure")):
        with pytest.raises(BadInput, match="a secure sum carries updates and nothing else"):
            terms_of(simulator, 0, report_epsilon=1.0, privacy=part)
    with pytest.raises(BadInput, match="a secure sum carries"):
        secure = experiment('[privacy]\nkind = "secure-sum"\n')
        Home.create(tmp_path / "home", secure, settings(report_epsilon=1.0))
    with pytest.raises(BadInput, match="epsilon of a report"):
        Home.create(tmp_path / "home", experiment(), settings(report_epsilon=-1.0))
    assert not (tmp_path / "home").exists()


# what a coordinator makes of it


def round_of(number: int, participants: int, figure: float) -> Report:
    return Report(number, 4 * participants, figure, 0.0, 0.0, 1.0, participants, math.nan, 0.0)


def test_the_figures_of_rounds_against_brute_force() -> None:
    """Each device's report is drawn many times; mean, error and smoothed error are those of the draws."""
    figure, random = FigureResponse(2.0), np.random.default_rng(3)
    truths = [np.full(6, 0.5), np.full(2, 0.1), np.full(9, 0.25), np.full(4, 0.75)]  # 0.25: the worst figure
    p, q = math.exp(2.0) / (math.exp(2.0) + 2.0), 1.0 / (math.exp(2.0) + 2.0)
    found = []
    for _ in range(4000):
        reports = []
        for number, figures in enumerate(truths, start=1):
            true = np.floor(figures * 2 + random.random(len(figures))).astype(int)
            others = (true + random.integers(1, 3, len(true))) % 3
            sent = np.where(random.random(len(true)) < p, true, others)
            reports.append(round_of(number, len(sent), figure.unbiased(int(sent.sum()), len(sent))))
        found.append(reported(reports, figure))
    first = found[0]
    assert (first["devices"], first["round"], first["smoothed_rounds"]) == (4, 4, 3)
    weights = [DECAY**3 * 6, DECAY * 9, 1.0 * 4]
    expected = np.dot(weights, [0.5, 0.25, 0.75]) / sum(weights)
    assert_mean([[one["value"], one["smoothed"]] for one in found], [0.75, expected])
    assert first["error"] == pytest.approx(math.sqrt(figure.variance / 4))
    spread = np.std([one["value"] for one in found])
    assert spread == pytest.approx(first["error"], rel=0.05), "0.75 is a worst figure too"
    by_hand = math.sqrt(sum(w**2 * figure.variance / n for w, n in zip(weights, (6, 9, 4), strict=True)))
    assert first["smoothed_error"] == pytest.approx(by_hand / sum(weights))
    assert np.std([one["smoothed"] for one in found]) <= first["smoothed_error"] * 1.03
    assert q < p


def test_a_figure_of_too_few_devices_is_not_shown() -> None:
    figure = FigureResponse(1.0)
    few = [round_of(1, LEAST_DEVICES - 1, 0.4)]
    assert reported([], figure) is None and reported(few, figure) is None
    one = reported([*few, round_of(2, LEAST_DEVICES, 0.6), round_of(3, 1, 0.9), round_of(4, 0, 0.0)], figure)
    assert one is not None and (one["round"], one["value"], one["smoothed"]) == (2, 0.6, pytest.approx(0.6))
    many = [round_of(number, 10, 0.5) for number in range(1, 5000)]
    assert reported(many, figure)["smoothed"] == pytest.approx(0.5)
    tail = math.sqrt(figure.variance / 10 * (1 - DECAY) / (1 + DECAY))
    assert reported(many, figure)["smoothed_error"] == pytest.approx(tail)


def test_the_metrics_hold_the_figure_where_there_is_one() -> None:
    assert "reported" not in exposition(Figures(), 0.0)
    table = reported([round_of(7, 16, 0.25)], FigureResponse(1.0))
    text = exposition(Figures(reported=table), 0.0)
    assert "\nquorank_reported_ndcg 0.25\n" in text and "\nquorank_reported_ndcg_devices 16\n" in text
    assert f"\nquorank_reported_ndcg_error {math.sqrt(FigureResponse(1.0).variance) / 4!r}\n" in text


# all together

FILE = f"""\
[data]
source = "synthetic:mq2007"
[federation]
clients = {CLIENTS}
interactions = 2
rounds = {ROUNDS}
keep_every = 0
"""


def experiment(more: str = "") -> Experiment:
    return Experiment.read(parse_experiment_file(FILE + more, "figures.toml"))


def settings(**changes) -> Settings:
    return Settings(**({"run": "spring", "n_features": 46, "address": "search.example.org:9092"} | changes))


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner(experiment(), threads=1)


@pytest.mark.parametrize("members_of_it", [CLIENTS, LEAST_DEVICES - 1])
def test_a_service_with_devices_shows_what_they_reported(runner, tmp_path, capsys, monkeypatch, members_of_it) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    chosen = experiment() if members_of_it == CLIENTS else experiment_of(members_of_it)
    home = Home.create(tmp_path / "home", chosen, settings(report_epsilon=1.0))
    for client in range(members_of_it):
        invite(home, f"device{client}", tmp_path / f"{client}.json")
    bundle = Bundle.read(tmp_path / "0.json")
    assert bundle.terms == home.terms(0) and bundle.terms.report_epsilon == 1.0
    devices = {client: device_at(tmp_path / str(client), home.terms(client)) for client in range(members_of_it)}
    stream, sent = io.StringIO(), dict[tuple[int, int], float]()
    assert run(home, EventLog(stream), None, with_devices(runner, devices, sent)) is True
    assert len(sent) == members_of_it * ROUNDS
    figure = FigureResponse(1.0)
    table = status_of(home)
    print_status(table)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    flat = " ".join(shown.split())
    closed = [json.loads(line) for line in stream.getvalue().splitlines() if "round_closed" in line]
    assert "each report costs ε = 1 (δ = 0, unit: client), so far 3 at most" in flat
    assert table["report_epsilon"] == 1.0 and table["epsilon_spent"] is None
    if members_of_it < LEAST_DEVICES:
        assert table["ndcg"] is None and "shown once 4 devices have reported in a round" in flat
        assert not any("reported_ndcg" in event for event in closed)
        return
    means = [np.mean([figure.unbiased(sent[round_, c]) for c in devices]) for round_ in range(ROUNDS)]
    weights = [DECAY**2, DECAY, 1.0]
    assert table["ndcg"]["value"] == pytest.approx(means[-1])
    assert (table["ndcg"]["devices"], table["ndcg"]["round"]) == (CLIENTS, ROUNDS)
    assert table["ndcg"]["smoothed"] == pytest.approx(np.dot(weights, means) / sum(weights))
    assert table["ndcg"]["error"] == pytest.approx(math.sqrt(figure.variance / CLIENTS))
    assert f"{means[-1]:.2f} ± {table['ndcg']['error']:.2f}" in flat and "by 5 devices in round 3" in flat
    assert [event["reported_ndcg"] for event in closed] == pytest.approx(means, rel=1e-6)
    assert home.last_status()["reported"] == table["ndcg"]


def experiment_of(clients: int) -> Experiment:
    found = experiment()
    return replace(found, federation=replace(found.federation, clients=clients))


def device_at(folder: Path, terms: Terms) -> Device:
    store = PrivateStore(folder)
    with store.transaction():
        store.set_consent(True, 0.0)
    return Device(store, terms)


def with_devices(runner: Runner, devices: dict[int, Device], sent: dict[tuple[int, int], float]):
    """A network of these devices, whose users are the simulator's."""
    users = {client: SimulatedUser(runner.simulator.simulation, client) for client in devices}

    @contextmanager
    def connect(service, stop):
        assert service.coordinator.figure is not None
        clients = {member.label: member.client for member in members(service.home)}

        def answer(node: str, content: bytes) -> bytes:
            if notices.is_notice(content):
                return frames.pack([notices.HEARD])
            client = clients[node]
            found = answered(devices[client], users[client], content)
            reply = wire.decode_reply(found)
            sent[reply.round, client] = reply.statistics[0]
            return frames.pack([found])

        yield Memory(answer, list(clients)), lambda: None, lambda: True

    return connect


def test_the_option_is_fixed_with_the_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flower_app, "check_installed", lambda: None)
    monkeypatch.setattr(service_run, "run", lambda *_, **__: None)
    (tmp_path / "figures.toml").write_text(FILE)

    def start(*more: object) -> None:
        result = CliRunner().invoke(coordinator_app, ["start", "home", *map(str, more)])
        if result.exception is not None:
            raise result.exception

    with pytest.raises(BadInput, match="epsilon of a report must lie between"):
        start("--experiment", "figures.toml", "--report-epsilon", 99)
    assert not (tmp_path / "home").exists()
    start("--experiment", "figures.toml", "--report-epsilon", 0.5)
    start("--deadline", 60)
    home = Home.open(tmp_path / "home")
    assert (home.settings.report_epsilon, home.settings.deadline) == (0.5, 60.0)
    assert home.terms(1).figure == FigureResponse(0.5)
    with pytest.raises(BadInput, match="--report-epsilon: fixed when the folder was made"):
        start("--report-epsilon", 0.25)


def test_what_reports_spend_is_added_to_what_updates_spend(runner, tmp_path) -> None:
    budget = experiment('[privacy]\nkind = "gaussian"\nnoise_multiplier = 0.5\n')
    home = Home.create(tmp_path / "home", budget, settings(report_epsilon=0.5))
    for client in range(CLIENTS):
        invite(home, f"device{client}", tmp_path / f"{client}.json")
    devices = {client: device_at(tmp_path / str(client), home.terms(client)) for client in range(CLIENTS)}
    assert run(home, EventLog(None), None, with_devices(runner, devices, {})) is True
    table = status_of(home)
    updates = home.terms(0).mechanism.statement(ROUNDS)["epsilon"]
    assert table["privacy"]["epsilon"] == pytest.approx(updates)
    assert table["epsilon_spent"] == pytest.approx(updates + 0.5 * ROUNDS)


def test_without_reports_the_status_says_that_there_are_none(tmp_path) -> None:
    home = Home.create(tmp_path / "home", experiment(), settings())
    table = status_of(home)
    assert (table["ndcg"], table["ndcg_note"], table["report_epsilon"]) == (None, NO_NDCG, None)
    assert Federation(CLIENTS, 2) and home.terms(0).figure is None

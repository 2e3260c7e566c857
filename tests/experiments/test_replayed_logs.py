"""Runs on logs of clicks: the same bits in any chunks, with any threads, after a resume; what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_runs import reseal
from refusals import refused
from small_logs import write_log

from quorank.data.logs.generated import generated_log
from quorank.errors import BadInput
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, set_values
from quorank.experiments.run_directory import load_run
from quorank.experiments.runner import Runner, run_experiment
from quorank.reports.report import report_page

LOGGED = (
    "data.source=synthetic:clicks",
    "data.queries=300",
    "data.normalize=none",
    "partition.kind=users",
    "partition.order=arrival",
    "partition.together=4",
    "users.kind=logged",
    "learner.kind=counterfactual",
    "learner.power=1.0",
    "federation.clients=6",
    "federation.interactions=2",
    "federation.rounds=12",
    "evaluation.every=4",
)
CLICKED_AGAIN = (
    "data.source=synthetic:aol",
    "data.queries=300",
    "partition.kind=users",
    "partition.order=time",
    "federation.clients=5",
    "federation.interactions=2",
    "federation.rounds=12",
    "evaluation.every=4",
)


def experiment(*settings: str) -> Experiment:
    return Experiment.read(set_values(parse_experiment_file("", "replayed"), [*settings]))


@pytest.mark.parametrize("settings", [LOGGED, CLICKED_AGAIN, (*LOGGED, "partition.iid=true", "ranker.kind=mlp")])
def test_chunks_and_threads_leave_every_bit(settings: tuple[str, ...]) -> None:
    found = set()
    for threads, chunk in ((1, None), (1, 1), (2, 2)):
        runner = Runner(experiment(*settings), threads=threads, chunk=chunk)
        runner.run()
        assert runner.state is not None and runner.progress is not None
        columns = [column.tobytes() for column in runner.progress.columns().values()]
        found.add((runner.state.theta.tobytes(), *columns))
    assert len(found) == 1


def test_a_report_holds_every_estimate_by_logged_clicks(tmp_path: Path) -> None:
    run_experiment(experiment(*LOGGED), tmp_path / "run", threads=1)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    page = report_page(load_run(tmp_path / "run"))
    for estimators in summary["counterfactual"]["estimates"].values():
        for each in estimators.values():
            assert all(f"{each[of]['value']:.4f} ± {1.96 * each[of]['error']:.4f}" in page for of in each)
    summary["counterfactual"]["estimates"]["dcg@10"]["ips"]["gain"] = "large"
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    reseal(tmp_path / "run")
    with refused("file.damaged", str(tmp_path / "run" / "summary.json")):
        load_run(tmp_path / "run")


def test_an_imported_log_gives_the_bits_of_the_generated_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same searches from memory and from mapped columns."""
    monkeypatch.setenv("QUORANK_HOME", str(tmp_path))
    write_log(tmp_path / "log", generated_log("clicks", 375, 1))  # 300 to learn from
    found = []
    for source in ((), (f"data.source={json.dumps(str(tmp_path / 'log'))}",)):
        given = [text for text in LOGGED if not source or not text.startswith(("data.source", "data.queries"))]
        runner = Runner(experiment(*source, *given), threads=1)
        runner.run()
        found.append(runner.ranker.tobytes())
    assert found[0] == found[1]


def test_updates_are_those_of_the_equation() -> None:
    """One round of a linear ranker: Σ over lists of η·(v(a) − v(b))·P′(a ≻ b)·(x_a − x_b) over pairs within reach."""
    runner = Runner(experiment(*LOGGED, "federation.rounds=1", "partition.together=1"), threads=1)
    simulator, shares = runner.simulator, runner.workload.shares
    assert shares is not None and shares.replay is not None
    (client,), (first,), (count,) = shares.replay.turns(0)
    sent: dict[int, Any] = {}
    state = simulator.initial()
    theta = state.theta.copy()
    simulator.gather(
        state, sent=lambda clients, updates: sent.update(zip(clients.tolist(), updates.copy(), strict=True))
    )
    assert [*sent] == [client] and count == 2
    data, now = shares.data, theta.copy()
    for query in range(first, first + count):
        rows = data.rows_of(query)
        x, clicks = data.features[rows].astype(np.float64), data.labels[rows]
        value = clicks * np.maximum(
            1.0, np.minimum(10.0, np.arange(1, len(clicks) + 1))
        )  # clicks over 1/rank, clipped at 0.1
        f = x @ now
        step = np.zeros_like(now)
        for b in range(len(x)):
            for a in range(max(0, b - 3), b):
                slope = 1.0 / (2.0 + np.exp(f[a] - f[b]) + np.exp(f[b] - f[a]))
                step += (value[a] - value[b]) * slope * (x[a] - x[b])
        now = now + 0.1 * step
    assert np.abs(now - theta).max() > 0.01
    assert sent[int(client)] == pytest.approx(now - theta, rel=1e-4, abs=1e-6)


def test_clients_search_in_the_order_of_their_log() -> None:
    """Sent updates of round t move only those who have searches left, and the whole log is used once."""
    runner = Runner(experiment(*CLICKED_AGAIN), threads=1)
    shares, replay = runner.workload.shares, runner.simulator.replay
    assert shares is not None and replay is not None
    seen: list[int] = []
    for round_ in range(replay.rounds):
        clients, first, count = replay.turns(round_)
        assert (shares.query_count[clients] >= 2 * (round_ + 1)).all()
        seen += [q for f, n in zip(first.tolist(), count.tolist(), strict=True) for q in range(f, f + n)]
    assert len(seen) == len(set(seen)) == int((shares.query_count // 2 * 2).sum())
    members = runner.simulator.members(0)
    assert members is not None and members.tolist() == replay.turns(0)[0].tolist()


@pytest.mark.parametrize(
    ("settings", "code", "where"),
    [
        (("learner=pdgd",), "learner.needs-own-lists", "learner"),
        (("learner=evolution",), "learner.needs-own-lists", "learner"),
        (("learner.share=0.5",), "option.conflict", "learner.share"),
        (("partition.order=random",), "users.needs-replay", "partition"),
        (("partition=even",), "users.needs-replay", "partition"),
        (("federation.participation.kind=sampled", "federation.participation.cohort=2"), "option.conflict",
         "federation.participation"),
        (("federation.keep_every=5",), "option.conflict", "federation.keep_every"),
        (("privacy.kind=gaussian",), "option.conflict", "privacy"),
        (("privacy=secure-sum",), "option.conflict", "privacy"),
        (("attack.kind=clicks", "attack.clients=1"), "option.conflict", "attack"),
    ],
)  # fmt: skip
def test_parts_that_a_log_has_no_place_for_are_refused(settings: tuple[str, ...], code: str, where: str) -> None:
    plain = [
        text for text in LOGGED if not (settings[0] in ("learner=pdgd", "learner=evolution") and "learner" in text)
    ]
    plain = [text for text in plain if not (settings[0] == "partition=even" and text.startswith("partition"))]
    with pytest.raises(BadInput) as caught:
        experiment(*plain, *settings)
    assert caught.value.code == code and caught.value.where.endswith(where), caught.value


@pytest.mark.parametrize(
    ("settings", "code", "where"),
    [
        (("data.source=synthetic:aol",), "log.no-ranks", "users"),
        (("federation.rounds=5000",), "log.too-short", "federation.rounds"),
        (("federation.interactions=5000",), "log.too-short", "federation.interactions"),
        (("federation.clients=5000",), "log.too-few-users", "synthetic:clicks"),
        (("data.source=synthetic:mq2007", "data.queries=20"), "log.no-users", "data.source"),
    ],
)
def test_what_the_log_cannot_give_is_refused(settings: tuple[str, ...], code: str, where: str) -> None:
    with refused(code, where):
        Runner(experiment(*LOGGED, *settings), threads=1)


def test_a_log_that_is_too_small_states_all_limits_at_once() -> None:
    """One correction of the file is enough, and the corrected file runs."""
    with pytest.raises(BadInput) as caught:
        Runner(experiment(*LOGGED, "federation.clients=5000", "federation.rounds=5000"), threads=1)
    said = caught.value.sentence
    limits = re.findall(r"take federation\.(\w+) = (\d+) or fewer, got 5000", said)
    assert [key for key, _ in limits] == ["clients", "rounds"], said
    Runner(experiment(*LOGGED, *(f"federation.{key}={most}" for key, most in limits)), threads=1)
    for settings, part in (
        (("federation.clients=5000", "federation.rounds=1"), "5000"),
        (("partition.least=5000",), "least"),
    ):
        with pytest.raises(BadInput) as caught:
            Runner(experiment(*LOGGED, *settings), threads=1)
        assert caught.value.code == "log.too-few-users" and part in caught.value.sentence
        assert "federation.rounds" not in caught.value.sentence


def test_privacy_is_kept_where_rounds_are_a_clients_own() -> None:
    """By order of time a client's rounds do not depend on the others: noise is planned for the busiest."""
    given = [text for text in LOGGED if not text.startswith("partition.together")]
    runner = Runner(
        experiment(*given, "partition.order=time", "privacy.kind=gaussian", "federation.rounds=3"), threads=1
    )
    assert runner.simulator.setting.interactions == 2
    runner.run()
    assert runner.summary()["privacy"]["epsilon"] > 0

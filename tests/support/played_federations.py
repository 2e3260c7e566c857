"""Status of federations that were really played: devices on generated data, a tuning, a group's session.

Devices answer after delays that are drawn, some not at all, some twice; the clock is theirs. Every figure, ε included, is
what the coordinator, the ledger's mechanism and the private reports made of it.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.update_rounds import clients_of
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.reply import Reply, encode_reply
from quorank.privacy.composition import Loss, compose
from quorank.privacy.mechanisms.metric_response import MetricResponse
from quorank.service.dashboard.event_log import plain_event
from quorank.service.dashboard.status import (
    KEPT_EVENTS,
    Event,
    MemberCounts,
    MemberStatus,
    RoundFigures,
    Status,
    Versions,
    problems_of,
    with_round,
)
from quorank.service.dashboard.status_sources import (
    coordinator_status,
    round_figures,
    session_status,
    tuning_status,
    version_figures,
)
from quorank.tuning.coordinator import TuningCoordinator
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.simulation import Tuning, simulate_tuning

START = 1.7e9  # 2023-11-14, some afternoon
AWAY = (7, 23)  # devices that are seen no more from some round on


class Kept:
    """Events as a log writes them, the newest first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.newest = clock, tuple[Event, ...]()

    def write(self, event: str, **facts: object) -> None:
        found = plain_event(self.clock(), event, facts)
        assert found is not None, event
        self.newest = (found, *self.newest)[:KEPT_EVENTS]


def experiment_of(clients: int = 48, rounds: int = 60) -> Experiment:
    text = f"""
[data]
source = "synthetic:mq2007"
[federation]
clients = {clients}
interactions = 4
rounds = {rounds}
server = {{ kind = "add", step = 30.0 }}
[privacy]
kind = "gaussian"
epsilon = 8.0
delta = 1e-5
clip = 0.3
[evaluation]
every = 100
"""
    return Experiment.read(parse_experiment_file(text, "devices.toml"))


def played_devices(folder: Path, rounds: int = 60, played: int = 41, clients: int = 48, report: float = 1.0) -> Status:
    """A federation of devices in the middle of its run."""
    experiment = experiment_of(clients, rounds)
    people = clients_of(experiment, folder)
    simulator, figure = people.simulator, MetricResponse(report)
    now, random = [0.0], np.random.default_rng(5)
    limits = RoundLimits(
        close_fraction=0.95, minimum_fraction=0.5, deadline=300.0, max_interactions=simulator.setting.interactions
    )
    coordinator = Coordinator(
        experiment.federation, simulator.mechanism, simulator.initial(), rounds, "search-at-work", experiment.seed,
        limits, clock=lambda: now[0], metric_response=figure,
    )  # fmt: skip
    log = Kept(clock=lambda: START + now[0])
    planned = compose(simulator.mechanism.loss(rounds) + Loss(pure=report * rounds), 1e-5)
    log.write("starting", round=0, rounds=rounds, clients=clients)
    for client in range(clients):
        now[0] += float(random.exponential(20.0))
        log.write("member_enrolled", client=client)
    history: tuple[RoundFigures, ...] = ()
    epsilon, opened, seen, refused = None, now[0], {}, {"request.time": 3, "request.replayed": 1}
    for number in range(played + 1):
        task = coordinator.plan()
        cohort = np.array(sorted(coordinator.cohort), dtype=np.int64)
        replies = {reply.client: told(reply, figure) for reply in simulator.replies(task, cohort)}
        delays = random.exponential(70.0 + 60.0 * math.sin(number / 6.0) ** 2, len(cohort))
        opened = now[0]
        for client, delay in sorted(zip(cohort.tolist(), delays.tolist(), strict=True), key=lambda one: one[1]):
            late = client in AWAY and number > played // 2
            if late or coordinator.is_complete() or delay > (60.0 if number == played else limits.deadline):
                continue
            now[0], seen[client] = opened + delay, opened + delay
            coordinator.receive(encode_reply(replies[client]))
            if random.random() < 0.2 / clients or (number == played - 1 and client == 5):
                verdict = coordinator.receive(encode_reply(replies[client]))
                log.write("reply_refused", round=number, client=client, reason=verdict.code)
        if number == played:
            break
        if not coordinator.is_complete():
            now[0] = opened + limits.deadline
        report_of_round = coordinator.advance()
        done, seconds = report_of_round.round, now[0] - opened
        epsilon = compose(simulator.mechanism.loss(done) + Loss(pure=report * done), 1e-5)
        history = with_round(history, round_figures(report_of_round, seconds, figure=figure, epsilon=epsilon.epsilon))
        log.write("round_closed", round=done, replies=report_of_round.participants, cohort=clients, seconds=seconds)
    stated = simulator.mechanism.statement(played) or {}
    members = [
        MemberStatus(
            client, f"device-{client:03d}", "away" if client in AWAY else "present",
            late=client in AWAY, seen_seconds=now[0] - seen.get(client, 0.0), version="0.1.0" if client % 5 else "0.0.9",
            identity=hashlib.sha256(str(client).encode()).hexdigest(),
        )
        for client in range(clients)
    ]  # fmt: skip
    base = Status(
        "devices", "running", "search-at-work", START + now[0],
        address="search.example.org:9092", process=4711, uptime_seconds=now[0] + 12.0,
        versions=Versions("0.1.0", 1, dict(Counter(member.version for member in members))),
        counts=MemberCounts(clients, 0, clients, clients - len(AWAY), late=len(AWAY)), members=tuple(members),
        epsilon_spent=None if epsilon is None else epsilon.epsilon, epsilon_planned=planned.epsilon,
        epsilon_delta=1e-5, epsilon_unit=stated["unit"], epsilon_horizon=stated["horizon"],
        epsilon_method=planned.method, report_epsilon=report, events=log.newest,
        problems=problems_of(certificate_days=12.0),
    )  # fmt: skip
    return coordinator_status(base, coordinator, history, open_seconds=now[0] - opened, refused=refused)


def told(reply: Reply, figure: MetricResponse) -> Reply:
    """The reply as a device sends it: instead of how good its lists were, a private report of that."""
    x = min(1.0, max(0.0, reply.statistics[0] / reply.interactions))
    steps = figure.respond(x, hashlib.sha256(b"secret").digest(), reply.round, reply.client)
    return replace(reply, statistics=(float(steps), 0.0, 0.0))


def played_tuning(iterations: int = 24) -> Status:
    """A tuning of frecency's weights by people who prefer others than those that are shipped."""
    history = simulate_tuning(Tuning(people="others", iterations=iterations, held_out=500))
    tuning = TuningCoordinator(FRECENCY)
    points: tuple[RoundFigures, ...] = ()
    for model, hours, before in zip(history.models, history.hours[1:], history.hours, strict=False):
        points = with_round(points, version_figures(model, 3600.0 * (hours - before)))
    newest, older = history.models[-1], history.models[-2].weights
    state = tuning.resume(newest)
    log = Kept(clock=lambda: START)
    for model, hours in zip(history.models, history.hours[1:], strict=True):
        log.clock = lambda hours=hours: START + 3600.0 * hours
        log.write("version_published", round=model.version, replies=model.updates, loss=model.loss)
    base = Status(
        "tuning", "running", "address-bar", START + 3600.0 * history.hours[-1] + 40.0,
        address="tuning.example.org:9092", uptime_seconds=3600.0 * history.hours[-1],
        versions=Versions("0.1.0", 1, {"0.1.0": 1000}), counts=MemberCounts(None, 0, 1000, 431),
        events=log.newest,
        arms={"treatment": 503, "control": 497}, refused={"reply.other-round": 3},
    )  # fmt: skip
    return tuning_status(base, tuning, state, points, older, open_seconds=40.0)


def played_session(folder: Path, turns: int = 6) -> Status:
    """A group's session in the middle of its training: the third party is asked and does not answer."""
    from silo_sessions import NAMES, Group, terms_of

    group, log, now = Group(folder, terms_of()), Kept(clock=lambda: START), 0.0
    phase, members = "", tuple(MemberStatus(number, name, "present") for number, name in enumerate(NAMES))
    base = Status(
        "parties", "running", "rehearsal", START, address="silo.example.org:9092", versions=Versions("0.1.0"),
        counts=MemberCounts(len(NAMES), 0, len(NAMES), len(NAMES) - 1), members=members,
    )  # fmt: skip
    try:
        while group.server.turns[0] < turns:
            for name in NAMES:
                group.message(name)
                now += 0.4
            if group.server.phase != phase:
                phase = group.server.phase
                log.clock = lambda now=now: START + now
                log.write("phase_begun", phase=len(log.newest), round=group.server.turns[0])
            done = group.server.turns[0]
            if done and (not base.history or base.history[-1].round < done):
                base = session_status(base, group.server, NAMES[:2], 1.2)
        return session_status(
            replace(base, at=START + now, uptime_seconds=now, events=log.newest), group.server, NAMES[:2]
        )
    finally:
        group.close()

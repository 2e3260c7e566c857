"""Simulator, coordinator with its storage and clock, and devices of a small experiment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from quorank.engines.process import Simulator
from quorank.errors import BadInput
from quorank.experiments.deployment import SimulatedUser
from quorank.federation import Federation, Sampled
from quorank.federation import server_optimisers as servers
from quorank.federation.coordinator import Coordinator
from quorank.federation.reply import Task, decode_task, encode_task
from quorank.federation.rounds import State
from quorank.federation.rules import Krum, Median
from quorank.federation.storage import CoordinatorCheckpoint
from quorank.federation.unlearning import is_rebuilding
from quorank.learning import Evolution, Simulation
from quorank.member.device import Device
from quorank.member.device_answers import DeviceAnswers
from quorank.member.known_members import KnownMembers
from quorank.member.membership import Pins
from quorank.member.policy import Policy
from quorank.member.private_store import PrivateStore
from quorank.privacy import ClippedGaussian, PublishedLaplace, RandomisedResponse, Signs
from quorank.protocol.member_list import START, Head, entry_of, first_digest, next_digest
from quorank.protocol.messages import Declined
from quorank.protocol.secure_round import parse_opening, task_for_all
from quorank.protocol.terms import Terms
from quorank.rankers import Linear
from quorank.users import Cascade

SEED, CLIENTS, ROUNDS = 3, 6, 4
FEDERATIONS = {
    "plain": Federation(12, 3),
    "sampled": Federation(12, 3, participation=Sampled(7)),
    "momentum": Federation(12, 3, server=servers.Momentum()),
    "krum": Federation(12, 3, aggregation=Krum(byzantine=2)),
    "median": Federation(12, 3, aggregation=Median()),
    "evolution": Federation(12, 4, learner=Evolution(), privacy=RandomisedResponse()),
    "gaussian": Federation(12, 3, privacy=ClippedGaussian(epsilon=100.0, clip=0.1)),
    "quantile": Federation(12, 3, privacy=ClippedGaussian(epsilon=100.0, clip=0.1, quantile=0.5)),
    "published": Federation(12, 3, privacy=PublishedLaplace()),
    "signs": Federation(12, 3, privacy=Signs()),
}
"""Federations of twelve clients with every kind of round."""


def simulation_of(collection: Any, ranker: Any = None) -> Simulation:
    users = Cascade(preset="informational")
    return Simulation(collection.train, ranker or Linear(), users, collection.grades, seed=SEED)


def simulator_of(
    collection: Any, federation: Federation | None = None, ranker: Any = None, rounds: int = ROUNDS, threads: int = 1
) -> Simulator:
    simulation = simulation_of(collection, ranker)
    return Simulator(federation or Federation(CLIENTS, 3), simulation, rounds=rounds, threads=threads)


def coordinator_of(simulator: Simulator, **options: Any) -> Coordinator:
    start = simulator.federation, simulator.mechanism, simulator.initial(), simulator.rounds or 1
    return Coordinator(*start, **{"seed": SEED} | options)


def state_after(simulator: Simulator, rounds: int | None = None) -> State:
    """State after these rounds, by default all, in process."""
    state = simulator.initial()
    for _ in range(simulator.rounds if rounds is None else rounds):
        state, _ = simulator.federation.round(state, simulator.gather(state))
    return state


@dataclass
class Ticks:
    """A clock that goes on when somebody sleeps."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class MemoryStorage:
    """`RoundStorage` in the memory of a test, which outlives the coordinator; the checkpoint is kept as bytes."""

    where = "the test's memory"

    def __init__(self) -> None:
        self.saved: bytes | None = None
        self.begun: int | None = None

    def load(self) -> CoordinatorCheckpoint | None:
        return None if self.saved is None else CoordinatorCheckpoint.parse(self.saved, self.where)

    def save(self, saved: CoordinatorCheckpoint) -> None:
        self.saved = saved.to_bytes()

    def begin(self, round_: int) -> bool:
        fresh, self.begun = self.begun != round_, round_
        return fresh


def terms_of(simulator: Simulator, client: int, **changes: Any) -> Terms:
    federation, simulation = simulator.federation, simulator.simulation
    values: dict[str, Any] = {
        "run": "run",
        "client": client,
        "n_features": simulation.data.n_features,
        "rounds": simulator.rounds,
        "interactions": federation.interactions,
        "k": simulation.k,
        "ranker": simulation.ranker,
        "learner": federation.learner,
        "privacy": federation.privacy,
        "personal": federation.personal,
        "client_momentum": federation.client_momentum,
        "setting": simulator.setting,
        "rebuilding_rounds": 100,
    }
    return Terms(**(values | changes))


def device_of(simulator: Simulator, folder: Path, client: int = 0, **changes: Any) -> Device:
    """A device whose owner agrees; its lists are drawn at the simulator's addresses."""
    store = PrivateStore(folder)
    if not store.consents():
        store.set_consent(True, 0.0)
    return Device(store, terms_of(simulator, client, **changes), seed=SEED, clock=lambda: 1e9, plain=True)


ANY = Policy(epsilon=1e9, delta=1.0, unstated=True, cohort=1, releases=2**31, searches=1, clip=1e12)
"""Policy that accepts the terms of every test."""


class ListedMembers:
    """The list of members of a service."""

    def __init__(self) -> None:
        self.start, self.entries = bytes(START), list[bytes]()

    def add(self, number: int, key: bytes, attested: bytes = b"") -> None:
        self.entries.append(entry_of(number, key, attested))

    def head(self, size: int | None = None) -> bytes:
        entries = self.entries[:size]
        return Head(len(entries), reduce(next_digest, entries, first_digest(self.start))).to_bytes()

    def page(self, first: int) -> tuple[bytes, bytes]:
        return self.start, b"".join(self.entries[first : first + 3])


class Answering(DeviceAnswers):
    """Answers of a listed device whose service has published the task of every letter that opens a secure sum."""

    published = b""

    def __init__(self, device: Device, listed: ListedMembers | None = None) -> None:
        super().__init__(device, KnownMembers(device.store, Pins(device.store), bytes(32), device.terms.attester))
        self.listed = listed or ListedMembers()
        self.listed.add(device.terms.client, self.key.public)

    def answer(self, content: bytes) -> bytes | Declined:
        if content.startswith(b"QSEC"):
            with suppress(BadInput):
                opening = parse_opening(content)
                self.published = self.published if opening is None else task_for_all(decode_task(opening.task))
            self.update_members(content, self.listed.page)
            return self.answer_secure(content, self.published)
        rebuilds = is_rebuilding(content, self.device.terms.run)
        return self.answer_rebuilding(content) if rebuilds else self.device.answer(content)


def user_of(simulator: Simulator, client: int = 0) -> SimulatedUser:
    return SimulatedUser(simulator.simulation, client)


def task_of(simulator: Simulator, round_: int = 0, theta: Any = None, run: str = "run", **more: Any) -> bytes:
    start = simulator.initial()
    parameters = start.theta if theta is None else theta
    return encode_task(Task(run, round_, parameters, more.pop("private", start.private), **more))


def search(device: Device, user: SimulatedUser, times: int) -> None:
    for _ in range(times):
        user(device)


def answered(device: Device, user: SimulatedUser, task: bytes) -> bytes:
    """The reply to a task after the searches that it takes."""
    device.answer(task)
    while not device.ready():
        user(device)
    reply = device.answer(task)
    assert isinstance(reply, bytes), reply
    return reply


def killed(work: Callable[[], object]) -> None:
    """Do something in a child process that must end by SIGKILL in the middle of it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status


def shoot() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def random_theta(simulator: Simulator, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=simulator.simulation.parameters)

"""The clients of an experiment, as the nodes of a network play them: the simulator's clients, asked one task at a time.

What clients keep for unlearning and carry on of their updates they keep here, on their side, before privacy touches it;
none of it is sent. It is on file before anything of the round leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.engines.process import Simulator
from quorank.errors import require
from quorank.experiments.carried_updates import CarriedUpdates
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file
from quorank.experiments.kept_updates import KeptUpdates, read_kept
from quorank.experiments.run_directory import clients_with_kept
from quorank.experiments.runner import Runner
from quorank.federation.personal import Shared as SharedRanker
from quorank.federation.reply import Reply, Task, decode_task, encode_reply
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.privacy import Mechanism
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.protocol import frames

if TYPE_CHECKING:
    from quorank.experiments.simulated_members import SimulatedMembers


def check(experiment: Experiment) -> None:
    """Refuse what does not go over a network."""
    federation = experiment.federation
    require(
        federation.attack is None,
        "option.conflict",
        "attackers collude, so they are simulated in process only; run without --engine, or without [attack]",
        "attack",
    )
    require(
        isinstance(federation.personal, SharedRanker),
        "option.conflict",
        "personal parameters are kept by simulated clients in process only; run without --engine, "
        'or with personal = "shared"',
        "federation.personal",
    )
    require(
        not experiment.partition.replays,
        "option.conflict",
        'a log is replayed in process only; run without --engine, or with partition.order = "random"',
        "partition.order",
    )
    privacy: Any = federation.privacy
    if privacy.hides_single_updates:
        require(
            privacy.dropouts == 0.0,
            "option.conflict",
            "clients leave by lot in process only; run without --engine, or with dropouts = 0",
            "privacy.dropouts",
        )
        require(
            getattr(privacy, "noise_by", "clients") == "clients",
            "option.conflict",
            "on a network the noise of secure sums is drawn by the clients; run without --engine, or "
            'with noise_by = "clients"',
            "privacy.noise_by",
        )


@dataclass(eq=False)
class _Keeping:
    """A mechanism that lets clients put their updates aside before it touches them."""

    mechanism: Mechanism
    keeper: Keeper

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mechanism, name)

    def release(
        self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: dict[str, Doubles]
    ) -> int:
        self.keeper.keep(round_, clients, updates)
        return self.mechanism.release(updates, theta, round_, clients, memory)


@dataclass(eq=False)
class Keeper:
    """What clients keep of rounds 1, 1 + Δt, …: each round once, however often its task came."""

    every: int  # Δt; 0 keeps nothing
    folder: Path
    size: int
    _rows: dict[int, dict[int, Floats]] = field(default_factory=dict, init=False)  # round → client → update

    def restore(self) -> None:
        """Go on with what an earlier process of this run left."""
        for client in clients_with_kept(self.folder):
            for round_, row in zip(*read_kept(self.folder, client, self.size), strict=True):
                self._rows.setdefault(int(round_), {})[client] = row

    def due(self, done: int) -> bool:
        return self.every > 0 and done % self.every == 0

    def keep(self, done: int, clients: Integers, updates: Doubles) -> None:
        if self.due(done) and len(clients):
            single = KeptUpdates(self.every)
            single.keep(done + 1, clients, updates)
            own = self._rows.setdefault(done + 1, {})
            own.update(zip(clients.tolist(), single.updates[0], strict=True))

    def write(self) -> None:
        """The clients' files, before anything of the round is sent."""
        kept = KeptUpdates(self.every)
        for round_, own in sorted(self._rows.items()):
            kept.rounds.append(round_)
            kept.clients.append(np.array(sorted(own), dtype=np.int64))
            kept.updates.append(np.array([own[client] for client in sorted(own)]))
        kept.write(self.folder)


@dataclass(eq=False)
class SimulatedClients:
    """Answers tasks as an experiment's clients do."""

    simulator: Simulator
    keeper: Keeper
    carried: CarriedUpdates | None = None  # with `client_momentum`
    _lock: Lock = field(default_factory=Lock, init=False)

    @classmethod
    def of(cls, file: Path, folder: Path) -> SimulatedClients:
        """Of an experiment file; what the clients keep lies in the run's folder."""
        return cls.playing(Experiment.read(read_experiment_file(file)), folder)

    @classmethod
    def playing(cls, experiment: Experiment, folder: Path) -> SimulatedClients:
        check(experiment)
        simulator = Runner(experiment, threads=1).simulator
        keeper = Keeper(experiment.keep_every, folder, simulator.simulation.parameters)
        if experiment.keep_every:
            keeper.restore()
            simulator.__dict__["mechanism"] = _Keeping(simulator.mechanism, keeper)
        federation, size = simulator.federation, simulator.simulation.parameters
        carried = CarriedUpdates(folder, federation.clients, size) if federation.client_momentum > 0.0 else None
        theta = simulator.simulation.ranker.initial(simulator.simulation.data.n_features, simulator.simulation.seed)
        first = Task("", 0, theta, simulator.mechanism.start())
        simulator.replies(first, np.empty(0, dtype=np.int64), np.empty((0, size)))  # compiles what it needs
        return cls(simulator, keeper, carried)

    def respond(self, content: bytes) -> bytes:
        """The replies of the task's clients, as one bundle."""
        if not content.startswith(b"QRNK"):
            with self._lock:
                return self._members.respond(content)
        task = decode_task(content)
        clients = np.array(task.clients, dtype=np.int64)
        known = len(clients) > 0 and int(clients.max()) < self.simulator.federation.clients
        require(known, "task.unknown-client", "the task asks for clients that this experiment does not have")
        with self._lock:
            replies = self._learn(task, clients)
        return frames.pack([encode_reply(reply) for reply in replies])

    def _learn(self, task: Task, clients: Integers) -> list[Reply]:
        """What the clients send, once what they keep of it is on file."""
        if self.carried is None:
            replies = self.simulator.replies(task, clients)
        else:
            replies = self.carried.replies(self.simulator, task, clients)
        if self.keeper.due(task.round):
            self.keeper.write()
        return replies

    @cached_property
    def _members(self) -> SimulatedMembers:
        """The same clients in secure sums."""
        from quorank.experiments.simulated_members import SimulatedMembers

        found: Any = self.simulator.mechanism
        mechanism = found.mechanism if isinstance(found, _Keeping) else found
        require(isinstance(mechanism, IntegerSums), "secure-sum.none", "this experiment's privacy is no secure sum")
        assert isinstance(mechanism, IntegerSums)
        return SimulatedMembers(self.simulator, mechanism, self._learn)

"""An experiment through the real service on this machine, in place of the in-process engine: to the same bytes.

The run's own process holds the coordinator. Intake workers and the experiment's clients (`experiments.light_clients`) are
processes of their own, which talk over HTTPS; what dies of them is started again. The service's folder lies in the run's
and goes when the run is done; a run that was killed goes on with it (`--resume`).
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from quorank.engines.node_driver import Stopped
from quorank.errors import Interrupted, require, require_range
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.runner import Engine, Play, Runner
from quorank.experiments.simulated_clients import check
from quorank.federation.coordinator import Coordinator
from quorank.federation.rounds import Report
from quorank.kernels.process import terminate_all
from quorank.protocol.invitation import Invitation
from quorank.service.holders.rounds import Holder
from quorank.service.home import EXPERIMENT, SECRET_BYTES, SEED, SETTINGS, TERMS, Home, Settings
from quorank.service.store.sql_store import HolderLost, SqlStore
from quorank.service.store.tables import TABLES
from quorank.service.supervisor import WORKER, ServiceProcess

FOLDER = "service"
"""Of the service, in the run's folder."""
CLIENTS, INVITATION = "quorank.experiments.light_clients", "clients.json"
"""The module that plays the clients, and the file with which it is invited."""
OWNER = "experiment"
"""The document that says whose a store is."""
DEATHS = 10
"""So often a process may die in one round."""
AGAIN_SECONDS = 1.0
HOLD_SECONDS = 30.0
"""So long a run waits for the process that played it before."""
MOST_WORKERS = 64


class PlayedHome(Home):
    """The folder of a service that plays an experiment: its members agree to nothing, they are simulated."""

    @classmethod
    def of(cls, folder: Path, port: int, workers: int, database: str) -> PlayedHome:
        """The folder in the run's, made where it is not there; it listens on this port of the loopback interface."""
        settings = Settings("run", 1, f"127.0.0.1:{port}", port=port, workers=workers, database=database, enrolments=0)
        path = folder / FOLDER
        if (path / SETTINGS).is_file():
            home = cls(path.absolute())
            sentence = "this run was begun with another --database; give it the same"
            require(home.settings.database == database, "option.conflict", sentence, "--database")
            home.write_settings(settings)
            return cls(home.path)
        shutil.rmtree(path, ignore_errors=True)  # of a start that was cut short
        own = (folder / storage.CONFIG).read_bytes()
        files = {SEED: secrets.token_bytes(SECRET_BYTES), EXPERIMENT: own, TERMS: b'{"run": "run"}'}
        return cls._made(path, settings, files, "run's")

    @property
    def invitation(self) -> Invitation:
        """What the clients of the run enrol with, all of them with one token."""
        token = hashlib.blake2b(b"quorank light enrolment", key=self.secret, digest_size=24).hexdigest()
        url, authority = self.settings.url, self.authority.decode()
        return Invitation("clients", url, self.key.public, {}, token=token, certificate=authority)


def https(experiment: Experiment, workers: int = 2, database: str = "") -> Engine:
    """The service with so many intake workers; what it cannot do is refused here, before anything starts."""
    require_range("--workers", workers, least=1, most=MOST_WORKERS)
    check(experiment)
    sentence = "--engine https needs the packages of a service: pip install 'quorank[service]'"
    require(find_spec("granian") is not None, "package.missing", sentence)

    @contextmanager
    def bring_up(runner: Runner, folder: Path, stop: Callable[[], bool]) -> Iterator[Play]:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(4096)
            home = PlayedHome.of(folder, listener.getsockname()[1], workers, database)
            played = PlayedService(home, listener, runner, stop)
            try:
                yield played.play
            finally:
                played.close()

    return bring_up


class PlayedService:
    """One run's service: the holder here, workers and clients as children."""

    def __init__(self, home: PlayedHome, listener: socket.socket, runner: Runner, stop: Callable[[], bool]) -> None:
        self.home, self.rounds, self.stop, self.runner = home, runner.experiment.rounds, stop, runner
        self.store = home.store()
        try:
            epoch = self._held()
            if runner.experiment.federation.client_momentum > 0.0:
                ask_again(self.store, epoch)
            invitation = home.invitation
            self.store.open_enrolment(invitation.token, runner.experiment.federation.clients, self.store.now() + 1e9)
            invitation.write(home.path / INVITATION)
        except BaseException:
            self.store.close()
            raise
        self.holder = Holder(self.store, epoch, home.key, stop=stop, tend=self.tend, soonest=1.0, simulated=True)
        words, socket_ = [WORKER, str(home.path)], listener.fileno()
        workers = [ServiceProcess(f"worker-{number}", words, socket_) for number in range(home.settings.workers)]
        clients = ServiceProcess("clients", [CLIENTS, str(home.path / INVITATION), str(home.path.parent)])
        self.children = [*workers, clients]
        self._deaths: dict[str, int] = {}
        self.done = 0 if runner.state is None else runner.state.round

    def _held(self) -> int:
        """Become the holder; a database is one run's, and what another one has left there is not touched."""
        mark, found = self.home.key.public, self.store.document(OWNER)
        free = found is None and self.store.publication() is None and not self.store.members(most=1)
        sentence = "there is another run or service in this database; give this run one of its own"
        require(free or found == mark, "database.in-use", sentence, "--database")
        end = time.monotonic() + HOLD_SECONDS
        epoch = self.store.hold_in_turn(lambda: self.stop() or time.monotonic() > end)
        if epoch is None and self.stop():
            raise Interrupted(0, self.rounds)
        sentence = "another process plays this run; wait for it, or stop it"
        require(epoch is not None, "run.in-use", sentence, str(self.home.path.parent))
        assert epoch is not None
        self.store.keep(epoch, {OWNER: mark})
        return epoch

    def tend(self) -> None:
        """Start what is not there; what dies again and again ends the run."""
        now = time.monotonic()
        for child in self.children:
            if child.ended() is not None:
                self._deaths[child.name] = self._deaths.get(child.name, 0) + 1
                child.bury(now)
                if self._deaths[child.name] >= DEATHS:
                    reason = f"{child.name} of the service ended {DEATHS} times in a round"
                    raise Stopped(self.done, self.rounds, reason)
            if child.is_due(now):
                child.start()

    def play(self, coordinator: Coordinator) -> Report:
        """Play a round through the service; while the store is away it is waited for."""
        if coordinator.storage is None:
            coordinator.storage = self.holder.keeping("played")
        self.done = coordinator.state.round
        while True:
            try:
                self.tend()
                report = self.holder.round(coordinator)
            except HolderLost:
                raise Stopped(self.done, self.rounds, "another process has taken over its coordinator") from None
            except OSError:
                if self.stop():
                    raise Interrupted(self.done, self.rounds) from None
                time.sleep(AGAIN_SECONDS)
                continue
            self.done = coordinator.state.round
            self._deaths.clear()
            return report

    def close(self) -> None:
        """End all processes; of a run that is done nothing stays."""
        running = [child.process for child in self.children if child.process is not None]
        for process in running:
            process.kill()  # nothing is on its way that would not be asked for again
        terminate_all(running)
        try:
            if self.done >= self.rounds:
                erase(self.store)
        finally:
            self.store.close()
        if self.done >= self.rounds:
            shutil.rmtree(self.home.path, ignore_errors=True)


def ask_again(store: SqlStore, epoch: int) -> None:
    """Let every client answer the open round anew, also who has: it is back where the run's checkpoint is, and carries on
    from there."""
    with store.holding(epoch):
        for table in ("replies", "publication"):
            store.database.execute(f"DELETE FROM {table}")


def erase(store: SqlStore) -> None:
    """Leave nothing of a run in its store."""
    with store.database.transaction():
        for table in TABLES:
            if table != "service":
                store.database.execute(f"DELETE FROM {table}")

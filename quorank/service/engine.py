"""An experiment through the real service on this machine, in place of the in-process engine: to the same bytes.

The run's own process holds the coordinator. Intake workers and the experiment's clients (`light_clients`) are processes of
their own, which talk over HTTPS; what dies of them is started again. The service's folder lies in the run's and goes when
the run is done; a run that was killed goes on with it (`--resume`).
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quorank.errors import Interrupted, require, require_range
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.runner import Engine, Play, Runner
from quorank.experiments.simulated_clients import check
from quorank.federation.coordinator import Coordinator
from quorank.federation.node_driver import Stopped
from quorank.federation.rounds import Report
from quorank.process import finish
from quorank.service.holder import Holder
from quorank.service.home import EXPERIMENT, SECRET_BYTES, SEED, SETTINGS, TERMS, Home, Settings
from quorank.service.light_clients import token_of
from quorank.service.store.sql_store import HolderLost, SqlStore
from quorank.service.supervisor import WORKER, ServiceProcess

FOLDER = "service"
"""Of the service, in the run's folder."""
CLIENTS = "quorank.service.light_clients"
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
        files = {SEED: _secret(), EXPERIMENT: (folder / storage.CONFIG).read_bytes(), TERMS: b'{"run": "run"}'}
        return cls._made(path, settings, files, "run's")


def _secret() -> bytes:
    import secrets

    return secrets.token_bytes(SECRET_BYTES)


def https(experiment: Experiment, workers: int = 2, database: str = "") -> Engine:
    """The service with so many intake workers; what it cannot do is refused here, before anything starts."""
    require_range("--workers", workers, least=1, most=MOST_WORKERS)
    check(experiment)
    check_installed()

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


def check_installed() -> None:
    """Refuse where the packages of a service are missing."""
    from importlib.util import find_spec

    sentence = "--engine https needs the packages of a service: pip install 'quorank[service]'"
    require(find_spec("granian") is not None, "package.missing", sentence)


class PlayedService:
    """One run's service: the holder here, workers and clients as children."""

    def __init__(self, home: PlayedHome, listener: socket.socket, runner: Runner, stop: Callable[[], bool]) -> None:
        self.home, self.rounds, self.stop, self.runner = home, runner.experiment.rounds, stop, runner
        self.store = home.store()
        try:
            self._own()
            epoch = self._held()
            self.store.open_enrolment(token_of(home), runner.experiment.federation.clients, self.store.now() + 1e9)
        except BaseException:
            self.store.close()
            raise
        self.holder = Holder(self.store, epoch, home.key, stop=stop, tend=self.tend, soonest=1.0, simulated=True)
        descriptor = listener.fileno()
        words = [WORKER, str(home.path)]
        self.children = [
            ServiceProcess(f"worker-{number}", words, descriptor) for number in range(home.settings.workers)
        ]
        self.clients = ServiceProcess("clients", [CLIENTS, str(home.path)])
        self._deaths: dict[str, int] = {}
        self.done = 0 if runner.state is None else runner.state.round

    def _own(self) -> None:
        """A database is one run's: what another one has left there is not touched."""
        mark = self.home.key.public
        found = self.store.document(OWNER)
        free = found is None and self.store.publication() is None and not self.store.members(most=1)
        sentence = "there is another run or service in this database; give this run one of its own"
        require(free or found == mark, "database.in-use", sentence, "--database")

    def _held(self) -> int:
        end = time.monotonic() + HOLD_SECONDS
        while (epoch := self.store.hold()) is None:
            if self.stop():
                raise Interrupted(0, self.rounds)
            sentence = "another process plays this run; wait for it, or stop it"
            require(time.monotonic() < end, "run.in-use", sentence, str(self.home.path.parent))
            time.sleep(AGAIN_SECONDS / 5.0)
        self.store.keep(epoch, {OWNER: self.home.key.public})
        return epoch

    def tend(self) -> None:
        """Start what is not there; what dies again and again ends the run."""
        now = time.monotonic()
        for child in (*self.children, self.clients):
            if child.ended() is not None:
                self._deaths[child.name] = self._deaths.get(child.name, 0) + 1
                child.bury(now)
                if self._deaths[child.name] >= DEATHS:
                    raise Stopped(
                        self.done, self.rounds, f"{child.name} of the service ended {DEATHS} times in a round"
                    )
            if child.is_due(now):
                child.start()

    def play(self, coordinator: Coordinator) -> Report:
        """Play a round through the service; while the store is away it is waited for."""
        if coordinator.keeping is None:
            coordinator.keeping = self.holder.keeping("played")
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
        running = [child.process for child in (*self.children, self.clients) if child.process is not None]
        for process in running:
            process.kill()  # nothing is on its way that would not be asked for again
        finish(running)
        try:
            if self.done >= self.rounds:
                erase(self.store)
        finally:
            self.store.close()
        if self.done >= self.rounds:
            shutil.rmtree(self.home.path, ignore_errors=True)


def erase(store: SqlStore) -> None:
    """Leave nothing of a run in its store."""
    from quorank.service.store.tables import TABLES

    with store.database.transaction():
        for table in TABLES:
            if table != "service":
                store.database.execute(f"DELETE FROM {table}")

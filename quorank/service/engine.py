"""Engine `https`, the operator's side: a run through the real service on this machine, to the same bits as in process.

The run's process holds the coordinator, so that the run has its history and checkpoints; it is part of `service` because
rounds close in the service's store (`Holder`). Intake workers and the clients (`quorank.engines.https`) are child processes
that talk over HTTPS; a child that dies is started again. The service's directory lies in the run's and is removed when the
run is done; a run that was killed goes on with it (`--resume`).
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from quorank.engines.engine import Engine, EngineRun, Play, Stopped
from quorank.errors import Interrupted, require, require_range
from quorank.experiments.run_directory import CONFIG
from quorank.federation.coordinator import Coordinator
from quorank.federation.rounds import Report
from quorank.kernels.process import terminate_all
from quorank.protocol.invitation import Invitation
from quorank.service.holders.rounds import Holder, KeptInStore
from quorank.service.home import EXPERIMENT, SECRET_BYTES, SEED, SETTINGS, TERMS, Home, Settings
from quorank.service.store.database import TABLES
from quorank.service.store.sql_store import HolderLost
from quorank.service.supervisor import WORKER, ServiceProcess

FOLDER = "service"  # directory of the service, in the run's
CLIENTS, INVITATION = "quorank.engines.https", "clients.json"  # module of the clients' process, and its invitation
OWNER = "experiment"  # document of the store with the key of the run that owns it
DEATHS = 10  # limit on deaths of one process in a round
AGAIN_SECONDS = 1.0
HOLD_SECONDS = 30.0  # time to wait for the process that held the run before, seconds
MOST_WORKERS = 64


class PlayedHome(Home):
    """Directory of a service whose members are simulated, and agree to no terms."""

    @classmethod
    def of(cls, folder: Path, port: int, workers: int, database: str) -> PlayedHome:
        """Open or create the directory in the run's, for a service on this port of the loopback interface."""
        settings = Settings("run", 1, f"127.0.0.1:{port}", port=port, workers=workers, database=database, enrolments=0)
        path = folder / FOLDER
        if (path / SETTINGS).is_file():
            home = cls(path.absolute())
            sentence = "this run was started with another --database; use the same one"
            require(home.settings.database == database, "option.conflict", sentence, "--database")
            home.write_settings(settings)
            return cls(home.path)
        shutil.rmtree(path, ignore_errors=True)  # of a start that was cut short
        own = (folder / CONFIG).read_bytes()
        files = {SEED: secrets.token_bytes(SECRET_BYTES), EXPERIMENT: own, TERMS: b'{"run": "run"}'}
        return cls._made(path, settings, files, "run's")

    @property
    def invitation(self) -> Invitation:
        """Return the invitation of all clients, with one token."""
        token = hashlib.blake2b(b"quorank light enrolment", key=self.secret, digest_size=24).hexdigest()
        url, authority = self.settings.url, self.authority.decode()
        return Invitation("clients", url, self.key.public, {}, token=token, certificate=authority)


def https(workers: int = 2, database: str = "") -> Engine:
    """Return the engine: the service with this number of intake workers."""
    require_range("--workers", workers, least=1, most=MOST_WORKERS)
    sentence = "--engine https needs the packages of a service: pip install 'quorank[service]'"
    require(find_spec("granian") is not None, "package.missing", sentence)

    @contextmanager
    def start(run: EngineRun) -> Iterator[Play]:
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
            home = PlayedHome.of(run.folder, listener.getsockname()[1], workers, database)
            played = PlayedService(home, listener, run)
            try:
                yield played.play
            finally:
                played.close()

    return start


class PlayedService:
    """Service of one run: the holder in this process, workers and clients as children."""

    def __init__(self, home: PlayedHome, listener: socket.socket, run: EngineRun) -> None:
        self.home, self.rounds, self.stop, self.done = home, run.rounds, run.stop, run.done
        self.store = home.store()
        try:
            self._hold()
            if run.carries:  # clients are back at the run's checkpoint: forget the replies of the open round
                with self.store.holding():
                    for table in ("replies", "publication"):
                        self.store.database.execute(f"DELETE FROM {table}")
            invitation = home.invitation
            self.store.open_enrolment(invitation.token, run.client_count, self.store.now() + 1e9)
            invitation.write(home.path / INVITATION)
        except BaseException:
            self.store.close()
            raise
        self.holder = Holder(self.store, home.key, stop=run.stop, tend=self.tend, simulated=True)
        words, socket_ = [WORKER, str(home.path)], listener.fileno()
        workers = [ServiceProcess(f"worker-{number}", words, socket_) for number in range(home.settings.workers)]
        clients = ServiceProcess(
            "clients", [CLIENTS, str(home.path / INVITATION), run.clients_factory, str(run.folder)]
        )
        self.children = [*workers, clients]
        self._deaths: dict[str, int] = {}

    def _hold(self) -> None:
        """Become the holder; refuse a database of another run."""
        mark, found = self.home.key.public, self.store.document(OWNER)
        free = found is None and self.store.publication() is None and not self.store.members(most=1)
        sentence = "there is another run or service in this database; give this run a separate one"
        require(free or found == mark, "database.in-use", sentence, "--database")
        end = time.monotonic() + HOLD_SECONDS
        epoch = self.store.hold_in_turn(lambda: self.stop() or time.monotonic() > end)
        if epoch is None and self.stop():
            raise Interrupted(0, self.rounds)
        sentence = "another process plays this run; wait for it, or stop it"
        require(epoch is not None, "run.in-use", sentence, str(self.home.path.parent))
        self.store.keep({OWNER: mark})

    def tend(self) -> None:
        """Start missing processes; stop the run after too many deaths."""
        for child in self.children:
            if child.tend() is not None:
                self._deaths[child.name] = self._deaths.get(child.name, 0) + 1
                if self._deaths[child.name] >= DEATHS:
                    reason = f"{child.name} of the service ended {DEATHS} times in a round"
                    raise Stopped(self.done, self.rounds, reason)

    def play(self, coordinator: Coordinator) -> Report:
        """Play a round through the service; wait for a store that is away."""
        if coordinator.storage is None:
            coordinator.storage = KeptInStore(self.store, "played")
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
        """End all processes; remove the service of a run that is done."""
        running = [child.process for child in self.children if child.process is not None]
        for process in running:
            process.kill()  # nothing is on its way that would not be asked for again
        terminate_all(running)
        try:
            if self.done >= self.rounds:
                with self.store.database.transaction():
                    for table in TABLES.keys() - {"service"}:
                        self.store.database.execute(f"DELETE FROM {table}")
        finally:
            self.store.close()
        if self.done >= self.rounds:
            shutil.rmtree(self.home.path, ignore_errors=True)

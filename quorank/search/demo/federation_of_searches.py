"""Federation of the demonstration: a real service in a folder, invitations, and rounds through the persons' pages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from quorank.errors import BadInput, require
from quorank.experiments.deployment import check_experiment
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file, set_value, shipped_file
from quorank.kernels.process import terminate_all
from quorank.search.demo.simulated_person import SimulatedPerson
from quorank.search.ranking.search_features import SEARCH_FEATURES
from quorank.service.dashboard.loopback_server import loopback_socket
from quorank.service.dashboard.status import Status
from quorank.service.enrolment import invite
from quorank.service.home import Home, Settings
from quorank.service.overview import Overview
from quorank.service.supervisor import start_service

EXPERIMENT = "search"
CHANGES = {
    "federation.rounds": 10_000,  # they continue while the pages are open
    "federation.participation": "full",
    "federation.server": {"kind": "add", "step": 1.0},
    "privacy": {"kind": "none"},
}
"""Changes to the shipped file: noise cannot hide a handful of persons, so their updates have none."""
DEADLINE = 30.0
"""Deadline of a round, seconds."""
PAUSE = 2.0
LOOK_SECONDS, ROUND_SECONDS = 0.05, 60.0


@dataclass(eq=False)
class SearchFederation:
    """Service of a few searches, until `close`."""

    home: Home
    persons: int
    _stack: ExitStack

    @classmethod
    def start(cls, folder: Path, persons: int) -> SearchFederation:
        """Create the folder of a service with the experiment file `search`, and start it."""
        file = shipped_file(Path(EXPERIMENT))
        assert file is not None
        chosen = read_experiment_file(file)
        for key, value in {"federation.clients": persons, **CHANGES}.items():
            chosen = set_value(chosen, key, value, "quorank search demo")
        experiment = Experiment.read(chosen)
        n_features = len(SEARCH_FEATURES)
        check_experiment(experiment, n_features)
        with loopback_socket(0) as free:
            port = int(free.getsockname()[1])
        settings = Settings(
            "search-demo", n_features, f"127.0.0.1:{port}", port=port, workers=1, least=1.0 / persons,
            deadline=DEADLINE, pause=PAUSE,
        )  # fmt: skip
        home = Home.create(folder, experiment, settings)
        stack = ExitStack()
        process = start_service(home, stays=False)
        stack.callback(terminate_all, [process])
        return cls(home, persons, stack)

    def close(self) -> None:
        """Stop the service; its folder stays."""
        self._stack.close()

    @property
    def page(self) -> str:
        """Address of the operator's dashboard, with its token."""
        return f"{self.home.settings.url}/?token={self.home.token}"

    def status(self) -> Status:
        """Return the status that the operator sees."""
        return Overview(self.home).read()

    def invite(self, name: str, file: Path) -> Path:
        """Write the invitation of a person."""
        store = self.home.store()
        try:
            invite(self.home, store, name, file)
        finally:
            store.close()
        return file


class DemoRounds:
    """Rounds of the joined persons: those with enough choices send, and a full round is awaited."""

    def __init__(self, persons: Sequence[SimulatedPerson]) -> None:
        self.persons, self.round = persons, 0

    def advance(self) -> None:
        """Reply to the open round once everybody can, and wait until all have its ranker."""
        progress = [self._progress_of(person) for person in self.persons]
        if any(last <= self.round and not ready for last, ready in progress):
            return
        end = time.monotonic() + ROUND_SECONDS
        while True:
            for person in self.persons:
                person.calls.post("/api/sync")
            rounds = [person.calls.get("/api/status")["federation"]["ranker_round"] for person in self.persons]
            if all(round_ is not None and round_ > self.round for round_ in rounds):
                self.round = min(rounds)
                return
            sentence = f"round {self.round + 1} has not ended within {ROUND_SECONDS:g} s"
            require(time.monotonic() < end, "demo.round-late", sentence)
            time.sleep(LOOK_SECONDS)

    def _progress_of(self, person: SimulatedPerson) -> tuple[int, bool]:
        """Return the last round with a reply of a person's device, and whether it has enough choices for the next."""
        found = person.calls.get("/api/status")["federation"]
        if found is None:
            raise BadInput("device.missing", f"{person.person.name} has not joined")
        return found["last_round"], found["waiting"] >= found["needed"]

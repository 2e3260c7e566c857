"""Federation of made-up searches: a real service in a folder, invitations to it, and rounds that persons' pages play."""

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
from quorank.service.home import Home, Settings
from quorank.service.live.loopback import loopback_socket
from quorank.service.live.status import Status
from quorank.service.members import invite
from quorank.service.overview import Overview
from quorank.service.starting import start_service

EXPERIMENT = "search"
CHANGES = {
    "federation.rounds": 10_000,  # they go on while the pages are open
    "federation.participation": "full",
    "federation.server": {"kind": "add", "step": 1.0},
    "privacy": {"kind": "none"},
}
"""What differs from the shipped file: a handful of persons cannot hide in noise, so their updates leave as they are."""
DEADLINE = 30.0
"""Seconds after which a round does without those who have not searched."""
PAUSE = 2.0
LOOK_SECONDS, ROUND_SECONDS = 0.05, 60.0


@dataclass(eq=False)
class SearchFederation:
    """Service of a few searches; everything of it ends with `close`."""

    home: Home
    persons: int
    _stack: ExitStack

    @classmethod
    def start(cls, folder: Path, persons: int) -> SearchFederation:
        """Make the folder of the service that the experiment file `search` describes, and start it."""
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
        """The address of the operator's dashboard, with what opens it."""
        return f"{self.home.settings.url}/?token={self.home.token}"

    def status(self) -> Status:
        """What the operator sees."""
        return Overview(self.home).read()

    def invite(self, name: str, file: Path) -> Path:
        """Write the invitation of a person."""
        store = self.home.store()
        try:
            invite(self.home, store, name, file)
        finally:
            store.close()
        return file


class PlayedRounds:
    """Rounds of persons who have joined: those who have searched enough send, and a round that is full is waited for."""

    def __init__(self, persons: Sequence[SimulatedPerson]) -> None:
        self.persons, self.round = persons, 0

    def play(self) -> None:
        """Let everybody who can answer the open round do so; where all have, wait until their rankers are there."""
        standing = [self._standing(person) for person in self.persons]
        if any(last <= self.round and not ready for last, ready in standing):
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

    def _standing(self, person: SimulatedPerson) -> tuple[int, bool]:
        """The last round that a person's device answered, and whether it has enough for the next."""
        found = person.calls.get("/api/status")["federation"]
        if found is None:
            raise BadInput("device.missing", f"{person.person.name} has not joined")
        return found["last_round"], found["waiting"] >= found["needed"]

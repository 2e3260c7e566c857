"""Live page of a simulation, which `quorank run FILE --watch` serves on the loopback interface until the run ends.

A request only reads the run's progress: it takes none of its random draws, so the bits stay as they are.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from starlette.applications import Starlette

from quorank import __version__
from quorank.experiments.runner import Runner
from quorank.reports.panels import spread_evenly
from quorank.service.dashboard.loopback_server import loopback_socket, served
from quorank.service.dashboard.page import page_routes
from quorank.service.dashboard.status import MemberCounts, Quality, RoundFigures, State, Status, Versions

CURVE_POINTS = 100
MEASURE = "offline_ndcg@10"


class RunWatch:
    """View of a run from another thread: `open` receives the run, `status` reads its progress."""

    def __init__(self, name: str) -> None:
        self._name, self._started = name, time.monotonic()
        self._runner: Runner | None = None
        self._planned: dict[str, Any] | None = None  # until somebody looks, since accounting may take seconds
        self.state: State = "starting"

    def open(self, runner: Runner) -> None:
        """Take the run, which begins now."""
        self._runner, self.state = runner, "running"

    def status(self) -> Status:
        """Return the status of the run at this moment."""
        runner, known = self._runner, Status("simulation", self.state, self._name, time.time())
        known = replace(known, uptime_seconds=time.monotonic() - self._started, versions=Versions(__version__))
        progress = None if runner is None else runner.progress
        if runner is None or progress is None:
            return known
        if self._planned is None:
            self._planned = runner.mechanism.statement(runner.experiment.rounds) or {}
            self._spent = runner.mechanism.spent()
        federation, done, values = runner.experiment.federation, progress.done, progress.values
        judged = np.flatnonzero(np.isfinite(values[MEASURE][:done]))
        newest = Quality("offline nDCG@10", progress.last(MEASURE), None, int(judged[-1]) + 1) if len(judged) else None
        pace = (progress.train_seconds + progress.evaluate_seconds) / done if done else None
        history = [
            RoundFigures(int(at) + 1, quality=float(values[MEASURE][at]))
            for at in judged[spread_evenly(len(judged), CURVE_POINTS)]
        ]
        replies = values["participants"]
        history += [RoundFigures(int(at) + 1, replies=float(replies[at])) for at in spread_evenly(done, CURVE_POINTS)]
        history += [RoundFigures(t, epsilon=epsilon) for t, epsilon in self._spent if t <= done]
        return replace(
            known,
            rounds=done,
            rounds_planned=progress.rounds,
            last_round_seconds=pace,
            seconds_left=None if pace is None else pace * (progress.rounds - done),
            cohort=federation.participation.size(federation.clients),
            accepted=int(np.nansum(replies[:done])),
            counts=MemberCounts(planned=federation.clients, enrolled=federation.clients),
            quality=newest or Quality("offline nDCG@10"),
            # of the next point of the curve: no less than what is spent
            epsilon_spent=next((epsilon for t, epsilon in self._spent if t >= done), None) if done else None,
            epsilon_planned=self._planned.get("epsilon"),
            epsilon_delta=self._planned.get("delta"),
            epsilon_unit=self._planned.get("unit"),
            epsilon_horizon=self._planned.get("horizon"),
            history=tuple(sorted(history, key=lambda point: point.round)),
        )


@contextmanager
def watched_run(name: str, port: int = 0, *, stay: bool = False) -> Iterator[tuple[RunWatch, str]]:
    """Serve the page of a run while the context lasts; yields its view, and the address with its token."""
    watch, over, token = RunWatch(name), threading.Event(), secrets.token_urlsafe(24)
    routes = page_routes(watch.status, token, over.is_set)
    with served(Starlette(routes=routes), loopback_socket(port)) as number:
        try:
            yield watch, f"http://127.0.0.1:{number}/?token={token}"
            watch.state = "done"
            with suppress(KeyboardInterrupt):
                while stay:
                    time.sleep(0.2)
        except BaseException:
            watch.state = "stopped"
            raise
        finally:
            over.set()

"""The page for a simulation: `quorank run FILE --watch` serves it on the loopback interface, beside the run.

A thread of the run's process looks at the run's progress twice a second and draws when somebody asks. It changes nothing
of the run and takes none of its draws, so the bits stay as they are; it ends with the run.
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
from quorank.service.dashboard.loopback_server import loopback_socket, served
from quorank.service.dashboard.page import page_routes
from quorank.service.dashboard.status import (
    MemberCounts,
    Quality,
    RoundFigures,
    State,
    Status,
    Versions,
    seconds_left,
    with_round,
)

SAMPLE_SECONDS = 0.5
COUNTING_SHARE = 0.02
"""Share of the time that may go into counting ε; where that takes long, the number is a few rounds old."""
CURVE_POINTS = 200


class RunWatch:
    """View of a run from another thread: `open` once it is there, `sample` now and then, `status` when somebody looks."""

    def __init__(self, name: str) -> None:
        self._name, self._started = name, time.monotonic()
        self._runner: Runner | None = None
        self._timed: tuple[RoundFigures, ...] = ()
        self._last: tuple[int, float] | None = None  # rounds done at the newest sample, and when
        self._spent: tuple[int, float | None] = (0, None)  # rounds, and ε after them
        self._planned: dict[str, Any] | None = None
        self._curve: list[tuple[int, float]] = []
        self._count_again = 0.0
        self.state: State = "starting"

    def open(self, runner: Runner) -> None:
        """The run is read and begins."""
        self._runner, self.state = runner, "running"

    def sample(self) -> None:
        """Note how many rounds were done since the sample before."""
        progress = None if self._runner is None else self._runner.progress
        if progress is None:
            return
        now, done = time.monotonic(), progress.done
        if self._last is None or done == 0:
            self._last = done, now
        elif done > self._last[0]:
            point = RoundFigures(done, (now - self._last[1]) / (done - self._last[0]))
            self._timed, self._last = with_round(self._timed, point), (done, now)

    def status(self) -> Status:
        """The run at this moment."""
        runner = self._runner
        empty = Status(
            "simulation", self.state, self._name, time.time(),
            uptime_seconds=time.monotonic() - self._started, versions=Versions(__version__),
        )  # fmt: skip
        progress = None if runner is None else runner.progress
        if runner is None or progress is None:
            return empty
        federation, done = runner.experiment.federation, progress.done
        self._count(runner, done)
        epsilon, stated = self._spent[1], self._planned or {}
        measure = "offline nDCG@10"
        newest = progress.last("offline_ndcg@10")
        judged = np.flatnonzero(np.isfinite(progress.values["offline_ndcg@10"][:done]))
        open_seconds = None if self._last is None or done != self._last[0] else time.monotonic() - self._last[1]
        left = progress.rounds - done
        return replace(
            empty,
            rounds=done,
            rounds_planned=progress.rounds,
            seconds_left=seconds_left(self._timed, left, open_seconds),
            last_round_seconds=self._timed[-1].seconds if self._timed else None,
            cohort=federation.participation.size(federation.clients),
            accepted=int(np.nansum(progress.values["participants"][:done])),
            counts=MemberCounts(planned=federation.clients, enrolled=federation.clients),
            quality=Quality(measure, newest, None, int(judged[-1]) + 1) if len(judged) else Quality(measure),
            epsilon_spent=epsilon if done else None,
            epsilon_planned=stated.get("epsilon"),
            epsilon_delta=stated.get("delta"),
            epsilon_unit=stated.get("unit"),
            epsilon_horizon=stated.get("horizon"),
            history=self._history(progress.values, judged, done),
        )

    def _history(self, values: dict[str, Any], judged: Any, done: int) -> tuple[RoundFigures, ...]:
        """Points of quality, replies, seconds and ε, each at its own rounds."""
        found: list[RoundFigures] = list(self._timed[-CURVE_POINTS:])
        for at in _some(judged):
            found.append(RoundFigures(int(at) + 1, quality=float(values["offline_ndcg@10"][at])))
        for at in _some(np.arange(done)):
            found.append(RoundFigures(int(at) + 1, replies=float(values["participants"][at])))
        rounds, epsilon = self._spent
        points = [(t, e) for t, e in self._curve if t < rounds]
        if epsilon is not None:
            points.append((rounds, epsilon))
        found += [RoundFigures(t, epsilon=e) for t, e in points]
        return tuple(sorted(found, key=lambda point: point.round))

    def _count(self, runner: Runner, done: int) -> None:
        """ε of the plan, once, and of the rounds done, as often as it costs little."""
        began = time.monotonic()
        if began < self._count_again and done != runner.experiment.rounds:
            return
        mechanism = runner.mechanism
        if self._planned is None:
            self._planned = mechanism.statement(runner.experiment.rounds) or {}
            self._curve = mechanism.spent()
        if done > self._spent[0]:
            self._spent = done, (mechanism.statement(done) or {}).get("epsilon")
        took = time.monotonic() - began
        self._count_again = began + took / COUNTING_SHARE


def _some(numbers: Any) -> Any:
    """No more than CURVE_POINTS of them, evenly spread, the last among them."""
    if len(numbers) <= CURVE_POINTS:
        return numbers
    return numbers[np.unique(np.linspace(0, len(numbers) - 1, CURVE_POINTS).round().astype(int))]


@contextmanager
def watched_run(name: str, port: int = 0, *, stay: bool = False) -> Iterator[tuple[RunWatch, str]]:
    """Serve the page of a run while the context lasts; yields what the run is told to, and the address with its token."""
    watch, over = RunWatch(name), threading.Event()
    token = secrets.token_urlsafe(24)
    routes = page_routes(watch.status, token, over.is_set)
    sampler = threading.Thread(target=_sample, args=(watch, over), daemon=True)
    with served(Starlette(routes=routes), loopback_socket(port)) as number:
        sampler.start()
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
            watch.sample()
            over.set()
            sampler.join()


def _sample(watch: RunWatch, over: threading.Event) -> None:
    while not over.wait(SAMPLE_SECONDS):
        watch.sample()

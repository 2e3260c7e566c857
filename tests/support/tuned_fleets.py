"""Devices of a tuning in this process: each makes one search of `tune simulate` under every version."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fleets import enrolled, sent

from quorank.federation.reply import decode_reply, encode_reply
from quorank.protocol.keys import MemberKey
from quorank.service.dashboard.event_log import EventLog
from quorank.service.holders.tuning import TuningHome, TuningService, settings_of
from quorank.service.store.group_commit import Outcome
from quorank.service.store.sql_store import SqlStore
from quorank.tuning.coordinator import TuningSettings
from quorank.tuning.field import DeviceSums, FieldTuning, read_task
from quorank.tuning.histories.scenarios import SCENARIOS
from quorank.tuning.rules import Count
from quorank.tuning.searches import slice_searches
from quorank.tuning.simulation import Tuning, TuningHistory, simulate_tuning


def field_of(tuning: Tuning, **more: Any) -> FieldTuning:
    """The tuning in the field that a simulation rehearses."""
    shared = {one.name: getattr(tuning, one.name) for one in fields(TuningSettings)}
    return FieldTuning(SCENARIOS[tuning.heuristic].heuristic, **shared | more)


def rehearsed(devices: int, iterations: int, **more: Any) -> tuple[Tuning, TuningHistory]:
    """A simulation whose versions are made of one update of each device."""
    tuning = Tuning(closing=Count(devices), iterations=iterations, held_out=50, **more)
    return tuning, simulate_tuning(tuning)


class TunedFleet:
    """A folder with its store, and devices that answer from a simulation's searches."""

    def __init__(self, path: Path, tuning: Tuning, devices: int, database: str = "", **more: Any) -> None:
        self.tuning, self.scenario, self.devices = tuning, SCENARIOS[tuning.heuristic], devices
        self.field = field_of(tuning, **more)
        settings = settings_of("run", self.field, address="127.0.0.1:9092", database=database)
        self.home = TuningHome.make(path, self.field, settings)
        self.terms = self.field.terms("run")
        self.store: SqlStore = self.home.store()
        self.keys: dict[int, MemberKey] = enrolled(self.store, devices)

    def service(self) -> TuningService:
        """Another holder."""
        self.store = self.home.store()
        assert self.store.hold() is not None
        return TuningService(self.home, self.store, EventLog(None), sleep=lambda _: None)

    def reply(self, member: int) -> bytes:
        """What a device sends under the version that is out."""
        published = self.store.publication()
        assert published is not None
        task = read_task(published.content, "run", self.scenario.heuristic)
        first = task.version * self.devices
        truth = self.scenario.heuristic.shipped
        searches = self.scenario.searches(self.tuning.seed, self.devices, first, truth, self.tuning.sigma)
        own = slice_searches(searches, member, member + 1)
        sums = DeviceSums.empty(task.version, len(truth)).add(self.scenario.heuristic, self.terms, task, own)
        return sums.reply(replace(self.terms, client=member))

    def send(self, member: int, content: bytes | None = None) -> Outcome:
        published = self.store.publication()
        assert published is not None
        return sent(self.store, member, "reply", published.number, content or self.reply(member))

    def lie(self, member: int, **changes: Any) -> Outcome:
        """A reply with something else in it."""
        return self.send(member, encode_reply(replace(decode_reply(self.reply(member)), **changes)))

"""Holder of a tuning: publishes versions of a heuristic's weights, collects devices' updates, closes iterations.

`python -m quorank.service.holders.tuning DIR [--exit-when-done]`. `tuning.field.OpenVersion` learns; this module stores
replies and checkpoints. The end of a version is one transaction: checkpoint, next task, end of its replies. A killed
holder reads the open version's replies again. After the last version, devices answer for the metrics of a study with
an ε: `study.json`.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from quorank.errors import BadInput
from quorank.federation.reply import Task, encode_task
from quorank.files.documents import json_bytes, parse_json
from quorank.protocol.messages import Publication
from quorank.service.dashboard.status import Problem, Quality, RoundFigures, State, Status, WeightStatus
from quorank.service.holders.holder_process import Held, main
from quorank.service.holders.rounds import LONGEST_NEXT, next_seconds, signed_task
from quorank.service.home import TERMS, Home, Settings
from quorank.service.store.sql_store import Finished, RepliesCame
from quorank.tuning.coordinator import TuningState
from quorank.tuning.field import FieldTuning, OpenVersion
from quorank.tuning.models import Model, model_file_name, model_of, model_text

TUNING, WEIGHTS, VERSIONS, STUDY = "tuning.json", "weights.json", "versions", "study.json"  # files
CHECKPOINT = "tuning"


@dataclass(frozen=True)
class TuningHome(Home):
    """Folder of a tuning's service, with the tuning in place of an experiment."""

    kind = "tuning"
    missing = ("coordinator.missing", "tuning here; make one with: quorank coordinator start {} --tune FILE.toml")

    @classmethod
    def make(cls, path: Path, tuning: FieldTuning, settings: Settings) -> TuningHome:
        """Create the folder; an existing one must be empty."""
        terms, plan = tuning.terms(settings.run).table(), tuning.table()
        files = {name: json.dumps(table, indent=1).encode() for name, table in ((TERMS, terms), (TUNING, plan))}
        return cls._made(path, settings, files, "coordinator's")

    @cached_property
    def tuning(self) -> FieldTuning:
        """Settings of the tuning."""
        return FieldTuning.read(self.path / TUNING)


def settings_of(run: str, tuning: FieldTuning, **options: Any) -> Settings:
    """Return the settings of a service for a tuning."""
    return Settings(run, len(tuning.heuristic.weights), kind="tuning", **options)


class TuningService(Held[TuningHome]):
    """Tuning of a folder, held by this process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tuning, self.run, content = self.home.tuning, self.home.settings.run, self.store.document(CHECKPOINT)
        self._model: Model | None = None  # the published version
        if content is not None:
            self._model = model_of(parse_json(content, Any, CHECKPOINT), CHECKPOINT, self.tuning.heuristic)
        self._last_reply = 0  # id of the last reply read
        self._reply_count = self._replies_needed = 0  # replies to the open version, and those that it accepts
        self._received_bytes = self._accepted = 0  # bytes of replies, and updates of published versions
        self._arms: dict[str, int] = {}
        self.version = OpenVersion(self.tuning, self.run, self._key, self._model)
        self._leavers = {member for member, _, _ in self.store.leavers()}

    @property
    def done(self) -> bool:
        answered = self.tuning.answers == 0 or self.store.document(STUDY) is not None
        return self.version.learned and answered

    @property
    def progress(self) -> tuple[int, int]:
        return self.version.state.version, self.tuning.iterations

    def begin(self) -> None:
        if self._model is not None:
            self._write_version(self._model)

    def look(self) -> bool:
        published = self._published()
        received = self._read_replies()
        passed = max(0.0, self.store.now() - published.opened)
        closed = self._close_study(passed) if self.version.learned else self._close_version(passed)
        if not closed and self._replies_needed and self._reply_count >= self._replies_needed:
            self._extend(published)
        self.release_leavers()
        self.publish_in_time()
        return received or closed

    def finish(self) -> None:
        state = self.version.state
        content = encode_task(Task(self.run, state.version, state.published))
        self.declare("over", state.version, content, LONGEST_NEXT)

    def forget(self, member: int) -> None:
        """Take out the member's update: others are only in sums and versions, and stored nowhere else."""
        self.version.forget(member)
        self._leavers.add(member)

    def _key(self, member: int) -> bytes:
        found = self.store.member(member)
        if found is None or found.key is None:
            raise BadInput("request.unknown-member", "no such member has enrolled")
        return found.key

    # ------------------------------------------------------------ versions

    def _published(self) -> Publication:
        """Return the publication of the open version; publish it if it is missing."""
        found, version = self.store.publication(), self.progress[0]
        if found is None or (found.kind, found.run, found.round) != ("tuning", self.run, version):
            found = self.store.publish(self._publication(self.version.state))
        self._replies_needed = found.room
        return found

    def _publication(self, state: TuningState) -> Publication:
        wait = next_seconds(len(self.store.admitted()), self.home.settings.deadline, self.soonest)
        return signed_task(
            self.home.key, "tuning", self.run, state.version, self.version.task(state), wait,
            room=self.version.replies_needed(state), limits=json_bytes(self.version.limits(state)),
        )  # fmt: skip

    def _read_replies(self) -> bool:
        batch = self.store.replies(self.run, self.progress[0], self._last_reply)
        for stored in batch:
            code = "" if stored.member in self._leavers else self.version.receive(stored.member, stored.content)
            if code:
                self.record("reply_refused", round=self.progress[0], client=stored.member, reason=code)
        if batch:
            self._last_reply, self._reply_count = batch[-1].id, self._reply_count + len(batch)
            self._received_bytes += sum(len(stored.content) for stored in batch)
        return bool(batch)

    def _extend(self, published: Publication) -> None:
        """Accept more replies in place of rejected ones; devices that have replied are not asked again."""
        missing = self._replies_needed - len(self.version.replies)
        if missing > 0:
            self._replies_needed = self._reply_count + missing
            self.store.publish(replace(published, room=self._replies_needed))

    def _close_version(self, passed: float) -> bool:
        found = self.version.next_version(passed)
        if found is None:
            return False
        after, model = found
        documents = {CHECKPOINT: model_text(model).encode()}
        finished = Finished(self.run, self.progress[0], self._last_reply)
        more = after.version < self.tuning.iterations or self.tuning.answers > 0
        try:
            if more:
                self.store.publish(self._publication(after), documents, finished)
            else:
                self.store.keep(documents, finished)
        except RepliesCame:
            return False  # read them first
        seconds = self.clock() - self.opened
        self.end_round(RoundFigures(model.version, seconds, model.updates, model.loss))
        self._accepted += model.updates
        if self.version.begin(after):
            self.record("version_rolled_back", round=model.version, to=0)
        self.record("version_published", round=model.version, replies=model.updates, loss=model.loss, seconds=seconds)
        self._last_reply = self._reply_count = 0
        self._write_version(model)
        return True

    def _write_version(self, model: Model) -> None:
        """Write the files of the version; errors of the disk are ignored, since the next version writes them again."""
        with contextlib.suppress(OSError):
            (self.home.path / VERSIONS).mkdir(mode=0o700, exist_ok=True)
        for name in (f"{VERSIONS}/{model_file_name(model.version)}", WEIGHTS):
            self.write_file(name, model_text(model))

    def _close_study(self, passed: float) -> bool:
        """Store the result of the study once enough devices have answered or its time limit is over."""
        found = None if self.done else self.version.study(passed)
        if found is None:
            return False
        content = json.dumps(found, indent=2).encode() + b"\n"
        try:
            self.store.keep({STUDY: content}, Finished(self.run, self.progress[0], self._last_reply))
        except RepliesCame:
            return False
        self.write_file(STUDY, content)
        return True

    # ------------------------------------------------------------ status

    def status(self, state: State | None = None) -> Status:
        version, heuristic = self.version, self.tuning.heuristic
        private, values = version.terms.private_means, heuristic.named(version.state.published)
        newest: Any = {"value": self.history[-1].quality, "round": self.history[-1].round} if self.history else {}
        before = version.before or {}
        weights = tuple(
            WeightStatus(one.name, float(values[one.name]), one.shipped, one.lower, one.upper, before.get(one.name))
            for one in heuristic.weights
        )
        return self.base_status(
            "tuning", state, received_bytes=self._received_bytes, refused=dict(version.refused), weights=weights,
            report_epsilon=None if private is None else private.epsilon, arms=self._arm_sizes(),
            replies=len(version.replies), needed=self._replies_needed or None,
            accepted=self._accepted + version.state.estimate.count,
            quality=Quality("mean loss of searches", **newest), problems=self._problems(),
        )  # fmt: skip

    def _problems(self) -> tuple[Problem, ...]:
        """Report a version that needs more updates than there are enrolled devices that tune."""
        needed, study, enrolled = self.tuning.closing.fewest, self.tuning.study, len(self.store.admitted())
        arm = None if study is None else next(iter(study.arms))
        able = enrolled if arm is None else self._arm_sizes()[arm]
        if self.version.learned or not enrolled or able >= needed:
            return ()
        whose = "" if arm is None else f" of the arm {arm}"
        sentence = f"a version needs {needed:,} updates and {able:,} devices{whose} are enrolled: invite more devices"
        return (Problem("tuning.too-few-devices", sentence),)

    def _arm_sizes(self) -> dict[str, int]:
        """Return the number of devices in each arm, counted again when devices have enrolled."""
        if self.tuning.study is not None and sum(self._arms.values()) != len(self.store.admitted()):
            self._arms = self.version.arms(self.store.keys().values())
        return self._arms


if __name__ == "__main__":
    main(TuningHome.open, TuningService)

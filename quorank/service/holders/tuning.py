"""The holder of a tuning: versions of a heuristic's weights go out, devices' updates come in, iterations close.

`python -m quorank.service.holders.tuning DIR [--exit-when-done]`. What learns is `tuning.open_version`; here are its
replies and checkpoints in the store. The end of a version is one transaction: checkpoint, next task, end of its replies. A
holder that is killed reads the open version's replies again. After the last version, devices answer for the figures of the
study, where there is one with an ε: `study.json`.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, require
from quorank.federation.reply import Task, encode_task
from quorank.files.documents import ANYTHING, parse_json
from quorank.protocol.messages import Publication, leaving_receipt
from quorank.service.holders.holding import Held, main
from quorank.service.holders.rounds import LONGEST_NEXT, identities, next_seconds
from quorank.service.home import SETTINGS, TERMS, Home, Settings
from quorank.service.intake.intake import LIMITS
from quorank.service.live.status import State, Status, with_round
from quorank.service.live.status_sources import tuning_status, version_figures
from quorank.service.store.sql_store import Finished, RepliesCame
from quorank.tuning.coordinator import TuningState
from quorank.tuning.field import FieldTuning
from quorank.tuning.models import Model, model_file_name, model_of, model_text
from quorank.tuning.open_version import OpenVersion

TUNING, WEIGHTS, VERSIONS, STUDY = "tuning.json", "weights.json", "versions", "study.json"
"""Files: what is tuned, the weights that devices have, all versions, and what the study found."""
CHECKPOINT = "tuning"


@dataclass(frozen=True)
class TuningHome(Home):
    """The folder of a tuning's service: as that of a coordinator, with what is tuned in place of an experiment."""

    @classmethod
    def make(cls, path: Path, tuning: FieldTuning, settings: Settings) -> TuningHome:
        """Make the folder; where it is there already it must be empty."""
        terms, plan = tuning.terms(settings.run).table(), tuning.table()
        files = {name: json.dumps(table, indent=1).encode() for name, table in ((TERMS, terms), (TUNING, plan))}
        return cls._made(path, settings, files, "coordinator's")

    @classmethod
    def open(cls, path: Path) -> TuningHome:
        """The folder that an earlier start made."""
        home = cls(path.absolute())
        there = (home.path / SETTINGS).is_file() and home.settings.kind == "tuning"
        sentence = f"there is no tuning here; make one with: quorank coordinator start {path} --tune FILE.toml"
        require(there, "coordinator.missing", sentence, f"{path}")
        return home

    @cached_property
    def tuning(self) -> FieldTuning:
        """What is tuned, and how."""
        return FieldTuning.read(self.path / TUNING)


def settings_of(run: str, tuning: FieldTuning, **chosen: Any) -> Settings:
    """A service's settings, for a tuning."""
    return Settings(run, len(tuning.heuristic.weights), kind="tuning", **chosen)


@dataclass(eq=False)
class TuningService(Held[TuningHome]):
    """One folder's tuning, held by this process."""

    version: OpenVersion = field(init=False)
    _model: Model | None = field(default=None, init=False)  # the version that is out
    _taken: int = field(default=0, init=False)  # the last reply that was handed in
    _heard: int = field(default=0, init=False)  # replies to the open version
    _room: int = field(default=0, init=False)  # places of it
    _came: int = field(default=0, init=False)  # bytes
    _arms: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tuning, self.run, content = self.home.tuning, self.home.settings.run, self.store.document(CHECKPOINT)
        if content is not None:
            self._model = model_of(parse_json(content, ANYTHING, CHECKPOINT), CHECKPOINT, self.tuning.heuristic)
        self.version = OpenVersion(self.tuning, self.run, self._key, self._model)
        self._gone = {member for member, _, _ in self.store.leavers()}

    @property
    def done(self) -> bool:
        answered = self.tuning.answers == 0 or self.store.document(STUDY) is not None
        return self.version.learned and answered

    @property
    def place(self) -> tuple[int, int]:
        return self.version.state.version, self.tuning.iterations

    def begin(self) -> None:
        if self._model is not None:
            self._hand_out(self._model)

    def look(self) -> bool:
        published = self._published()
        came = self._take()
        passed = max(0.0, self.store.now() - published.opened)
        closed = self._close_figures(passed) if self.version.learned else self._close(passed)
        if not closed and self._room and self._heard >= self._room:
            self._widen(published)
        self.attend()
        self.publish_in_time()
        return came or closed

    def finish(self) -> None:
        state = self.version.state
        content = encode_task(Task(self.run, state.version, state.published))
        self.declare("over", state.version, content, LONGEST_NEXT)

    def attend(self) -> None:
        """Let those go who have asked to leave: an update is in sums and versions, and kept nowhere else."""
        for member, request, _ in self.store.leavers(waiting=True):
            self.version.forget(member)
            self._gone.add(member)
            self.store.let_go(self.epoch, member, leaving_receipt(request))
            self.tell("member_left", client=member, round=self.place[0])

    def _key(self, member: int) -> bytes:
        found = self.store.member(member)
        if found is None or found.key is None:
            raise BadInput("request.unknown-member", "no such member has enrolled")
        return found.key

    # ------------------------------------------------------------ versions

    def _published(self) -> Publication:
        """The open version's task; it is published where it is not."""
        found, version = self.store.publication(), self.place[0]
        if found is None or (found.kind, found.run, found.round) != ("tuning", self.run, version):
            made = self._publication(self.version.state)
            found = self.store.publish(self.epoch, made, self._limits(self.version.state))
        self._room = found.room
        return found

    def _publication(self, state: TuningState) -> Publication:
        wait = next_seconds(len(self.store.admitted()), self.home.settings.deadline, self.soonest)
        return self.signed("tuning", state.version, self.version.task(state), wait, self.version.room(state))

    def _limits(self, state: TuningState) -> dict[str, bytes | None]:
        """What workers judge replies by before they confirm them."""
        return {LIMITS: json.dumps(asdict(self.version.limits(state))).encode()}

    def _take(self) -> bool:
        batch = self.store.replies(self.run, self.place[0], self._taken)
        for stored in batch:
            code = "" if stored.member in self._gone else self.version.receive(stored.member, stored.content)
            if code:
                self.tell("reply_refused", round=self.place[0], client=stored.member, reason=code)
        if batch:
            self._taken, self._heard = batch[-1].id, self._heard + len(batch)
            self._came += sum(len(stored.content) for stored in batch)
        return bool(batch)

    def _widen(self, published: Publication) -> None:
        """Take more replies in the place of those that cannot count; who has answered is not asked again."""
        missing = self._room - len(self.version.replies)
        if missing > 0:
            self._room = self._heard + missing
            self.store.publish(self.epoch, replace(published, room=self._room))

    def _close(self, passed: float) -> bool:
        found = self.version.next_version(passed)
        if found is None:
            return False
        after, model = found
        documents: dict[str, bytes | None] = {CHECKPOINT: model_text(model).encode(), **self._limits(after)}
        finished = Finished(self.run, self.place[0], self._taken)
        more = after.version < self.tuning.iterations or self.tuning.answers > 0
        try:
            if more:
                self.store.publish(self.epoch, self._publication(after), documents, finished)
            else:
                self.store.keep(self.epoch, documents, finished)
        except RepliesCame:
            return False  # they are taken in first
        self._closed(after, model)
        return True

    def _closed(self, after: TuningState, model: Model) -> None:
        """A version is out: tell of it, and begin the next."""
        now = self.clock()
        seconds, self.opened = now - self.opened, now
        self.history = with_round(self.history, version_figures(model, seconds))
        if self.version.begin(after):
            self.tell("version_rolled_back", round=model.version, to=0)
        self.tell("version_published", round=model.version, replies=model.updates, loss=model.loss, seconds=seconds)
        self._taken = self._heard = 0
        self._hand_out(model)

    def _hand_out(self, model: Model) -> None:
        """Write the version, for whoever fetches it as a file; on a full disk the next one is."""
        with contextlib.suppress(OSError):
            (self.home.path / VERSIONS).mkdir(mode=0o700, exist_ok=True)
        for name in (f"{VERSIONS}/{model_file_name(model.version)}", WEIGHTS):
            self.write_file(name, model_text(model))

    def _close_figures(self, passed: float) -> bool:
        """End the collection of figures: enough answers, or the days are over."""
        found = None if self.done else self.version.study(passed)
        if found is None:
            return False
        content = json.dumps(found, indent=2).encode() + b"\n"
        try:
            self.store.keep(self.epoch, {STUDY: content}, Finished(self.run, self.place[0], self._taken))
        except RepliesCame:
            return False
        self.write_file(STUDY, content)
        return True

    # ------------------------------------------------------------ how it stands

    def status(self, state: State | None = None) -> Status:
        figures, version, now = self.version.terms.figures, self.version, self.clock()
        base = self.base_status(
            "tuning", state, rounds_planned=self.tuning.iterations, received_bytes=self._came, refused=version.refused,
            report_epsilon=None if figures is None else figures.epsilon, arms=self._members(),
        )  # fmt: skip
        opened, coordinator = now - self.opened, self.tuning.coordinator
        status = tuning_status(base, coordinator, version.state, self.history, version.before, opened)
        return replace(status, replies=len(version.replies), needed=self._room or None)

    def _members(self) -> dict[str, int]:
        """How many devices are in each arm; counted again while there are few."""
        if self.tuning.study is not None and sum(self._arms.values()) != len(self.store.admitted()):
            self._arms = self.version.arms(identities(self.store).values())
        return self._arms


if __name__ == "__main__":
    main(TuningHome.open, TuningService)

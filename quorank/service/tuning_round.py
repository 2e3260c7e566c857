"""The holder of a tuning: versions of a heuristic's weights go out, devices' updates come in, iterations close.

`python -m quorank.service.tuning_round DIR [--exit-when-done]`. What learns is `TuningCoordinator`, the machine that
`quorank tune simulate` drives too. The replies of a version are summed in the order of the devices' numbers, whichever
came first, so the same replies give the same bits. The end of a version is one transaction: checkpoint, next task, end of
its replies. A holder that is killed reads the open version's replies again.

After the last version, devices answer for the figures of the study, where there is one with an ε: `study.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quorank import __version__
from quorank.documents import ANYTHING, parse_json, read_json
from quorank.errors import BadInput, require
from quorank.federation import wire
from quorank.federation.leaving import receipt_of
from quorank.federation.member_key import task_content
from quorank.federation.publication import Kind, Publication
from quorank.federation.replies import ReplyLimits
from quorank.files import write_whole
from quorank.process import interruptible
from quorank.reports.live.event_log import EventLog
from quorank.reports.live.status import RoundFigures, State, Status, Versions, with_round
from quorank.reports.live.status_sources import tuning_status, version_figures
from quorank.service.holder import FAST, LONGEST_NEXT, SLOW, next_seconds
from quorank.service.home import SETTINGS, STATUS, TERMS, Home, Settings
from quorank.service.intake.intake import LIMITS
from quorank.service.store.sql_store import Finished, HolderLost, RepliesCame, SqlStore
from quorank.tuning.coordinator import TuningState
from quorank.tuning.field import HEAVIEST, FieldTuning, close_version, task_of
from quorank.tuning.models import Model, model_file_name, model_of, model_text
from quorank.tuning.studies.private_means import LEAST_CLIENTS, PrivateMeans

TUNING, WEIGHTS, VERSIONS, STUDY = "tuning.json", "weights.json", "versions", "study.json"
"""Files: what is tuned, the weights that devices have, all versions, and what the study found."""
CHECKPOINT = "tuning"
STATUS_SECONDS, DISK_SECONDS = 1.0, 5.0
LONGEST_RELEASE = 1e9
"""L2 norm of an update: beyond what any score's slopes are."""


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
        file = self.path / TUNING
        try:
            return FieldTuning.of(read_json(file, advice="; restore it from a copy"))
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
            raise BadInput("file.damaged", "damaged; restore it from a copy", f"{file}") from None


def settings_of(run: str, tuning: FieldTuning, **chosen: Any) -> Settings:
    """A service's settings, for a tuning."""
    return Settings(run, len(tuning.heuristic.weights), kind="tuning", **chosen)


class TuningService:
    """One folder's tuning, held by this process."""

    def __init__(
        self,
        home: TuningHome,
        store: SqlStore,
        epoch: int,
        log: EventLog,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        soonest: float = 1.0,  # seconds after which devices ask again, at least
    ) -> None:
        self.home, self.store, self.epoch, self.log, self.soonest = home, store, epoch, log, soonest
        self.tuning, self.run_name, self._terms = home.tuning, home.settings.run, home.tuning.terms(home.settings.run)
        self._sleep, self._clock, self._began, self._opened = sleep, clock, clock(), clock()
        self.state = self._restored()
        self.before: dict[str, float] | None = None  # the weights of the version before
        self.replies: dict[int, wire.Reply] = {}  # of the open version, by member
        self._gathered: TuningState | None = None  # the state with them received, until another comes
        self.refused: dict[str, int] = {}
        self._taken, self._heard, self._room, self._came = 0, 0, 0, 0  # reply, replies, places, bytes
        self._written = float("-inf")
        self._history: tuple[RoundFigures, ...] = ()
        self._arms: dict[str, int] = {}
        self._gone = {member for member, _, _ in store.leavers()}

    @property
    def learned(self) -> bool:
        """Whether all versions are made."""
        return self.state.version >= self.tuning.iterations

    @property
    def done(self) -> bool:
        """Whether nothing is left to ask."""
        return self.learned and (self.tuning.answers == 0 or self.store.document(STUDY) is not None)

    def _restored(self) -> TuningState:
        content = self.store.document(CHECKPOINT)
        if content is None:
            return self.tuning.coordinator.start()
        model = model_of(parse_json(content, ANYTHING, CHECKPOINT), CHECKPOINT, self.tuning.heuristic)
        return self.tuning.coordinator.resume(model)

    # ------------------------------------------------------------ versions

    def play(self, stop: Callable[[], bool]) -> bool:
        """Carry on until all is done or `stop` says so; whether it is done."""
        pause = FAST
        self._hand_out()
        while not self.done and not stop():
            try:
                busy = self.look()
            except OSError as error:  # a full disk, a store that is away: nothing was lost
                self.log.write("checkpoint_failed", round=self.state.version, code=error.errno)
                self._sleep(DISK_SECONDS)
                continue
            pause = FAST if busy else min(SLOW, 1.5 * pause)
            if not busy:
                self._sleep(pause)
        if self.done:
            self.declare_over()
        self.write_status("done" if self.done else "stopped")
        return self.done

    def look(self) -> bool:
        """Take in what came, and close the version where that is enough; whether anything was done."""
        published = self._published()
        came = self._take()
        passed = max(0.0, self.store.now() - published.opened)
        closed = self._close_figures(passed) if self.learned else self._close(passed)
        if not closed and self._room and self._heard >= self._room:
            self._widen(published)
        self._let_go()
        if self._clock() - self._written > STATUS_SECONDS:
            self.write_status("running")
        return came or closed

    def _published(self) -> Publication:
        """The open version's task; it is published where it is not."""
        found = self.store.publication()
        if found is not None and (found.kind, found.run, found.round) == ("tuning", self.run_name, self.state.version):
            self._room = found.room
            return found
        made = self._publication(self.state)
        self._room = made.room
        return self.store.publish(self.epoch, made, self._limits(self.state))

    def _publication(self, state: TuningState, room: int | None = None) -> Publication:
        figures = state.version >= self.tuning.iterations
        content = task_of(state, figures=figures).encode(self.run_name)
        own = self.tuning.answers if figures else self.tuning.room
        wait = next_seconds(len(self.store.admitted()), self.home.settings.deadline, self.soonest)
        return self._signed("tuning", state.version, content, wait, own if room is None else room)

    def _signed(self, kind: Kind, version: int, content: bytes, wait: float, room: int = 0) -> Publication:
        signature = self.home.key.sign(task_content(kind, content))
        return Publication(kind, self.run_name, version, content, signature, wait, room=room)

    def _limits(self, state: TuningState) -> dict[str, bytes | None]:
        """What workers judge replies by before they confirm them."""
        limits = ReplyLimits(self.run_name, state.version, self._terms.parameters, HEAVIEST, LONGEST_RELEASE, 1)
        return {LIMITS: json.dumps(asdict(limits)).encode()}

    def _take(self) -> bool:
        batch = self.store.replies(self.run_name, self.state.version, self._taken)
        for stored in batch:
            if stored.member in self._gone:
                continue
            try:
                reply = wire.decode_reply(stored.content, self._terms.parameters)
                self._check(reply, stored.member)
                self.replies[stored.member] = reply
            except BadInput as error:
                self.refused[error.code] = self.refused.get(error.code, 0) + 1
                self.note("reply_refused", round=self.state.version, client=stored.member, reason=error.code)
        if batch:
            self._gathered = None
            self._taken, self._heard = batch[-1].id, self._heard + len(batch)
            self._came += sum(len(stored.content) for stored in batch)
        return bool(batch)

    def _check(self, reply: wire.Reply, member: int) -> None:
        """Refuse what must not count: of somebody else, of a control, or no answer of an honest device."""
        require(reply.client == member, "reply.other-client", "the reply names another client than its sender")
        shaped = reply.release.shape == (self._terms.parameters,) and reply.round == self.state.version
        require(shaped and reply.run == self.run_name, "reply.shape", "the reply is none to this version")
        if self.learned:
            answer = reply.statistics[: len(self._figures.study.metrics)]
            require(self._figures.allows(answer), "reply.no-answer", "no honest device answers so")
        else:
            learns = self._terms.study is None or self._terms.learns(self._key(member))
            require(learns, "reply.not-treated", "this device is in a control arm")
            fresh = replace(self.state, senders={self.state.version: set()})
            _, counted = close_version(self.tuning, fresh, {member: reply})
            require(counted, "reply.not-usable", "the update holds what no honest device sends")

    def _key(self, member: int) -> bytes:
        found = self.store.member(member)
        require(found is not None and found.key is not None, "request.unknown-member", "no such member has enrolled")
        assert found is not None and found.key is not None
        return found.key

    def _widen(self, published: Publication) -> None:
        """Take more replies in the place of those that cannot count; who has answered is not asked again."""
        missing = self._room - len(self.replies)
        if missing > 0:
            self._room = self._heard + missing
            self.store.publish(self.epoch, replace(published, room=self._room))

    def _close(self, passed: float) -> bool:
        if not self.replies or len(self.replies) < self.tuning.room:
            return False
        coordinator = self.tuning.coordinator
        if self._gathered is None:
            self._gathered, _ = close_version(self.tuning, self.state, self.replies)
        if not coordinator.closes(self._gathered, passed):
            return False
        after, model = coordinator.advance(self._gathered, 0.0)
        documents: dict[str, bytes | None] = {CHECKPOINT: model_text(model).encode(), **self._limits(after)}
        finished = Finished(self.run_name, self.state.version, self._taken)
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
        now, before = self._clock(), self.state
        seconds, self._opened = now - self._opened, now
        self._history = with_round(self._history, version_figures(model, seconds))
        changed = not np.array_equal(after.published, before.published)
        if changed and np.array_equal(after.published, after.reference):
            self.note("version_rolled_back", round=model.version, to=0)
        self.note("version_published", round=model.version, replies=model.updates, loss=model.loss, seconds=seconds)
        self.before = self.tuning.heuristic.named(before.published)
        self.state, self.replies, self.refused, self._taken, self._heard = after, {}, {}, 0, 0
        self._gathered = None
        self._hand_out(model)

    def _hand_out(self, model: Model | None = None) -> None:
        """Write the version, for whoever fetches it as a file; on a full disk the next one is."""
        if model is None:
            content = self.store.document(CHECKPOINT)
            if content is None:
                return
            model = model_of(parse_json(content, ANYTHING, CHECKPOINT), CHECKPOINT)
        with contextlib.suppress(OSError, BadInput):
            (self.home.path / VERSIONS).mkdir(mode=0o700, exist_ok=True)
            for file in (self.home.path / VERSIONS / model_file_name(model.version), self.home.path / WEIGHTS):
                write_whole(file, model_text(model))

    # ------------------------------------------------------------ the study's figures

    @cached_property
    def _figures(self) -> PrivateMeans:
        found = self._terms.figures
        assert found is not None
        return found

    def _close_figures(self, passed: float) -> bool:
        """End the collection of figures: enough answers, or the days are over."""
        if self.done or (len(self.replies) < self.tuning.answers and passed < 86_400.0 * self.tuning.days):
            return False
        study, arms = self._figures.study, dict[str, list[list[int]]]()
        for member, reply in sorted(self.replies.items()):
            answer = [int(value) for value in reply.statistics[: len(study.metrics)]]
            arms.setdefault(study.arm_of(self._key(member)), []).append(answer)
        few = {arm: len(arms.get(arm, ())) for arm in study.arms if len(arms.get(arm, ())) < LEAST_CLIENTS}
        if few:
            found: dict[str, Any] = {"study": study.name, "epsilon": self._figures.epsilon, "too_few": few}
        else:
            found = self._figures.analyse({arm: np.array(rows) for arm, rows in arms.items()}).as_dict()
        content = json.dumps(found, indent=2).encode() + b"\n"
        finished = Finished(self.run_name, self.state.version, self._taken)
        try:
            self.store.keep(self.epoch, {STUDY: content}, finished)
        except RepliesCame:
            return False
        with contextlib.suppress(OSError):
            write_whole(self.home.path / STUDY, content)
        return True

    # ------------------------------------------------------------ around it

    def declare_over(self) -> None:
        """Publish that all versions are made, with the weights that stay."""
        found = self.store.publication()
        if found is None or found.kind != "over":
            content = wire.encode_task(wire.Task(self.run_name, self.state.version, self.state.published))
            over = self._signed("over", self.state.version, content, LONGEST_NEXT)
            self.store.publish(self.epoch, over)

    def _let_go(self) -> None:
        """Let those go who have asked to leave: an update is in sums and versions, and kept nowhere else."""
        for member, request, _ in self.store.leavers(waiting=True):
            self.replies.pop(member, None)
            self._gathered = None
            self._gone.add(member)
            self.store.let_go(self.epoch, member, receipt_of(request))
            self.note("member_left", client=member, round=self.state.version)

    def attend(self) -> None:
        """What is done while all is over."""
        self._let_go()
        if self._clock() - self._written > STATUS_SECONDS:
            self.write_status("done")

    def note(self, event: str, **facts: object) -> None:
        """An event, for the log and for the page."""
        self.log.write(event, **facts)
        with contextlib.suppress(OSError, BadInput):
            self.store.note(event, **{name: value for name, value in facts.items() if value is not None})

    def write_status(self, state: State) -> None:
        """Write down how it stands, for page and status; a full disk is no reason to end."""
        self._written = self._clock()
        with contextlib.suppress(OSError):
            self.store.keep(self.epoch, {STATUS: self.status(state).text().encode()})

    def status(self, state: State) -> Status:
        """How the tuning stands."""
        now = self._clock()
        figures = self._terms.figures
        base = Status(
            "tuning", state, self.run_name, self.store.now(), process=os.getpid(), uptime_seconds=now - self._began,
            versions=Versions(__version__), rounds_planned=self.tuning.iterations, received_bytes=self._came,
            refused=self.refused, report_epsilon=None if figures is None else figures.epsilon, arms=self._members(),
        )  # fmt: skip
        status = tuning_status(
            base, self.tuning.coordinator, self.state, self._history, self.before, now - self._opened
        )
        return replace(status, replies=len(self.replies), needed=self._room or None)

    def _members(self) -> dict[str, int]:
        """How many devices are in each arm; counted again while there are few."""
        if self.tuning.study is None:
            return {}
        if sum(self._arms.values()) == len(self.store.admitted()):
            return self._arms
        keys, last = list[bytes](), -1
        while page := self.store.members(last):
            keys += [member.key for member in page if member.admitted and member.key is not None]
            last = page[-1].number
        arms = [self.tuning.study.arm_of(key) for key in keys]
        self._arms = {arm: arms.count(arm) for arm in self.tuning.study.arms}
        return self._arms


def hold(home: TuningHome, stop: Callable[[], bool], log: EventLog, *, stay: bool = False) -> bool:
    """Become the holder of a folder's tuning, and carry it on; whether it is done."""
    store = home.store()
    try:
        epoch = store.hold_in_turn(stop)
        if epoch is None:
            return False
        service = TuningService(home, store, epoch, log)
        service.note("holder_taken", epoch=epoch, round=service.state.version)
        done = service.play(stop)
        service.note("finished" if done else "stopped", round=service.state.version, rounds=home.tuning.iterations)
        while done and stay and not stop():
            service.attend()
            time.sleep(SLOW)
        return done
    finally:
        store.close()


def main() -> None:
    """Hold the tuning of the folder that is named."""
    before = os.umask(0o077)
    try:
        home = TuningHome.open(Path(sys.argv[1]))
        with interruptible() as asked:
            done = hold(home, asked, EventLog(sys.stderr), stay="--exit-when-done" not in sys.argv[2:])
    except HolderLost:
        sys.exit("another process holds the tuning")
    except BadInput as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        os.umask(before)
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()

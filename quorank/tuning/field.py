"""Tuning with real devices: the operator's file, the terms that devices agree to, and the messages of both sides.

A task (`federation.reply`) has the published weights, those on trial and the reference of a version. A reply has the
mean over a device's own searches under that version: slopes or signs at the weights on trial, the loss, and the share
of searches whose chosen item would have stood first under each of the three. A device replies once to a version, so
that a hundred searches of one person count as one; the searches themselves never leave the device and are not stored.

After the last version of a study with an ε, devices are asked once for their own means of the study's metrics, by
randomised response (`studies.analysis`).

`OpenVersion` is the service's side, with the coordinator of `quorank tune simulate`. Replies are summed in the order of
the devices' numbers, so the same replies give the same bits in any order of arrival.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import numpy as np

from quorank.errors import BadInput, require
from quorank.federation.reply import Reply, ReplyLimits, Task, decode_reply, decode_task, encode_reply, encode_task
from quorank.files.codec import Range, decode, encode
from quorank.files.documents import decode_document, read_json, read_toml
from quorank.kernels.arrays import Booleans, Doubles
from quorank.protocol.invitation import check_run_name
from quorank.tuning.coordinator import TuningCoordinator, TuningSettings, TuningState, Updates
from quorank.tuning.heuristics.constraints import violations
from quorank.tuning.heuristics.heuristic import Heuristic, HeuristicDeclaration
from quorank.tuning.loss import first_places, gradients
from quorank.tuning.models import Model
from quorank.tuning.rules import Count, Release
from quorank.tuning.searches import count_searches
from quorank.tuning.studies.analysis import LEAST_CLIENTS, PrivateMeans
from quorank.tuning.studies.study import Study

EXTRA_VALUES = 4  # values of an update besides one for each weight: the loss, and three shares of a first place
MOST_SEARCHES = 1_000_000  # maximum number of searches that one device may report for a version
TRIAL, REFERENCE, ASKED = "trial", "reference", "asked"
"""Names in a task of the weights on trial, the reference, and the flag that asks for the study's metrics."""


@dataclass(frozen=True)
class FieldTuning(TuningSettings):
    """Tuning with real devices, as an operator configures it.

    Args:
        heuristic: The heuristic to tune; its score is not used.
        study: Arms and metrics, if there are any.
        answers: Number of devices asked for the study's metrics after the last version.
        days: Time limit for these answers.
    """

    heuristic: HeuristicDeclaration
    study: Study | None = None
    answers: Annotated[int, Range(0, 100_000_000)] = 0
    days: Annotated[float, Range(above=0.0, most=3650.0)] = 14.0

    def __post_init__(self) -> None:
        private = self.study is not None and self.study.epsilon is not None
        sentence = "the study's metrics are collected by randomised response: give a [study] with an epsilon"
        require(self.answers == 0 or private, "study.no-epsilon", sentence, "answers")
        _ = self.loss_margin()

    @property
    def replies_needed(self) -> int:
        """Number of replies to a version; 0 where it is not known in advance."""
        return self.closing.updates if isinstance(self.closing, Count) else 0

    def terms(self, run: str) -> TuningTerms:
        """Return the terms for devices."""
        declared, margin = self.heuristic.declaration, self.loss_margin()
        return TuningTerms(run, self.iterations, declared, self.loss, margin, self.release, self.study)

    def table(self) -> dict[str, Any]:
        """Return the JSON value for the service's folder."""
        table: dict[str, Any] = encode(replace(self, heuristic=self.heuristic.declaration))
        return table

    @classmethod
    def read(cls, file: Path) -> FieldTuning:
        """Read a file with `table`."""
        advice = "; restore it from a copy"
        table = read_json(file, advice=advice)
        return cast("FieldTuning", decode_document(cls, cls.with_parts(table), f"{file}", advice=advice))


def read_field_tuning(path: Path) -> FieldTuning:
    """Read the operator's file; a heuristic `module:object` in it is imported, as on a command line."""
    from quorank.tuning.histories.scenarios import SCENARIOS, find_heuristic

    content = read_toml(path, code="tuning.not-toml")
    heuristic = find_heuristic(str(content.get("heuristic", "frecency")))
    if content.get("loss") == "published" and heuristic.name in SCENARIOS:
        content = {"margin": SCENARIOS[heuristic.name].margin} | content
    try:
        return decode(FieldTuning, FieldTuning.with_parts(content | {"heuristic": heuristic}))
    except BadInput as error:
        raise error.at(str(path)) from None


@dataclass(frozen=True)
class TuningTerms:
    """Terms that a device agrees to: the heuristic, its loss, the form of updates, and the study."""

    kind: ClassVar[str] = "tuning"

    run: str
    rounds: Annotated[int, Range(1)]  # versions
    heuristic: HeuristicDeclaration
    loss: str
    margin: float
    release: Release
    study: Study | None = None
    client: Annotated[int, Range(0)] = 0  # the device's number, once it has enrolled

    def __post_init__(self) -> None:
        check_run_name(self.run)

    @property
    def parameters(self) -> int:
        """Number of values of a reply."""
        return len(self.heuristic.weights) + EXTRA_VALUES

    def table(self) -> dict[str, Any]:
        """Return the JSON value for an invitation; arms are a list, since readers may lose the order of a table."""
        table: dict[str, Any] = encode(self)
        if self.study is not None:
            table["study"]["arms"] = [*self.study.arms.items()]
        return table | {"parameters": self.parameters}

    @classmethod
    def read(cls, table: object) -> TuningTerms:
        """Read the terms of an invitation or an enrolment.

        Raises:
            BadInput: `terms.other-kind` or `terms.malformed`.
        """
        other = isinstance(table, dict) and table.get("kind") != "tuning"
        require(not other, "terms.other-kind", "these are no terms of a tuning; use quorank.member.Client")
        values = dict(table) if isinstance(table, dict) else {}
        parameters = values.pop("parameters", None)
        try:
            terms = decode(cls, values, "terms")
            require(parameters == terms.parameters, "value.out-of-range", "does not fit the heuristic", "parameters")
            _ = terms.private_means
        except BadInput as error:
            sentence = f"the terms of this tuning cannot be read ({error}); ask for a new invitation"
            raise BadInput("terms.malformed", sentence) from None
        return terms

    @property
    def private_means(self) -> PrivateMeans | None:
        """Randomised response of the study's metrics; None without an ε."""
        if self.study is None or self.study.epsilon is None:
            return None
        return PrivateMeans(self.study, self.study.epsilon)

    def arm(self, key: bytes) -> str | None:
        """Return the arm of a device with this public key; None without a study."""
        return None if self.study is None else self.study.arm_of(key)

    def learns(self, key: bytes) -> bool:
        """Return whether a device tunes: all without a study, else the first arm; others keep the shipped weights."""
        return self.study is None or self.arm(key) == next(iter(self.study.arms))


# ------------------------------------------------------------ messages


class TuningTask(NamedTuple):
    """Version as devices receive it."""

    version: int
    published: Doubles
    trial: Doubles
    reference: Doubles
    asks_metrics: bool  # devices are asked for the study's metrics instead of updates

    def encode(self, run: str) -> bytes:
        """Return the task's bytes."""
        private = {TRIAL: self.trial, REFERENCE: self.reference, ASKED: np.array([float(self.asks_metrics)])}
        return encode_task(Task(run, self.version, self.published, private))


def read_task(content: bytes, run: str, heuristic: HeuristicDeclaration) -> TuningTask:
    """Read a task, and reject weights outside the heuristic's constraints, independent of their signature."""
    found = decode_task(content)
    require(found.run == run, "task.other-run", "the task belongs to another run; it is rejected")
    private, size = found.private, len(heuristic.weights)
    trial, reference, asked = (private.get(name, np.empty(0)) for name in (TRIAL, REFERENCE, ASKED))
    shaped = all(one.shape == (size,) for one in (found.theta, trial, reference)) and asked.shape == (1,)
    require(shaped and len(private) == 3, "task.malformed", "the task is no version of this heuristic; it is rejected")
    for weights in (found.theta, trial, reference):
        allowed = bool(np.isfinite(weights).all()) and not violations(heuristic, weights)
        require(allowed, "task.not-allowed", "the task has weights that the heuristic does not allow; it is rejected")
    return TuningTask(found.round, found.theta, trial, reference, bool(asked[0]))


@dataclass(frozen=True)
class DeviceSums:
    """Sums over a device's own searches under one version; nothing else of them is stored."""

    version: int
    searches: int
    slopes: tuple[float, ...]  # one for each weight
    rest: tuple[float, ...]  # loss, first places under reference, published weights and trial

    @classmethod
    def empty(cls, version: int, weights: int) -> DeviceSums:
        """Return the sums of no search."""
        return cls(version, 0, (0.0,) * weights, (0.0,) * EXTRA_VALUES)

    def add(self, heuristic: Heuristic, terms: TuningTerms, task: TuningTask, items: Any) -> DeviceSums:
        """Return the sums with some searches added; `items` are those of the heuristic's score, with the choices."""
        slopes, loss = gradients(heuristic, task.trial, items, terms.margin, terms.loss == "relative")
        compared = np.stack((task.reference, task.published, task.trial))
        rest = np.concatenate((loss[:, None], first_places(heuristic, compared, items)), axis=1)
        sums = (np.array(kept) + added.sum(axis=0) for kept, added in ((self.slopes, slopes), (self.rest, rest)))
        return DeviceSums(self.version, self.searches + count_searches(items), *(tuple(one.tolist()) for one in sums))

    def reply(self, terms: TuningTerms, coins: Booleans | None = None) -> bytes:
        """Return the reply to the version: the mean over the searches, in the form of the terms."""
        mean = np.array(self.slopes) / self.searches
        released = terms.release.apply(mean[None, :], coins)[0]
        values = np.concatenate((released, np.array(self.rest) / self.searches))
        return encode_reply(Reply(terms.run, self.version, terms.client, values, min(self.searches, MOST_SEARCHES)))


def study_reply(terms: TuningTerms, version: int, answer: tuple[int, ...]) -> bytes:
    """Return the reply of a device that is asked for the study's metrics."""
    steps = (*map(float, answer), 0.0, 0.0, 0.0)[:3]
    values = np.zeros(terms.parameters)
    reply = Reply(terms.run, version, terms.client, values, 1, statistics=(steps[0], steps[1], steps[2]))
    return encode_reply(reply)


def updates_of(tuning: FieldTuning, replies: Mapping[int, Reply]) -> Updates:
    """Return the updates of a version in the order of the devices' numbers, independent of their arrival."""
    size = len(tuning.heuristic.weights)
    rows = np.array([replies[member].release for member in sorted(replies)]).reshape(-1, size + EXTRA_VALUES)
    return Updates(rows[:, :size], rows[:, size], rows[:, size + 1 :])


LONGEST_RELEASE = 1e9  # upper bound on the L2 norm of an update, above the slopes of any score
DAY = 86_400.0


class OpenVersion:
    """State of a tuning from the model of its last version on.

    Args:
        tuning: The operator's settings.
        run: Name of the run.
        key_of: Returns the public key of a member by its number.
        model: Last version; None at the start.
    """

    def __init__(
        self, tuning: FieldTuning, run: str, key_of: Callable[[int], bytes], model: Model | None = None
    ) -> None:
        self.tuning, self.run, self.terms, self._key_of = tuning, run, tuning.terms(run), key_of
        self.coordinator = TuningCoordinator(tuning.heuristic, tuning)
        self.state = self.coordinator.start() if model is None else self.coordinator.resume(model)
        self.before: dict[str, float] | None = None  # the weights of the version before
        self.replies: dict[int, Reply] = {}  # by member
        self.refused: dict[str, int] = {}  # number of rejected replies, by code
        self._gathered: TuningState | None = None  # state with the replies added, until the next reply

    @property
    def version(self) -> int:
        """Number of published versions."""
        return self.state.version

    @property
    def learned(self) -> bool:
        """True once all versions are made; only the study's metrics may be missing."""
        return self.version >= self.tuning.iterations

    @cached_property
    def _private_means(self) -> PrivateMeans:
        found = self.terms.private_means
        assert found is not None
        return found

    # ------------------------------------------------------------ tasks

    def task(self, state: TuningState) -> bytes:
        """Return the task of a state."""
        asks = state.version >= self.tuning.iterations
        return TuningTask(state.version, state.published, state.weights, state.reference, asks).encode(self.run)

    def replies_needed(self, state: TuningState) -> int:
        """Return the number of replies to this version; 0 where it is not known in advance."""
        return self.tuning.answers if state.version >= self.tuning.iterations else self.tuning.replies_needed

    def limits(self, state: TuningState) -> ReplyLimits:
        """Return the checks of replies to this version before they are confirmed."""
        bounds = MOST_SEARCHES, LONGEST_RELEASE, 1
        steps = None if state.version >= self.tuning.iterations else 0
        return ReplyLimits(self.run, state.version, self.terms.parameters, *bounds, metric_steps=steps)

    # ------------------------------------------------------------ replies

    def receive(self, member: int, content: bytes) -> str:
        """Add a member's reply; return the code of its rejection, or an empty string."""
        try:
            reply = decode_reply(content, self.terms.parameters)
            self._check(reply, member)
        except BadInput as error:
            self.refused[error.code] = self.refused.get(error.code, 0) + 1
            return error.code
        self.replies[member], self._gathered = reply, None
        return ""

    def _check(self, reply: Reply, member: int) -> None:
        """Raise BadInput for a reply of another member, of a control arm, or with values that no honest device sends."""
        require(reply.client == member, "reply.other-client", "the reply names another client than its sender")
        shaped = reply.release.shape == (self.terms.parameters,) and reply.round == self.version
        require(shaped and reply.run == self.run, "reply.shape", "the reply is not to this version")
        metrics = len(self._private_means.study.metrics) if self.learned else 0
        unasked = any(reply.statistics[metrics:]) or (self.learned and reply.release.any())
        require(not unasked, "reply.figure", "the reply holds numbers that the terms do not name")
        if self.learned:
            allowed = self._private_means.allows(reply.statistics[:metrics])
            require(allowed, "reply.no-answer", "the answer has values that no honest device sends")
        else:
            learns = self.terms.study is None or self.terms.learns(self._key_of(member))
            require(learns, "reply.not-treated", "this device is in a control arm")
            usable = self.coordinator.usable(updates_of(self.tuning, {member: reply})).all()
            require(usable, "reply.not-usable", "the update has values that no honest device sends")

    def forget(self, member: int) -> None:
        """Remove the reply of a member that has left."""
        self.replies.pop(member, None)
        self._gathered = None

    def arms(self, keys: Iterable[bytes]) -> dict[str, int]:
        """Return the number of devices with these keys in each arm of the study."""
        study = self.tuning.study
        return {} if study is None else dict.fromkeys(study.arms, 0) | Counter(map(study.arm_of, keys))

    # ------------------------------------------------------------ results

    def next_version(self, seconds: float) -> tuple[TuningState, Model] | None:
        """Return the next state and version if the replies close this one after these seconds; else None."""
        if not self.replies or len(self.replies) < self.tuning.replies_needed:
            return None
        if self._gathered is None:
            self._gathered = self.coordinator.receive(self.state, updates_of(self.tuning, self.replies))
        closes = self.coordinator.closes(self._gathered, seconds)
        return self.coordinator.advance(self._gathered, 0.0) if closes else None

    def begin(self, after: TuningState) -> bool:
        """Begin the version of a state; return whether it rolled the weights back to the reference."""
        changed = not np.array_equal(after.published, self.state.published)
        self.before = self.tuning.heuristic.named(self.state.published)
        self.state, self.replies, self.refused, self._gathered = after, {}, {}, None
        return changed and np.array_equal(after.published, after.reference)

    def study(self, seconds: float) -> dict[str, Any] | None:
        """Return the result of the study once enough devices have answered or its time limit is over; else None."""
        if len(self.replies) < self.tuning.answers and seconds < DAY * self.tuning.days:
            return None
        study, arms = self._private_means.study, dict[str, list[list[int]]]()
        for member, reply in sorted(self.replies.items()):
            answer = [int(value) for value in reply.statistics[: len(study.metrics)]]
            arms.setdefault(study.arm_of(self._key_of(member)), []).append(answer)
        few = {arm: len(arms.get(arm, ())) for arm in study.arms if len(arms.get(arm, ())) < LEAST_CLIENTS}
        if few:
            return {"study": study.name, "epsilon": self._private_means.epsilon, "too_few": few}
        return asdict(self._private_means.analyse({arm: np.array(rows) for arm, rows in arms.items()}))

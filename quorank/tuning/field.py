"""Tuning with real devices: the operator's file, the terms that devices agree to, and the messages of both sides.

A task (`federation.reply`) has the published weights, those on trial and the reference of a version. A reply has the
mean over a device's own searches under that version: slopes or signs at the weights on trial, the loss, and the share
of searches whose chosen item would have stood first under each of the three. A device replies once to a version, so
that a hundred searches of one person count as one; the searches themselves never leave the device and are not stored.

After the last version of a study with an ε, devices are asked once for their own means of the study's metrics, by
randomised response (`studies.private_means`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.federation.reply import Reply, Task, decode_task, encode_reply, encode_task
from quorank.federation.server_optimisers import Rprop, Server
from quorank.files.codec import decode, encode
from quorank.files.documents import parse_toml, read_json
from quorank.kernels.arrays import Booleans, Doubles
from quorank.parts import Family
from quorank.tuning.closing import CLOSINGS, Closing, Count
from quorank.tuning.coordinator import OPTIMISER_DEFAULTS, OPTIMISERS, TuningCoordinator, TuningState, Updates
from quorank.tuning.guards import GUARDS, Guard, JudgedGuard
from quorank.tuning.heuristics.constraints import violations
from quorank.tuning.heuristics.heuristic import Heuristic, Order, Weight
from quorank.tuning.loss import first_places, gradients
from quorank.tuning.releases import RELEASES, GradientRelease, Release, SignRelease
from quorank.tuning.searches import count_searches
from quorank.tuning.studies.private_means import PrivateMeans
from quorank.tuning.studies.study import Study, study_of

EXTRA_VALUES = 4
"""Values of an update besides one for each weight: the loss, and three shares of a first place."""
MOST_SEARCHES = 1_000_000
"""Maximum number of searches that one device may report for a version."""
TRIAL, REFERENCE, ASKED = "trial", "reference", "asked"
"""Names in a task of the weights on trial, the reference, and the flag that asks for the study's metrics."""

_FAMILIES: dict[str, Family[Any]] = {
    "optimiser": OPTIMISERS, "closing": CLOSINGS, "release": RELEASES, "guard": GUARDS,
}  # fmt: skip
_RELEASES: tuple[Release, ...] = (
    GradientRelease(), SignRelease(1), SignRelease(2), SignRelease(1, "vote"), SignRelease(2, "vote"),
)  # fmt: skip
_KNOWN_RELEASES = {str(part): part for part in _RELEASES}
"""Releases that terms may name: no text from a service is parsed into a part."""


@dataclass(frozen=True)
class HeuristicDeclaration:
    """Name, weights and orders of a heuristic: everything that both sides must agree on, without the score."""

    name: str
    weights: tuple[Weight, ...]
    orders: tuple[Order, ...] = ()

    @classmethod
    def of(cls, heuristic: Heuristic) -> HeuristicDeclaration:
        """Return the declaration of a heuristic."""
        return cls(heuristic.name, heuristic.weights, heuristic.orders)

    def heuristic(self) -> Heuristic:
        """Return the heuristic without a score, which suffices to check and to move weights."""
        return Heuristic(self.name, self.weights, self.orders, _no_score)


def _no_score(weights: Doubles, items: Any) -> Doubles:
    raise BadInput("heuristic.no-score", "only devices score: the service knows a heuristic's weights alone")


@dataclass(frozen=True)
class StudyTerms:
    """Study as devices know it; arms are a list, since tables of other languages may lose their order."""

    name: str
    metrics: tuple[str, ...]
    epsilon: float | None
    arms: tuple[tuple[str, float], ...]
    largest: Mapping[str, float]

    @classmethod
    def of(cls, study: Study) -> StudyTerms:
        """Return the terms of a study."""
        return cls(study.name, study.metrics, study.epsilon, tuple(study.arms.items()), dict(study.largest))

    def study(self) -> Study:
        """Return the study, with defaults for what only its planning needs."""
        return Study(
            self.name, dict(self.arms), self.metrics, self.metrics[0], epsilon=self.epsilon, largest=self.largest
        )


@dataclass(frozen=True)
class FieldTuning:
    """Tuning with real devices, as an operator configures it.

    Args:
        heuristic: The heuristic to tune.
        iterations: Number of versions.
        loss: `relative` to the standard deviation of the scores, or as `published`.
        margin: δ of the relative loss, or Δ of the published one in points.
        optimiser: Server optimiser.
        closing: Rule that closes an iteration.
        release: Form of a device's update.
        sure: Standard errors from 0 at which a slope moves its weight; see `TuningCoordinator.threshold`.
        keep: Share of its sums that a weight which did not move keeps.
        guard: Rule by which versions are published.
        study: Arms and metrics, if there are any.
        answers: Number of devices asked for the study's metrics after the last version.
        days: Time limit for these answers.
    """

    heuristic: Heuristic
    iterations: int = 48
    loss: Literal["relative", "published"] = "relative"
    margin: float = 0.2
    optimiser: Server = field(default_factory=Rprop)
    closing: Closing = field(default_factory=Count)
    release: Release = field(default_factory=GradientRelease)
    sure: float | None = None
    keep: float = 0.9
    guard: Guard = field(default_factory=JudgedGuard)
    study: Study | None = None
    answers: int = 0
    days: float = 14.0

    def __post_init__(self) -> None:
        known = self.loss in ("relative", "published")
        require(known, "value.not-a-choice", f"must be relative or published, got {self.loss!r}", "loss")
        require_range("iterations", self.iterations, least=1, most=1_000_000)
        require_range("margin", self.margin, least=0.0)
        require_range("answers", self.answers, least=0, most=100_000_000)
        require_range("days", self.days, above=0.0, most=3650.0)
        private = self.study is not None and self.study.epsilon is not None
        sentence = "the study's metrics are collected by randomised response: give a [study] with an epsilon"
        require(self.answers == 0 or private, "study.no-epsilon", sentence, "answers")
        _ = self.coordinator

    @property
    def coordinator(self) -> TuningCoordinator:
        """The coordinator of these parts."""
        return TuningCoordinator(
            self.heuristic, self.optimiser, self.closing, self.release, self.sure, self.keep, self.guard
        )

    @property
    def replies_needed(self) -> int:
        """Number of replies to a version; 0 where it is not known in advance."""
        return self.closing.missing_updates(self.coordinator.start().estimate) or 0

    def terms(self, run: str) -> TuningTerms:
        """Return the terms for devices."""
        study = None if self.study is None else StudyTerms.of(self.study)
        declaration = HeuristicDeclaration.of(self.heuristic)
        return TuningTerms(run, self.iterations, declaration, self.loss, self.margin, str(self.release), study)

    def table(self) -> dict[str, Any]:
        """Return the JSON value for the service's folder."""
        table = {one.name: encode(getattr(self, one.name)) for one in fields(self) if one.name != "heuristic"}
        return table | {"heuristic": encode(HeuristicDeclaration.of(self.heuristic))}

    @classmethod
    def of(cls, table: Mapping[str, Any], heuristic: Heuristic, where: str) -> FieldTuning:
        """Return the tuning of a heuristic from the other keys of a table."""
        values = dict(table) | {"heuristic": heuristic}
        for name, family in _FAMILIES.items():
            if name in values:
                spec = values[name]
                default = OPTIMISER_DEFAULTS.get(spec) if name == "optimiser" and isinstance(spec, str) else None
                values[name] = default or family.read(spec, f"{where}: {name}")
        if values.get("study") is not None:
            require(isinstance(values["study"], dict), "value.wrong-type", "must be a table", f"{where}: study")
            values["study"] = study_of(values["study"], f"{where}: study")
        try:
            return decode(cls, values)
        except BadInput as error:
            raise error.at(where) from None

    @classmethod
    def read(cls, file: Path) -> FieldTuning:
        """Read a file with `table`."""
        advice = "; restore it from a copy"
        table: dict[str, Any] = read_json(file, advice=advice)
        try:
            declaration: HeuristicDeclaration = decode(HeuristicDeclaration, table.pop("heuristic", None), "heuristic")
            return cls.of(table, declaration.heuristic(), "")
        except BadInput as error:
            raise BadInput("file.damaged", f"damaged: {error}{advice}", f"{file}") from None


def read_field_tuning(path: Path) -> FieldTuning:
    """Read the operator's file; a heuristic `module:object` in it is imported, as on a command line."""
    from quorank.tuning.histories.scenarios import SCENARIOS, find_heuristic

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("file.unreadable", f"cannot be read ({error})", str(path)) from None
    content = parse_toml(text, str(path), "tuning.not-toml")
    heuristic = find_heuristic(str(content.pop("heuristic", "frecency")))
    if content.get("loss") == "published" and "margin" not in content:
        scenario = SCENARIOS.get(heuristic.name)
        if scenario is None:
            raise BadInput("tuning.no-margin", "the published loss needs a margin, in points", str(path))
        content["margin"] = scenario.margin
    return FieldTuning.of(content, heuristic, str(path))


@dataclass(frozen=True)
class TuningTerms:
    """Terms that a device agrees to: the heuristic, its loss, the form of updates, and the study."""

    kind: ClassVar[str] = "tuning"

    run: str
    rounds: int  # versions
    heuristic: HeuristicDeclaration
    loss: str
    margin: float
    release: str
    study: StudyTerms | None = None
    client: int = 0  # the device's number, once it has enrolled

    def __post_init__(self) -> None:
        require_range("rounds", self.rounds, least=1)
        require_range("client", self.client, least=0)
        _ = self.declared, self.part, self.private_means

    @property
    def parameters(self) -> int:
        """Number of values of a reply."""
        return len(self.heuristic.weights) + EXTRA_VALUES

    def table(self) -> dict[str, Any]:
        """Return the JSON value for an invitation."""
        table: dict[str, Any] = encode(self)
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
        except BadInput as error:
            sentence = f"the terms of this tuning cannot be read ({error}); ask for a new invitation"
            raise BadInput("terms.malformed", sentence) from None
        return terms

    @property
    def declared(self) -> Heuristic:
        """The heuristic, without its score."""
        return self.heuristic.heuristic()

    @property
    def part(self) -> Release:
        """Release of an update."""
        sentence = "the terms ask for a release that this version of Quorank does not have; install a newer one"
        require(self.release in _KNOWN_RELEASES, "terms.malformed", sentence)
        return _KNOWN_RELEASES[self.release]

    @property
    def private_means(self) -> PrivateMeans | None:
        """Randomised response of the study's metrics; None without an ε."""
        if self.study is None or self.study.epsilon is None:
            return None
        return PrivateMeans(self.study.study(), self.study.epsilon)

    def arm(self, key: bytes) -> str | None:
        """Return the arm of a device with this public key; None without a study."""
        return None if self.study is None else self.study.study().arm_of(key)

    def learns(self, key: bytes) -> bool:
        """Return whether a device tunes: all without a study, else the first arm; others keep the shipped weights."""
        return self.study is None or self.arm(key) == self.study.arms[0][0]


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


def task_of(state: TuningState, *, asks_metrics: bool = False) -> TuningTask:
    """Return the task of a state."""
    return TuningTask(state.version, state.published, state.weights, state.reference, asks_metrics)


def read_task(content: bytes, run: str, heuristic: Heuristic) -> TuningTask:
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
        released = terms.part.apply(mean[None, :], coins)[0]
        values = np.concatenate((released, np.array(self.rest) / self.searches))
        return encode_reply(Reply(terms.run, self.version, terms.client, values, min(self.searches, MOST_SEARCHES)))


class MetricSums(dict[str, tuple[int, float]]):
    """Number and sum of a device's own measurements of each metric of a study."""

    def add(self, metrics: Sequence[str], values: Mapping[str, float]) -> None:
        """Add the metrics of one search; a missing or a negative one is rejected."""
        for name in metrics:
            require(name in values, "study.no-metric", f"the study also asks for {name}", name)
            require_range(name, values[name], least=0.0)
        for name in metrics:
            count, total = self.get(name, (0, 0.0))
            self[name] = (count + 1, total + float(values[name]))

    def means(self, metrics: Sequence[str]) -> dict[str, float] | None:
        """Return the mean of each metric; None if one was never measured."""
        if any(name not in self for name in metrics):
            return None
        return {name: self[name][1] / self[name][0] for name in metrics}


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

"""Tuning in the field: the operator's file, the terms that devices agree to, and the messages between both sides.

A task (`federation.reply`) holds the weights that lists are ordered by, those on trial and the reference, of a version. A
reply holds the mean over a device's own searches under that version: slopes or signs of the weights on trial, the loss, and
how often the chosen item would have stood first under each of the three. One device replies once to a version, so that
somebody who searches a hundred times counts as one; the searches themselves never leave, nor are they kept.

After the last version of a study with an ε, devices are asked once for their own means of the study's metrics, by
randomised response (`studies.private_means`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.federation.reply import Reply, Task, decode_task, encode_reply, encode_task
from quorank.federation.server_optimisers import Rprop, Server
from quorank.files.documents import (
    ANYTHING,
    Each,
    Items,
    Maybe,
    Number,
    Table,
    Text,
    Whole,
    check_shape,
    parse_json,
    parse_toml,
    read_json,
)
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

BESIDE = 4
"""Numbers of an update beside one for each weight: its loss, and three shares of a first place."""
HEAVIEST = 1_000_000
"""Searches that one device may claim for a version."""
TRIAL, REFERENCE, ASKED = "trial", "reference", "asked"
"""Names under which a task holds the weights on trial, the reference, and whether figures are asked for."""


_FAMILIES: dict[str, Family[Any]] = {
    "optimiser": OPTIMISERS, "closing": CLOSINGS, "release": RELEASES, "guard": GUARDS,
}  # fmt: skip


_RELEASES: tuple[Release, ...] = (
    GradientRelease(), SignRelease(1), SignRelease(2), SignRelease(1, "vote"), SignRelease(2, "vote"),
)  # fmt: skip
_KNOWN = {str(part): part for part in _RELEASES}
"""What a device can be asked to release, by how it is written: nothing that comes from a service is parsed into a part."""


def declaration(heuristic: Heuristic) -> dict[str, Any]:
    """Return all that two sides must agree on of a heuristic: everything but its score."""
    orders = [[order.greater, order.smaller, order.by] for order in heuristic.orders]
    return {"name": heuristic.name, "weights": [asdict(weight) for weight in heuristic.weights], "orders": orders}


def declared(table: Mapping[str, Any]) -> Heuristic:
    """Return the heuristic of a declaration, without a score: enough to learn and to check weights."""
    weights = tuple(Weight(**weight) for weight in table["weights"])
    return Heuristic(table["name"], weights, tuple(Order(*order) for order in table["orders"]), _no_score)


def _no_score(weights: Doubles, items: Any) -> Doubles:
    raise BadInput("heuristic.no-score", "only devices score: the service knows a heuristic's weights alone")


@dataclass(frozen=True)
class FieldTuning:
    """A tuning with real devices, as the operator's file says."""

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
    answers: int = 0  # devices whose figures are collected after the last version; 0: none
    days: float = 14.0  # for which answers are waited for, at most

    def __post_init__(self) -> None:
        known = self.loss in ("relative", "published")
        require(known, "value.not-a-choice", f"must be relative or published, got {self.loss!r}", "loss")
        require_range("iterations", self.iterations, least=1, most=1_000_000)
        require_range("margin", self.margin, least=0.0)
        require_range("answers", self.answers, least=0, most=100_000_000)
        require_range("days", self.days, above=0.0, most=3650.0)
        private = self.study is not None and self.study.epsilon is not None
        sentence = "figures are collected by randomised response: give a [study] with an epsilon, or answers = 0"
        require(self.answers == 0 or private, "study.no-epsilon", sentence, "answers")
        _ = self.coordinator

    @property
    def coordinator(self) -> TuningCoordinator:
        """The machine that learns: one update of a device and version counts."""
        return TuningCoordinator(
            self.heuristic, self.optimiser, self.closing, self.release, self.sure, self.keep, self.guard
        )

    @property
    def room(self) -> int:
        """Replies that a version takes; 0 where their number is not known before."""
        return self.closing.missing_updates(self.coordinator.start().estimate) or 0

    def terms(self, run: str) -> TuningTerms:
        """Return what devices agree to."""
        study = None
        if self.study is not None:
            named = ("name", "metrics", "epsilon")
            study = {name: getattr(self.study, name) for name in named}
            arms = [[arm, share] for arm, share in self.study.arms.items()]  # in their order, which tables may lose
            study |= {"arms": arms, "largest": dict(self.study.largest), "metrics": list(self.study.metrics)}
        parts = self.loss, self.margin, str(self.release)
        return TuningTerms(run, self.iterations, declaration(self.heuristic), *parts, study)

    def table(self) -> dict[str, Any]:
        """Return it as the service's folder keeps it."""
        plain = {
            name: getattr(self, name) for name in ("iterations", "loss", "margin", "sure", "keep", "answers", "days")
        }
        parts = {name: str(getattr(self, name)) for name in ("optimiser", "closing", "release", "guard")}
        return plain | parts | {"heuristic": declaration(self.heuristic), "study": self.terms("").study}

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> FieldTuning:
        """Read back `table`."""
        found = dict(table)
        read: dict[str, Any] = {name: family.parse(found.pop(name)) for name, family in _FAMILIES.items()}
        study, heuristic = found.pop("study"), declared(found.pop("heuristic"))
        return cls(heuristic, **found, **read, study=None if study is None else _study(study))

    @classmethod
    def read(cls, file: Path) -> FieldTuning:
        """Read back a file with such a table."""
        try:
            return cls.of(read_json(file, advice="; restore it from a copy"))
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
            raise BadInput("file.damaged", "damaged; restore it from a copy", f"{file}") from None


def read_field_tuning(path: Path) -> FieldTuning:
    """Read the operator's file; a heuristic `module:object` in it is imported, as on a command line."""
    from quorank.tuning.histories.scenarios import SCENARIOS, Scenario, find_heuristic

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("file.unreadable", f"cannot be read ({error})", str(path)) from None
    content = parse_toml(text, str(path), "tuning.not-toml")
    heuristic, read = find_heuristic(str(content.pop("heuristic", "frecency"))), dict[str, Any]()
    for name, family in _FAMILIES.items():
        if name in content:
            spec = content.pop(name)
            known = OPTIMISER_DEFAULTS.get(spec) if name == "optimiser" and isinstance(spec, str) else None
            read[name] = known or family.read(spec, f"{path}: {name}")
    if "study" in content:
        study = content.pop("study")
        require(isinstance(study, dict), "value.wrong-type", "must be a table", f"{path}: study")
        read["study"] = study_of(study, f"{path}: study")
    check_shape(content, _PLAIN, str(path), code="tuning.malformed")
    plain: dict[str, Any] = content
    if plain.get("loss") == "published" and "margin" not in plain:
        scenario: Scenario | None = SCENARIOS.get(heuristic.name)
        require(scenario is not None, "tuning.no-margin", "the published loss needs a margin, in points", str(path))
        assert scenario is not None
        plain["margin"] = scenario.margin
    try:
        return FieldTuning(heuristic, **plain, **read)
    except BadInput as error:
        raise error.at(str(path)) from None


_PLAIN = Table(
    {},
    {
        "iterations": Whole(), "loss": Text(), "margin": Number(), "sure": Number(), "keep": Number(),
        "answers": Whole(), "days": Number(),
    },
    closed=True,
)  # fmt: skip
_WEIGHT = Table(
    {"name": Text(), "shipped": Number(), "lower": Number(), "upper": Number(), "step": Number(), "share": Number()},
    {"reach": Maybe(Number())},
)
_TERMS = Table(
    {
        "kind": Text(),
        "run": Text(),
        "rounds": Whole(1),
        "heuristic": Table({"name": Text(), "weights": Items(_WEIGHT), "orders": Items(ANYTHING)}),
        "loss": Text(),
        "margin": Number(),
        "release": Text(),
        "parameters": Whole(1, 1_000_000),
        "study": Maybe(
            Table(
                {"name": Text(), "metrics": Items(Text()), "epsilon": Maybe(Number()), "arms": Items(Items(ANYTHING)),
                 "largest": Each(Number())}
            )
        ),
        "client": Whole(0),
    }
)  # fmt: skip


_SUMS = Table({"version": Whole(0), "searches": Whole(0), "slopes": Items(Number()), "rest": Items(Number())})


def _study(table: Mapping[str, Any]) -> Study:
    return study_of(dict(table) | {"arms": dict(table["arms"]), "metric": table["metrics"][0]}, "study")


@dataclass(frozen=True)
class TuningTerms:
    """What a device agrees to: which heuristic is tuned, by which loss, what leaves, and in which study it is."""

    run: str
    rounds: int  # versions
    heuristic: Mapping[str, Any]  # its declaration
    loss: str
    margin: float
    release: str
    study: Mapping[str, Any] | None = None
    client: int = 0  # the device's number, once it has enrolled

    @property
    def parameters(self) -> int:
        """Numbers of a reply."""
        return len(self.heuristic["weights"]) + BESIDE

    def table(self) -> dict[str, Any]:
        """Return the terms as an invitation holds them."""
        return {"kind": "tuning", **asdict(self), "parameters": self.parameters}

    @classmethod
    def read(cls, table: object) -> TuningTerms:
        """Read terms that came with an invitation or an enrolment; anything else is refused."""
        other = isinstance(table, dict) and table.get("kind") != "tuning"
        require(not other, "terms.other-kind", "these are no terms of a tuning; use quorank.member.Client")
        check_shape(table, _TERMS, "terms", code="terms.malformed")
        assert isinstance(table, dict)
        try:
            parameters = table["parameters"]
            terms = cls(**{name: value for name, value in table.items() if name not in ("kind", "parameters")})
            sound = parameters == len(terms.declared.weights) + BESIDE and math.isfinite(terms.margin)
            _ = terms.part, terms.figures
        except (TypeError, ValueError, BadInput):
            sound = False
        require(sound, "terms.malformed", "the terms of this tuning cannot be read; ask for a new invitation")
        return terms

    @property
    def declared(self) -> Heuristic:
        """The heuristic, without its score."""
        return declared(self.heuristic)

    @property
    def part(self) -> Release:
        """How an update is released."""
        sentence = "the terms ask for what this Quorank does not release; install the newer one"
        require(self.release in _KNOWN, "terms.malformed", sentence)
        return _KNOWN[self.release]

    @property
    def figures(self) -> PrivateMeans | None:
        """How the study's figures are answered; None where none are asked for."""
        if self.study is None or self.study["epsilon"] is None:
            return None
        return PrivateMeans(_study(self.study), float(self.study["epsilon"]))

    def arm(self, key: bytes) -> str | None:
        """Return the arm of a device with this public key; None without a study."""
        return None if self.study is None else _study(self.study).arm_of(key)

    def learns(self, key: bytes) -> bool:
        """Whether a device tunes: all do, or those in the study's first arm; the others keep the shipped weights."""
        return self.study is None or self.arm(key) == self.study["arms"][0][0]


# ------------------------------------------------------------ messages


class TuningTask(NamedTuple):
    """A version as devices get it."""

    version: int
    published: Doubles
    trial: Doubles
    reference: Doubles
    figures: bool  # devices are asked for the study's figures, not for updates

    def encode(self, run: str) -> bytes:
        """Return it as bytes."""
        private = {TRIAL: self.trial, REFERENCE: self.reference, ASKED: np.array([float(self.figures)])}
        return encode_task(Task(run, self.version, self.published, private))


def task_of(state: TuningState, *, figures: bool = False) -> TuningTask:
    """Return the task of a state."""
    return TuningTask(state.version, state.published, state.weights, state.reference, figures)


def read_task(content: bytes, run: str, heuristic: Heuristic) -> TuningTask:
    """Return the version that a task is; weights that the heuristic does not allow are refused, whoever signed them."""
    found = decode_task(content)
    require(found.run == run, "task.other-run", "the task belongs to another run; it is refused")
    private, size = found.private, len(heuristic.weights)
    trial, reference, asked = (private.get(name, np.empty(0)) for name in (TRIAL, REFERENCE, ASKED))
    shaped = all(one.shape == (size,) for one in (found.theta, trial, reference)) and asked.shape == (1,)
    require(shaped and len(private) == 3, "task.malformed", "the task is no version of this heuristic; it is refused")
    for weights in (found.theta, trial, reference):
        allowed = bool(np.isfinite(weights).all()) and not violations(heuristic, weights)
        require(allowed, "task.not-allowed", "the task holds weights that the heuristic does not allow; it is refused")
    return TuningTask(found.round, found.theta, trial, reference, bool(asked[0]))


class DeviceSums(NamedTuple):
    """Sums over a device's own searches under one version: all that is kept of them."""

    version: int
    searches: int
    slopes: Doubles  # (weights,)
    rest: Doubles  # (4,): loss, first places under reference, published weights and trial

    @classmethod
    def empty(cls, version: int, weights: int) -> DeviceSums:
        """Return the sums of no search."""
        return cls(version, 0, np.zeros(weights), np.zeros(BESIDE))

    def to_bytes(self) -> bytes:
        """Write the sums for the device's private file."""
        table = {"version": self.version, "searches": self.searches}
        return json.dumps(table | {"slopes": self.slopes.tolist(), "rest": self.rest.tolist()}).encode()

    @classmethod
    def from_bytes(cls, raw: bytes, where: str) -> DeviceSums:
        """Read what `to_bytes` wrote."""
        found = parse_json(raw, _SUMS, where)
        return cls(found["version"], found["searches"], np.array(found["slopes"]), np.array(found["rest"]))

    def add(self, heuristic: Heuristic, terms: TuningTerms, task: TuningTask, items: Any) -> DeviceSums:
        """Return the sums with these searches added; `items` as the heuristic's score takes them, with what was chosen."""
        slopes, loss = gradients(heuristic, task.trial, items, terms.margin, terms.loss == "relative")
        compared = np.stack((task.reference, task.published, task.trial))
        rest = np.concatenate((loss[:, None], first_places(heuristic, compared, items)), axis=1)
        count = self.searches + count_searches(items)
        return DeviceSums(self.version, count, self.slopes + slopes.sum(axis=0), self.rest + rest.sum(axis=0))

    def reply(self, terms: TuningTerms, coins: Booleans | None = None) -> bytes:
        """Return the reply to the version: the mean over the searches, released as the terms say."""
        mean = self.slopes / self.searches
        released = terms.part.apply(mean[None, :], coins)[0]
        numbers = np.concatenate((released, self.rest / self.searches))
        count = min(self.searches, HEAVIEST)
        return encode_reply(Reply(terms.run, self.version, terms.client, numbers, count))


class MetricSums(dict[str, tuple[int, float]]):
    """By metric of a study: how many of a device's own searches were measured, and the sum."""

    def add(self, study: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Add the metrics of one search; a missing or a negative one is refused."""
        for name in study["metrics"]:
            require(name in metrics, "study.no-metric", f"the study also asks for {name}", name)
            require_range(name, metrics[name], least=0.0)
        for name in study["metrics"]:
            count, total = self.get(name, (0, 0.0))
            self[name] = (count + 1, total + float(metrics[name]))

    def means(self, metrics: Sequence[str]) -> dict[str, float] | None:
        """Return the mean of each metric; None where one was never measured."""
        if any(name not in self for name in metrics):
            return None
        return {name: self[name][1] / self[name][0] for name in metrics}

    def to_bytes(self) -> bytes:
        """Write the sums for the device's private file."""
        return json.dumps(self).encode()

    @classmethod
    def from_bytes(cls, raw: bytes, where: str) -> MetricSums:
        """Read what `to_bytes` wrote."""
        found = parse_json(raw, Each(Items(Number(), 2)), where)
        return cls({name: (int(count), float(total)) for name, (count, total) in found.items()})


def figures_reply(terms: TuningTerms, version: int, answer: tuple[int, ...]) -> bytes:
    """Return the reply of a device that is asked for the study's figures."""
    numbers = np.zeros(terms.parameters)
    steps = (*map(float, answer), 0.0, 0.0, 0.0)[:3]
    reply = Reply(terms.run, version, terms.client, numbers, 1, statistics=(steps[0], steps[1], steps[2]))
    return encode_reply(reply)


def updates_of(tuning: FieldTuning, replies: Mapping[int, Reply]) -> Updates:
    """Return the updates of a version in the order of the devices' numbers, independent of their arrival."""
    size = len(tuning.heuristic.weights)
    rows = np.array([replies[member].release for member in sorted(replies)]).reshape(-1, size + BESIDE)
    return Updates(rows[:, :size], rows[:, size], rows[:, size + 1 :])

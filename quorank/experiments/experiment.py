"""An experiment: a federation written down. A file holds only what differs from the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from quorank.attacks import ATTACKS
from quorank.data.partition import PARTITIONS, Even, Partition
from quorank.data.source import DataSource
from quorank.errors import BadInput, require, require_range
from quorank.experiments.experiment_file import ExperimentFile
from quorank.federation import (
    AGGREGATIONS,
    PARTICIPATIONS,
    PERSONALISATIONS,
    SERVERS,
    Adam,
    Add,
    Federation,
    Full,
    Mean,
    Shared,
)
from quorank.learning import LEARNERS, PDGD
from quorank.parts import read_fields, suggest, to_table
from quorank.privacy import PRIVACIES, NoPrivacy
from quorank.rankers import RANKERS, Linear, Ranker
from quorank.users import CLICK_MODELS, Cascade, ClickModel

MOST_ROUNDS = 10_000_000  # the figures of every round are kept in memory
KEEP_EVERY, KEEP_CLIENTS, KEEP_BYTES = 10, 100, 1 << 26
"""By default updates are kept every so many rounds, by so many clients at most, in so many bytes altogether."""
FEDERATION_KEYS = (
    "clients",
    "interactions",
    "rounds",
    "participation",
    "aggregation",
    "server",
    "personal",
    "keep_every",
)
SECTIONS = ("data", "partition", "ranker", "users", "learner", "federation", "attack", "privacy", "evaluation")


@dataclass(frozen=True)
class EvaluationPlan:
    """When and how the ranker is judged on the test split."""

    kind: ClassVar[str] = "evaluation"

    every: int = 1  # rounds between evaluations; the last round is always evaluated
    no_relevant: Literal["skip", "zero"] = "skip"  # what a query without relevant documents counts
    k: int = 10  # documents shown and judged

    def __post_init__(self) -> None:
        require_range("every", self.every, least=1)
        require_range("k", self.k, least=1, most=100)


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run's result."""

    data: DataSource = field(default_factory=DataSource)
    ranker: Ranker = field(default_factory=Linear)
    users: ClickModel = field(default_factory=Cascade)
    federation: Federation = field(default_factory=Federation)
    rounds: int = 1000
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    seed: int = 1
    partition: Partition = field(default_factory=Even)
    keep_every: int = 0  # Δt: rounds between the updates that clients keep for unlearning; 0 keeps none

    def __post_init__(self) -> None:
        require_range("federation.rounds", self.rounds, least=1, most=MOST_ROUNDS)
        require_range("federation.keep_every", self.keep_every, least=0, below=2**31)
        require(
            0 <= self.seed < 2**64,
            "value.out-of-range",
            f"must be a whole number from 0 to 2^64 − 1, got {self.seed}",
            "seed",
        )
        self.federation.privacy.check_values(self.evaluation.k + 1)
        require(
            not (self.ranker.starts_flat and self.federation.learner.needs_gradient),
            "ranker.no-gradient",
            'start = "zero" has no gradient to follow; use start = "scaled" with pdgd',
            "ranker",
        )

    def tables(self) -> dict[str, Any]:
        """The complete experiment file of this experiment."""
        federation = self.federation
        attack = {} if federation.attack is None else {"attack": to_table(federation.attack)}
        return {
            "seed": self.seed,
            "data": _without_kind(to_table(self.data)),
            "partition": to_table(self.partition),
            "ranker": to_table(self.ranker),
            "users": to_table(self.users),
            "learner": to_table(federation.learner),
            "federation": {
                "clients": federation.clients,
                "interactions": federation.interactions,
                "rounds": self.rounds,
                "participation": to_table(federation.participation),
                "aggregation": to_table(federation.aggregation),
                "server": to_table(federation.server),
                "personal": to_table(federation.personal),
                "keep_every": self.keep_every,
            },
            **attack,
            "privacy": to_table(federation.privacy),
            "evaluation": _without_kind(to_table(self.evaluation)),
        }

    @staticmethod
    def read(document: ExperimentFile) -> Experiment:
        """From an experiment file; every mistake is a sentence with its place."""
        tables = {key: value for key, value in document.tables.items() if not (key == "grid" and value == {})}
        try:
            return _read(tables)
        except BadInput as error:
            raise document.located(error) from None


def _read(tables: Mapping[str, Any]) -> Experiment:
    for key, value in tables.items():
        if key not in (*SECTIONS, "seed"):
            known = ", ".join((*SECTIONS, "seed"))
            what = "section" if isinstance(value, Mapping) else "key"
            raise BadInput(
                "experiment.unknown-key",
                f"unknown {what} {key!r}{suggest(key, (*SECTIONS, 'seed'))}; known: {known}",
                key,
            )
    learner = LEARNERS.read(tables.get("learner", {}), "learner") if "learner" in tables else PDGD()
    # a gradient estimate needs an optimiser; a PDGD update is already a step
    server_by_default = Adam() if learner.estimates_gradient else Add()
    plan = dict(_section(tables, "federation"))
    rounds = _whole(plan.pop("rounds", Experiment.rounds), "federation.rounds")
    keep_every = plan.pop("keep_every", None)
    if keep_every is not None:
        keep_every = _whole(keep_every, "federation.keep_every")
    aggregation = AGGREGATIONS.read(plan.pop("aggregation", Mean.kind), "federation.aggregation")
    participation = PARTICIPATIONS.read(plan.pop("participation", Full.kind), "federation.participation")
    personal = PERSONALISATIONS.read(plan.pop("personal", Shared.kind), "federation.personal")
    attack = ATTACKS.read(tables["attack"], "attack") if "attack" in tables else None
    chosen = SERVERS.read(plan.pop("server"), "federation.server") if "server" in plan else None
    server = chosen or server_by_default
    privacy = PRIVACIES.read(tables.get("privacy", NoPrivacy.kind), "privacy")
    for key in plan:
        if key not in ("clients", "interactions"):
            raise BadInput(
                "experiment.unknown-key",
                f"unknown key {key!r}{suggest(key, FEDERATION_KEYS)}; known: {', '.join(FEDERATION_KEYS)}",
                f"federation.{key}",
            )
    counts = read_fields(_Counts, plan, "federation")
    try:
        federation = Federation(
            counts.clients, counts.interactions, learner, participation, aggregation, server, privacy, attack, personal
        )
        if chosen is None and rounds >= 1:
            federation = _with_step_for_noise(federation, rounds)
    except BadInput as error:
        section = error.where.partition(".")[0]
        raise error if section in SECTIONS else error.under("federation") from None
    seed = _whole(tables.get("seed", 1), "seed")
    ranker = RANKERS.read(tables.get("ranker", Linear.kind), "ranker")
    return Experiment(
        read_fields(DataSource, _section(tables, "data"), "data"),
        ranker,
        CLICK_MODELS.read(tables.get("users", Cascade.kind), "users"),
        federation,
        rounds,
        read_fields(EvaluationPlan, _section(tables, "evaluation"), "evaluation"),
        seed,
        PARTITIONS.read(tables.get("partition", Even.kind), "partition"),
        keep_by_default(federation, ranker, rounds) if keep_every is None else keep_every,
    )


def keep_by_default(federation: Federation, ranker: Ranker, rounds: int) -> int:
    """Δt where a file says nothing: small federations of which everyone takes part keep updates, others do not.

    Room is counted for 136 features (MSLR-WEB10K), since the data are not read yet.
    """
    room = 4 * federation.clients * -(-rounds // KEEP_EVERY) * ranker.size(136)
    small = federation.clients <= KEEP_CLIENTS and room <= KEEP_BYTES
    return KEEP_EVERY if small and federation.participation.everyone else 0


def _with_step_for_noise(federation: Federation, rounds: int) -> Federation:
    """Where noise is accounted and no server is chosen: the step that suits the noise, and an average of rankers."""
    if federation.learner.estimates_gradient:
        return federation
    try:
        step = federation.privacy.recommended_step(federation.setting(rounds, 1))
    except BadInput as error:
        raise error.under("privacy") from None
    if step is None:
        return federation
    return replace(federation, server=Add(float(f"{step:.3g}"), 3.0))


@dataclass(frozen=True)
class _Counts:
    kind: ClassVar[str] = "federation"
    clients: int = 1000
    interactions: int = 4


def _section(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = tables.get(name, {})
    if not isinstance(section, Mapping):
        raise BadInput("experiment.not-a-section", f"expected a section [{name}], got {section!r}", name)
    return section


def _whole(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput("value.wrong-type", f"expected a whole number, got {value!r}", where)
    return value


def _without_kind(table: dict[str, Any]) -> dict[str, Any]:
    table.pop("kind", None)
    return table

"""An experiment: a federation written down. A file holds only what differs from the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

from quorank.data.normalisation import FixedRange, read_constants
from quorank.data.partition import PARTITIONS, Even, Partition
from quorank.data.source import DataSource
from quorank.errors import BadInput, brief, require, require_range
from quorank.experiments.experiment_file import ExperimentFile, check_keys, section_of
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
from quorank.federation.attacks import ATTACKS
from quorank.federation.combinations import check_experiment
from quorank.files.codec import decode
from quorank.learning import LEARNERS, PDGD
from quorank.learning.client_loop import JUDGED
from quorank.parts import Family, P, to_table
from quorank.privacy import PRIVACIES, NoPrivacy
from quorank.rankers import RANKERS, Linear, Ranker
from quorank.rankers.starting import read_start
from quorank.users import CLICK_MODELS, Cascade, ClickModel

MOST_ROUNDS = 10_000_000  # the metrics of every round are kept in memory
COUNTS, METHODS = ("clients", "interactions", "rounds"), ("participation", "aggregation", "server", "personal")
FEDERATION_KEYS = (*COUNTS, *METHODS, "client_momentum", "keep_every")
SECTIONS = ("data", "partition", "ranker", "users", "learner", "federation", "attack", "privacy", "evaluation")


@dataclass(frozen=True)
class EvaluationPlan:
    """Schedule and measures of the evaluation on the test split."""

    kind: ClassVar[str] = "evaluation"

    every: int = 1  # rounds between evaluations; the last round is always evaluated
    no_relevant: Literal["skip", "zero"] = "skip"  # what a query without relevant documents counts
    k: int = 10  # documents shown, among which MaxRR looks for the first relevant one
    cutoffs: tuple[int, ...] = (10,)  # depths of the offline nDCG; 10 is always among them

    def __post_init__(self) -> None:
        require_range("every", self.every, least=1)
        require_range("k", self.k, least=1, most=100)
        for depth in self.cutoffs:
            require_range("cutoffs", depth, least=1, most=1000)
        twice = f"each depth once, got {list(self.cutoffs)}"
        require(len({*self.cutoffs}) == len(self.cutoffs), "value.out-of-range", twice, "cutoffs")

    @property
    def further(self) -> tuple[int, ...]:
        """Depths other than 10, ascending."""
        return tuple(sorted({*self.cutoffs} - {JUDGED}))


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
        require_range("seed", self.seed, least=0, below=2**64)
        try:
            self.federation.participation.check(self.federation.clients, self.rounds)
        except BadInput as error:
            raise error.under("federation.participation") from None
        self.federation.privacy.check_values(self.evaluation.k + 1)
        try:
            self.federation.learner.check_list(self.evaluation.k)
        except BadInput as error:
            raise error.under("learner") from None
        bare = self.data.normalize.learns and self.data.normalize.epsilon is None and self.federation.privacy.protects
        sentence = (
            "constants that clients learn together give something away, and this run counts that: set "
            "data.normalize.epsilon, or give low and high"
        )
        require(not bare, "normalisation.without-epsilon", sentence, "data.normalize")
        check_experiment(self.federation, self.ranker, self.users, self.partition, self.rounds, self.keep_every)

    def tables(self, *, complete: bool = True) -> dict[str, Any]:
        """Return the tables of the experiment file; without `complete` those that differ from the defaults."""
        federation, table = self.federation, partial(to_table, complete=complete)
        attack = {} if federation.attack is None else {"attack": table(federation.attack)}
        return {
            "seed": self.seed,
            "data": _without_kind(table(self.data)) | {"normalize": _as_written(table(self.data.normalize))},
            "partition": table(self.partition),
            "ranker": table(self.ranker),
            "users": table(self.users),
            "learner": table(federation.learner),
            "federation": {
                "clients": federation.clients,
                "interactions": federation.interactions,
                "rounds": self.rounds,
                **{name: table(getattr(federation, name)) for name in METHODS},
                "client_momentum": federation.client_momentum,
                "keep_every": self.keep_every,
            },
            **attack,
            "privacy": table(federation.privacy),
            "evaluation": _without_kind(table(self.evaluation)),
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
    check_keys(tables, (*SECTIONS, "seed"))
    plan = dict(section_of(tables, "federation"))
    check_keys(plan, FEDERATION_KEYS, "federation.")
    own_server = _names_a_step(plan.get("server", {}))

    def method(family: Family[P], key: str, default: type[P]) -> P:
        """Read and remove the part under a key of [federation]; the remaining keys hold numbers."""
        return family.read(plan.pop(key, default.kind), f"federation.{key}")

    learner = LEARNERS.read(tables.get("learner", PDGD.kind), "learner")
    aggregation = method(AGGREGATIONS, "aggregation", Mean)
    participation = method(PARTICIPATIONS, "participation", Full)
    personal = method(PERSONALISATIONS, "personal", Shared)
    # a gradient estimate needs an optimiser; a PDGD update is already a step
    server = method(SERVERS, "server", Adam if learner.estimates_gradient else Add)
    attack = ATTACKS.read(tables["attack"], "attack") if "attack" in tables else None
    privacy = PRIVACIES.read(tables.get("privacy", NoPrivacy.kind), "privacy")
    counts = decode(FederationCounts, plan, "federation")
    try:
        federation = Federation(
            counts.clients, counts.interactions, learner, participation, aggregation, server, privacy, attack, personal,
            counts.client_momentum,
        )  # fmt: skip
        if not own_server and counts.rounds >= 1:
            federation = _with_step_for_noise(federation, counts.rounds)
    except BadInput as error:
        section = error.where.partition(".")[0]
        raise error if section in SECTIONS else error.under("federation") from None
    seed = tables.get("seed", 1)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise BadInput("value.wrong-type", f"expected an integer, got {brief(seed)}", "seed")
    data = _data_source(section_of(tables, "data"))
    ranker = RANKERS.read(tables.get("ranker", Linear.kind), "ranker")
    try:
        ranker = ranker if ranker.prior is None else read_start(ranker, data.normalize)
    except BadInput as error:
        raise error.under("ranker") from None
    partition = PARTITIONS.read(tables.get("partition", Even.kind), "partition")
    return Experiment(
        data,
        ranker,
        CLICK_MODELS.read(tables.get("users", Cascade.kind), "users"),
        federation,
        counts.rounds,
        decode(EvaluationPlan, section_of(tables, "evaluation"), "evaluation"),
        seed,
        partition,
        counts.keep_every,
    )


def _with_step_for_noise(federation: Federation, rounds: int) -> Federation:
    """Return the federation with the server step that suits its accounted noise, and a mean of rankers."""
    if federation.learner.estimates_gradient or federation.learner.grows_trees:
        return federation
    try:
        step = federation.privacy.recommended_step(federation.setting(rounds, 1))
    except BadInput as error:
        raise error.under("privacy") from None
    if step is None:
        return federation
    return replace(federation, server=federation.server.suited_to_noise(step))


def _names_a_step(server: Any) -> bool:
    """Return whether [federation] chooses the server step; `server = { pull = 0.01 }` does not."""
    return not (
        isinstance(server, Mapping) and {*server} <= {"kind", "pull"} and server.get("kind", Add.kind) == Add.kind
    )


@dataclass(frozen=True)
class FederationCounts:
    """Numbers of the section [federation]."""

    kind: ClassVar[str] = "federation"

    clients: int = 1000  # n, clients of the federation
    interactions: int = 4  # B, searches of a client in a round
    rounds: int = Experiment.rounds  # T, rounds of the run
    client_momentum: float = 0.0  # β: how much of its last update a client carries into the next
    keep_every: int = 0  # Δt, rounds between the updates that clients keep for unlearning; 0 keeps none


def _data_source(table: Mapping[str, Any]) -> DataSource:
    source = decode(DataSource, table, "data")
    if source.normalize.kind != FixedRange.kind:
        return source
    try:
        return replace(source, normalize=read_constants(source.normalize))
    except BadInput as error:
        raise BadInput(error.code, f"{error.where}: {error.sentence}", "data.normalize.file") from None


def _as_written(table: dict[str, Any]) -> dict[str, Any] | str:
    """Return the kind of a part without fields, else its table."""
    return table if len(table) > 1 else str(table["kind"])


def _without_kind(table: dict[str, Any]) -> dict[str, Any]:
    table.pop("kind", None)
    return table

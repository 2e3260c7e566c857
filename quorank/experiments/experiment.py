"""An experiment: a federation written down, with its data, users, rounds and evaluation.

`Experiment.read` builds one from the sections of an experiment file, which holds only what differs from the defaults;
`Experiment.tables` returns the sections again. Every part is named by its `kind`, or by a table with its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

from quorank.data.normalisation import FixedRange, read_constants
from quorank.data.partition import PARTITIONS, Even, Partition
from quorank.data.source import DataSource
from quorank.errors import BadInput, require, require_range, under
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
from quorank.metrics.lists import NoRelevant
from quorank.parts import Family, to_table
from quorank.privacy import PRIVACIES, NoPrivacy
from quorank.rankers import RANKERS, Linear, Ranker
from quorank.rankers.starting import read_start
from quorank.users import CLICK_MODELS, Cascade, ClickModel

MOST_ROUNDS = 10_000_000  # the metrics of every round are kept in memory
# sections that hold one part each: its family and its default
PARTS: dict[str, tuple[Family[Any], type[Any]]] = {
    "partition": (PARTITIONS, Even),
    "ranker": (RANKERS, Linear),
    "users": (CLICK_MODELS, Cascade),
    "learner": (LEARNERS, PDGD),
    "privacy": (PRIVACIES, NoPrivacy),
}
# keys of `[federation]` that hold a part
METHODS: dict[str, tuple[Family[Any], type[Any]]] = {
    "participation": (PARTICIPATIONS, Full),
    "aggregation": (AGGREGATIONS, Mean),
    "server": (SERVERS, Add),
    "personal": (PERSONALISATIONS, Shared),
}
PART_KEYS = (*PARTS, "attack", *(f"federation.{name}" for name in METHODS))
FEDERATION_KEYS = ("clients", "interactions", "rounds", *METHODS, "client_momentum", "keep_every")
SECTIONS = ("data", "partition", "ranker", "users", "learner", "federation", "attack", "privacy", "evaluation")


@dataclass(frozen=True)
class EvaluationPlan:
    """Schedule and measures of the evaluation on the test split: section `[evaluation]`.

    Args:
        every: Rounds between two evaluations of the ranker; the last round is always evaluated.
        no_relevant: Treatment of queries without a relevant document in means of offline metrics and of online nDCG: "skip"
            leaves them out, "zero" counts 0, and "published" (FPDGD and later papers) leaves them out offline and counts 0
            online.
        k: Length of the lists that are shown, which MaxRR reads too, 1 to 100.
        cutoffs: Depths of the offline nDCG, 1 to 1000 each; depth 10 is always measured.

    Raises:
        BadInput: A value is out of range, or a depth occurs twice.

    >>> EvaluationPlan(cutoffs=(1, 20)).further
    (1, 20)
    """

    kind: ClassVar[str] = "evaluation"

    every: int = 1
    no_relevant: Literal["skip", "zero", "published"] = "skip"
    k: int = 10
    cutoffs: tuple[int, ...] = (10,)

    def __post_init__(self) -> None:
        require_range("every", self.every, least=1)
        require_range("k", self.k, least=1, most=100)
        for depth in self.cutoffs:
            require_range("cutoffs", depth, least=1, most=1000)
        twice = f"each depth once, got {list(self.cutoffs)}"
        require(len({*self.cutoffs}) == len(self.cutoffs), "value.out-of-range", twice, "cutoffs")

    @property
    def offline_no_relevant(self) -> NoRelevant:
        """Treatment in offline metrics."""
        return "zero" if self.no_relevant == "zero" else "skip"

    @property
    def online_no_relevant(self) -> NoRelevant:
        """Treatment in online nDCG."""
        return "skip" if self.no_relevant == "skip" else "zero"

    @property
    def further(self) -> tuple[int, ...]:
        """Depths other than 10, ascending."""
        return tuple(sorted({*self.cutoffs} - {JUDGED}))


@dataclass(frozen=True)
class Experiment:
    """Everything that determines the result of a run.

    Args:
        data: Source of the collection and its normalisation.
        ranker: Scoring function that is learned.
        users: Click model of the simulated users.
        federation: Clients, learner, privacy, aggregation, server optimiser, participation and attack.
        rounds: T, number of rounds, 1 to 10,000,000.
        evaluation: Schedule and measures of the evaluation.
        seed: Seed of all draws, 0 to 2^64 − 1.
        partition: Division of the training queries among the clients.
        keep_every: Δt, rounds between the updates that clients keep for unlearning; 0 keeps none.

    Raises:
        BadInput: A value is out of range, or parts do not fit together (`federation.combinations`).

    >>> experiment = Experiment(rounds=50, federation=Federation(clients=20))
    >>> experiment.tables()["federation"]["clients"]
    20
    >>> Experiment.read(ExperimentFile(experiment.tables(), "my.toml")) == experiment
    True
    """

    data: DataSource = field(default_factory=DataSource)
    ranker: Ranker = field(default_factory=Linear)
    users: ClickModel = field(default_factory=Cascade)
    federation: Federation = field(default_factory=Federation)
    rounds: int = 1000
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    seed: int = 1
    partition: Partition = field(default_factory=Even)
    keep_every: int = 0

    def __post_init__(self) -> None:
        require_range("federation.rounds", self.rounds, least=1, most=MOST_ROUNDS)
        require_range("federation.keep_every", self.keep_every, least=0, below=2**31)
        require_range("seed", self.seed, least=0, below=2**64)
        federation, normalize = self.federation, self.data.normalize
        with under("federation.participation"):
            federation.participation.check(federation.clients, self.rounds)
        federation.privacy.check_values(self.evaluation.k + 1)
        with under("learner"):
            federation.learner.check_list(self.evaluation.k)
        bare = normalize.learns and normalize.epsilon is None and federation.privacy.protects
        sentence = "learned constants leak, and this run counts ε: set data.normalize.epsilon, or give low and high"
        require(not bare, "normalisation.without-epsilon", sentence, "data.normalize")
        check_experiment(federation, self.ranker, self.users, self.partition, self.rounds, self.keep_every)

    def tables(self, *, complete: bool = True) -> dict[str, Any]:
        """Return the sections of the experiment file.

        Args:
            complete: Include what equals the defaults.
        """
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

    @property
    def parts(self) -> dict[str, Any]:
        """Parts by the section of the experiment file that holds each."""
        return {name: getattr(self if hasattr(self, name) else self.federation, name) for name in PARTS}

    @staticmethod
    def read(document: ExperimentFile) -> Experiment:
        """Build an experiment from the sections of a file.

        Args:
            document: Sections, with the line or option of every key.

        Raises:
            BadInput: Unknown key or section, wrong value, or impossible combination; with the place of its key.
        """
        tables = {key: value for key, value in document.tables.items() if not (key == "grid" and value == {})}
        try:
            return _read(tables)
        except BadInput as error:
            raise document.located(error) from None


@dataclass(frozen=True)
class FederationCounts:
    """Numbers of the section [federation]."""

    kind: ClassVar[str] = "federation"

    clients: int = 1000  # n, clients of the federation
    interactions: int = 4  # B, searches of a client in a round
    rounds: int = Experiment.rounds  # T, rounds of the run
    client_momentum: float = 0.0  # β: how much of its last update a client carries into the next
    keep_every: int = 0  # Δt, rounds between the updates that clients keep for unlearning; 0 keeps none


def _read(tables: Mapping[str, Any]) -> Experiment:
    check_keys(tables, (*SECTIONS, "seed"))
    plan = dict(section_of(tables, "federation"))
    check_keys(plan, FEDERATION_KEYS, "federation.")
    step_is_chosen = _names_a_step(plan.get("server", {}))
    parts = {name: family.read(tables.get(name, part.kind), name) for name, (family, part) in PARTS.items()}
    if parts["learner"].estimates_gradient:  # needs an optimiser; a PDGD update is already a step
        plan.setdefault("server", Adam.kind)
    methods = {}
    for name, (family, part) in METHODS.items():
        methods[name] = family.read(plan.pop(name, part.kind), f"federation.{name}")
    attack = ATTACKS.read(tables["attack"], "attack") if "attack" in tables else None
    counts = decode(FederationCounts, plan, "federation")
    try:
        federation = Federation(
            counts.clients,
            counts.interactions,
            parts["learner"],
            privacy=parts["privacy"],
            attack=attack,
            client_momentum=counts.client_momentum,
            **methods,
        )
        if not step_is_chosen and counts.rounds >= 1:
            federation = _with_step_for_noise(federation, counts.rounds)
    except BadInput as error:
        raise error if error.where.partition(".")[0] in SECTIONS else error.under("federation") from None
    data, ranker = _data_source(section_of(tables, "data")), parts["ranker"]
    if ranker.prior is not None:
        with under("ranker"):
            ranker = read_start(ranker, data.normalize)
    evaluation = decode(EvaluationPlan, section_of(tables, "evaluation"), "evaluation")
    seed = decode(int, tables.get("seed", 1), "seed")
    rest = parts["users"], federation, counts.rounds, evaluation, seed, parts["partition"], counts.keep_every
    return Experiment(data, ranker, *rest)


def _with_step_for_noise(federation: Federation, rounds: int) -> Federation:
    """Return the federation with the server step that suits its accounted noise, and a mean of rankers."""
    if federation.learner.estimates_gradient or federation.learner.grows_trees:
        return federation
    with under("privacy"):
        step = federation.privacy.recommended_step(federation.setting(rounds, 1))
    return federation if step is None else replace(federation, server=federation.server.suited_to_noise(step))


def _names_a_step(server: Any) -> bool:
    """Return whether [federation] chooses the server step; `server = { pull = 0.01 }` does not."""
    if not isinstance(server, Mapping):
        return True
    return not {*server} <= {"kind", "pull"} or server.get("kind", Add.kind) != Add.kind


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

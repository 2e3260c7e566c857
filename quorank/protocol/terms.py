"""What a device agrees to when it joins: the run, its place in it, and the parts that decide what will be sent.

The terms say what the coordinator may ask: how many interactions an update is made of, for how many rounds, at most how
often and with how many rounds in between, under which privacy, and whether a figure about the lists that were shown is
reported, and at which ε. A device holds every task against them. They hold no seed: noise that protects someone is not
drawn from one that others know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args, get_type_hints

from quorank.errors import BadInput, require, require_choice, require_range
from quorank.federation.personal import PERSONALISATIONS, Personalisation, Shared, Split
from quorank.learning import LEARNERS, PDGD
from quorank.learning.list_learner import ListLearner
from quorank.parts import Family, to_table
from quorank.privacy import PRIVACIES, Mechanism, NoPrivacy, Privacy, Setting
from quorank.privacy.mechanisms.metric_response import MetricResponse
from quorank.privacy.setting import Turns
from quorank.rankers import RANKERS, Linear, Ranker

VERSION, REPORTING, CARRYING = 1, 2, 3
"""Of terms, of terms with reports, and of terms with momentum: whoever does not know these must not take part as if there
were none."""
DELTA = 1e-5
"""At which reports are stated together, where the run's privacy names no δ."""
_NUMBERS = ("client", "n_features", "rounds", "interactions", "k", "keep_every")
PARTS: dict[str, Family[Any]] = {
    "ranker": RANKERS,
    "learner": LEARNERS,
    "privacy": PRIVACIES,
    "personal": PERSONALISATIONS,
}


@dataclass(frozen=True)
class Terms:
    """A device's place in a run."""

    run: str
    client: int
    n_features: int
    rounds: int
    interactions: int = 4  # B, of one update
    k: int = 10  # documents shown
    keep_every: int = 0  # Δt: rounds between the updates kept for unlearning; 0 keeps none
    ranker: Ranker = field(default_factory=Linear)
    learner: ListLearner = field(default_factory=PDGD)
    privacy: Privacy = field(default_factory=NoPrivacy)
    personal: Personalisation = field(default_factory=Shared)
    setting: Setting = field(default_factory=lambda: Setting(1, 1, 1))
    report_epsilon: float = 0.0  # ε of the figure that is reported with each release; 0: none is
    client_momentum: float = 0.0  # β: how much of what it sent before the device adds to each update

    def __post_init__(self) -> None:
        require(
            0 < len(self.run) <= 200,
            "run.name",
            f"a run is named by 1 to 200 letters, got {len(self.run)} of them; rename it",
        )
        require(
            self.learner.learns_late,
            "option.conflict",
            f"devices learn with pdgd or counterfactual, and this run uses {self.learner.kind}",
        )
        self.learner.check_list(self.k)
        for name in _NUMBERS:
            value, least = getattr(self, name), 0 if name in ("client", "keep_every") else 1
            require(least <= value < 2**31, "value.out-of-range", f"must be at least {least}, got {value}", name)
        require_range("client_momentum", self.client_momentum, least=0.0, below=1.0)
        if self.report_epsilon != 0.0:
            MetricResponse(self.report_epsilon)
            masked = self.privacy.hides_single_updates
            require(
                not masked,
                "option.conflict",
                "a secure sum carries updates and nothing else; leave --report-epsilon out, or choose another privacy",
                "reports",
            )

    @cached_property
    def mechanism(self) -> Mechanism:
        """The privacy of the run, calibrated; a device gives it a secret of its own for each release."""
        return self.privacy.mechanism(self.setting, 0)

    @cached_property
    def client_mechanism(self) -> Mechanism:
        """What a device does of it: all but noise that others draw."""
        return self.privacy.client_mechanism(self.setting, 0)

    @property
    def secure(self) -> bool:
        """Whether updates leave under masks only."""
        return self.privacy.hides_single_updates

    @property
    def most_rounds(self) -> int | None:
        """m: of how many rounds the device answers at most; None where only `rest` limits it."""
        return self.setting.most_rounds

    @property
    def rest(self) -> int:
        """s: how many rounds the device sits out after each that it answers."""
        return self.setting.rest

    @property
    def turns(self) -> Turns:
        """How often the device answers; the privacy that is promised to its owner counts on no more."""
        return self.setting.turns

    @cached_property
    def figure(self) -> MetricResponse | None:
        """How the device reports on its lists; None where it does not."""
        return MetricResponse(self.report_epsilon) if self.report_epsilon > 0.0 else None

    @cached_property
    def reports(self) -> dict[str, Any] | None:
        """What the reports of all rounds give away, beside the updates."""
        if self.figure is None:
            return None
        answers = len(self.turns.busiest(self.rounds))
        return self.figure.statement(answers, getattr(self.privacy, "delta", DELTA))

    @cached_property
    def split(self) -> Split | None:
        return self.personal.split(self.ranker, self.n_features)

    @property
    def parameters(self) -> int:
        return self.ranker.size(self.n_features)

    def table(self) -> dict[str, Any]:
        """For an invitation and for the private file."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        parts = {name: to_table(getattr(self, name)) for name in PARTS}
        more = {
            name: getattr(self, name) for name in ("report_epsilon", "client_momentum") if getattr(self, name) > 0.0
        }
        return {
            "version": CARRYING if self.client_momentum > 0.0 else REPORTING if more else VERSION,
            "run": self.run,
            **numbers,
            **parts,
            "setting": self.setting.table(),
            **more,
        }

    @classmethod
    def read(cls, table: object) -> Terms:
        """From such a table; every mistake is a sentence. It names parts of this package only: others' code never runs."""
        require(isinstance(table, Mapping), "terms.malformed", "expected a table; ask for a new invitation", "terms")
        assert isinstance(table, Mapping)
        require(
            table.get("version") in (VERSION, REPORTING, CARRYING),
            "terms.version",
            f"of version {table.get('version')}, and this Quorank reads {VERSION} to {CARRYING}; install the same "
            "version as the coordinator",
            "terms",
        )
        try:
            values: dict[str, Any] = {name: _whole(table[name]) for name in _NUMBERS}
            values |= {name: family.read(table[name], name, foreign=True) for name, family in PARTS.items()}
            setting = _setting(table["setting"])
            carrying, reports = table["version"] == CARRYING, 0.0
            if table["version"] == REPORTING or (carrying and "report_epsilon" in table):
                reports = _number(table["report_epsilon"])
            momentum = _number(table["client_momentum"]) if carrying else 0.0
            run = str(table["run"])
            return cls(run=run, **values, setting=setting, report_epsilon=reports, client_momentum=momentum)
        except (KeyError, TypeError, ValueError):
            raise BadInput(
                "terms.malformed", "something is missing or of the wrong kind; ask for a new invitation", "terms"
            ) from None
        except BadInput as error:
            raise error.at("terms") from None


def _setting(table: object) -> Setting:
    if not isinstance(table, Mapping):
        raise TypeError
    numbers = {name: value for name, value in table.items() if name != "participation"}
    for name, value in numbers.items():
        require(_whole(value) < 2**63, "value.out-of-range", f"must be below 2^63, got {value}", f"setting.{name}")
    participation = table.get("participation", "full")
    require_choice("setting.participation", participation, get_args(get_type_hints(Setting)["participation"]))
    return Setting(**numbers, participation=participation)


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError
    return float(value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value

"""Terms that a device agrees to when it joins: the run, its client number, and the parts that decide what it sends.

They bound what the coordinator may ask: interactions per update, number of rounds, frequency of answers, privacy, and
whether a metric of the shown lists is reported and at which ε. A device checks every task against them. They hold no seed:
protective noise is not drawn from a seed that others know.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any

from quorank.errors import BadInput, require, require_range
from quorank.federation.personal import PERSONALISATIONS, Personalisation, Shared, Split
from quorank.files.codec import Length, Range, decode
from quorank.learning import LEARNERS, PDGD
from quorank.learning.pdgd import ListLearner
from quorank.parts import Family, to_table
from quorank.privacy import PRIVACIES, Mechanism, NoPrivacy, Privacy, Setting
from quorank.privacy.mechanisms.randomised_response import MetricResponse
from quorank.protocol.invitation import check_run_name
from quorank.protocol.keys import PUBLIC
from quorank.rankers import RANKERS, Linear, Ranker

VERSION = 1
_MOST = 2**31 - 1
MOST_PARAMETERS = 1 << 22  # 32 MiB as 64-bit floats
MOST_ROUNDS, MOST_SHOWN = 10**6, 10**4  # bounds on the memory of statements and of lists
DELTA = 1e-5  # δ of the joint statement of all reports where the run's privacy has none
PARTS: dict[str, Family[Any]] = {
    "ranker": RANKERS,
    "learner": LEARNERS,
    "privacy": PRIVACIES,
    "personal": PERSONALISATIONS,
}


@dataclass(frozen=True)
class Terms:
    """Terms of one device in a run."""

    run: str
    client: Annotated[int, Range(0, _MOST)]
    n_features: Annotated[int, Range(1, _MOST)]
    rounds: int
    interactions: Annotated[int, Range(1, _MOST)] = 4  # B, of one update
    k: int = 10  # documents shown
    ranker: Ranker = field(default_factory=Linear)
    learner: ListLearner = field(default_factory=PDGD)
    privacy: Privacy = field(default_factory=NoPrivacy)
    personal: Personalisation = field(default_factory=Shared)
    setting: Setting = field(default_factory=lambda: Setting(1, 1, 1))
    report_epsilon: float = 0.0  # ε of the metric reported with each release; 0: none
    client_momentum: float = 0.0  # β: share of its previous update that the device adds to each one
    rebuilding_rounds: Annotated[int, Range(0, _MOST)] = 0  # releases in rebuildings beyond those of the run's rounds
    total_epsilon: float = 0.0  # ε that run, reports and rebuildings may reach together; 0: the run's and reports' own
    attester: Annotated[bytes, Length(PUBLIC)] = b""  # public key that vouches for each member; empty: nobody does

    def __post_init__(self) -> None:
        sentence = f"devices learn with pdgd or counterfactual, and this run uses {self.learner.kind}"
        require(self.learner.learns_late, "option.conflict", sentence)
        check_run_name(self.run)
        for name, rounds in (("rounds", self.rounds), ("setting.rounds", self.setting.rounds)):
            require_range(name, rounds, least=1, most=MOST_ROUNDS)
        require_range("k", self.k, least=1, most=MOST_SHOWN)
        sentence = (
            f"a ranker of {self.parameters:,} parameters is too large for a device, which holds {MOST_PARAMETERS:,}"
        )
        require(self.parameters <= MOST_PARAMETERS, "terms.too-large", sentence, "n_features")
        self.learner.check_list(self.k)
        require_range("client_momentum", self.client_momentum, least=0.0, below=1.0)
        require(len(self.attester) in (0, PUBLIC), "value.out-of-range", "a public key has 32 bytes", "attester")
        if self.report_epsilon != 0.0:
            MetricResponse(self.report_epsilon)
            sentence = "a secure sum carries updates and nothing else; leave reports out, or choose another privacy"
            require(not self.privacy.hides_single_updates, "option.conflict", sentence, "reports")

    @cached_property
    def mechanism(self) -> Mechanism:
        """The run's calibrated privacy mechanism; a device gives it a fresh secret for each release."""
        return self.privacy.mechanism(self.setting, 0)

    @cached_property
    def client_mechanism(self) -> Mechanism:
        """The device's part of it: everything except noise that others add."""
        return self.privacy.client_mechanism(self.setting, 0)

    @cached_property
    def metric_response(self) -> MetricResponse | None:
        """Randomised response of the device's reports; None without reports."""
        return MetricResponse(self.report_epsilon) if self.report_epsilon > 0.0 else None

    @cached_property
    def reports(self) -> dict[str, Any] | None:
        """Privacy statement of the reports of all rounds, in addition to the updates'."""
        if self.metric_response is None:
            return None
        answers = len(self.setting.turns.busiest(self.rounds))
        return self.metric_response.statement(answers, getattr(self.privacy, "delta", DELTA))

    @cached_property
    def split(self) -> Split | None:
        return self.personal.split(self.ranker, self.n_features) if self.personal.keeps_parameters else None

    @property
    def releases(self) -> int:
        """Largest number of releases of this device, in rounds and rebuildings together."""
        turns = self.setting.turns
        return min(turns.most or self.rounds, 1 + (self.rounds - 1) // (1 + turns.rest)) + self.rebuilding_rounds

    @property
    def parameters(self) -> int:
        return self.ranker.size(self.n_features)

    def table(self) -> dict[str, Any]:
        """Return the terms as invitations and private stores hold them."""
        return {"version": VERSION, **to_table(self)}

    @classmethod
    def read(cls, table: object) -> Terms:
        """Decode untrusted terms. They may name parts of this package only, so no plug-in is ever imported.

        Raises:
            BadInput: `terms.version`, `terms.malformed`, or the error of a part.
        """
        if not isinstance(table, dict):
            raise BadInput("terms.malformed", "expected a table; ask for a new invitation", "terms")
        version = table.get("version")
        sentence = f"of version {version}, and this Quorank reads {VERSION}; install the version of the coordinator"
        require(version == VERSION, "terms.version", sentence, "terms")
        try:
            missing = sorted({each.name for each in fields(cls)} - table.keys())
            require(not missing, "value.missing", f"misses {', '.join(missing)}")
            parts = {name: family.read(table[name], name, foreign=True) for name, family in PARTS.items()}
            return decode(cls, {name: value for name, value in (table | parts).items() if name != "version"})
        except (TypeError, ValueError):
            raise BadInput("terms.malformed", "a part is malformed; ask for a new invitation", "terms") from None
        except BadInput as error:
            if error.code not in ("value.wrong-type", "value.missing"):
                raise error.at("terms") from None
            sentence = f"something is missing or of the wrong kind ({error}); ask for a new invitation"
            raise BadInput("terms.malformed", sentence, "terms") from None

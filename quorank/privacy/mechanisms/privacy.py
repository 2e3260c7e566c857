"""The base class of privacy parts: what is done to updates, and what that needs and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from quorank.arrays import Doubles, Integers
from quorank.privacy.mechanisms.mechanism import Mechanism
from quorank.privacy.mechanisms.setting import Setting
from quorank.privacy.streams import Seed


@dataclass(frozen=True)
class Privacy(ABC):
    """A privacy part; for a given run it becomes a mechanism, which knows the calibrated noise."""

    kind: ClassVar[str]
    protects_metric: ClassVar[bool] = False  # it randomises the metric that clients send, by `privatise`
    protects_messages: ClassVar[bool] = False  # each message is private on its own, without any sum
    needs_client_parameters: ClassVar[bool] = False  # it clips the parameters that a client learns

    @property
    def hides_single_updates(self) -> bool:
        """Whether the coordinator sees sums only, of whole numbers under masks."""
        return False

    @property
    def noise_on_sums(self) -> bool:
        """Whether the noise is complete only on the sum of a cohort, so that a rule may see nothing else."""
        return False

    @property
    def relies_on_secret_cohorts(self) -> bool:
        """Whether its ε for sampled cohorts holds only while nobody knows who was in them."""
        return False

    @property
    def longest_update(self) -> float | None:
        """The largest L2 norm of an update that it lets through in the first round; None where it sets no bound."""
        return None

    def without_masks(self) -> Privacy:
        """Return the part whose secure sums are computed without playing their messages: the same total, faster."""
        return self

    def check_values(self, values: int) -> None:
        """Refuse a metric that may take so many values."""

    def recommended_step(self, setting: Setting) -> float | None:
        """Return the server's step that suits the noise of a run; None where there is no noise that asks for one."""
        return None

    def privatise(
        self, measured: Doubles, values: Doubles, seed: Seed, round_: int, clients: Integers
    ) -> Doubles:
        """Return what clients send, (clients, 2), for (clients, 2, interactions) measurements in `values`."""
        raise NotImplementedError(f"{self.kind} protects no metric")

    @abstractmethod
    def mechanism(self, setting: Setting, seed: Seed) -> Mechanism:
        """Return the mechanism of one run, its noise drawn under `seed`."""

"""What a federation knows of those who attack it; the attacks themselves stand in `attacks/`."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from quorank.arrays import Booleans, Doubles, Uint64s


class Attack(Protocol):
    """Some clients, the first of the federation, that do not send what they learned."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def clients(self) -> int:
        """m, how many attack."""

    @property
    def poisons_clicks(self) -> bool:
        """Whether attackers click on what is not relevant, instead of changing their updates."""

    def check(self, n: int) -> None:
        """Refuse a federation of n clients that would be theirs."""

    def poison(
        self,
        updates: Doubles,
        malicious: Booleans,
        theta: Doubles,
        rng_key: Uint64s,
        round_: int,
    ) -> Doubles:
        """What the cohort sends, given what all of it learned honestly."""

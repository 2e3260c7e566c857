"""No privacy mechanism: updates leave the clients as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class NoPrivacy:
    """The data stay with the clients, but what they send is not protected in any further way."""

    kind: ClassVar[str] = "none"

    def statement(self, rounds: int, interactions: int = 1, n: int = 11) -> dict[str, Any] | None:
        """There is nothing to state."""
        return None

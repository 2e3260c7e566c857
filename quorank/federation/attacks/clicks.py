"""Poisoned clicks (thesis §5.2.2, table 5.1): the malicious clients click what is irrelevant and never stop.

They compute and send their updates like everybody else, so the harm is in the clicks alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quorank.federation.attacks.attack import Attack, Knowledge
from quorank.users import Cascade


@dataclass(frozen=True)
class ClickPoisoning(Attack):
    """Malicious clients whose users follow the preset "poison".

    `knowledge` has no effect; it lets one experiment section name every published attack.

    >>> ClickPoisoning(clients=3).users.preset
    'poison'
    """

    kind: ClassVar[str] = "clicks"

    knowledge: Knowledge = "partial"  # makes no difference here

    @property
    def users(self) -> Cascade:
        return Cascade(preset="poison")

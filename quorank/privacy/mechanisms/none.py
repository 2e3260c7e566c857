"""No privacy mechanism: updates leave the clients as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quorank.privacy.mechanisms.mechanism import Plain
from quorank.privacy.mechanisms.privacy import Privacy
from quorank.privacy.mechanisms.setting import Setting
from quorank.privacy.streams import Seed


@dataclass(frozen=True)
class NoPrivacy(Privacy):
    """The data stay with the clients, but what they send is not protected in any further way."""

    kind: ClassVar[str] = "none"

    def mechanism(self, setting: Setting, seed: Seed) -> Plain:
        return Plain()

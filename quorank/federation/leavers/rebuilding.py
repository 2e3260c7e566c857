"""The run in which a ranker is built again after a client has left: its name, and who may take part.

A rebuilding is a run of its own from the first ranker, in fewer and longer rounds (`federation.leavers.unlearning`, method
`fresh`; thesis chapter 6 without eq. 6.2). Each of its rounds stands for Δt of the run.
"""

from __future__ import annotations

import re

from quorank.errors import BadInput
from quorank.federation import wire
from quorank.privacy import Mechanism, Plain
from quorank.privacy.mechanisms.gaussian import GaussianMechanism

NOTHING = b"nothing"
"""What a client replies to a rebuilding where it holds nothing that it could learn from again."""

_NAME = re.compile(r"(.*) rebuilt [1-9][0-9]{0,8} every ([1-9][0-9]{0,8})", re.DOTALL)


def name_of(run: str, number: int, interval: int) -> str:
    """The run in which a ranker is built again for the first, second … time, with rounds of so many of the run's."""
    return f"{run} rebuilt {number} every {interval}"


def interval_of(name: str, run: str) -> int | None:
    """Δt, if this is the name of a rebuilding of the run."""
    found = _NAME.fullmatch(name)
    return int(found[2]) if found is not None and found[1] == run else None


def is_rebuilding(content: bytes, run: str) -> bool:
    """Whether a message is a task of a rebuilding of this run."""
    try:
        return interval_of(wire.decode_task(content).run, run) is not None
    except BadInput:
        return False


def can_replay(mechanism: Mechanism) -> bool:
    """Whether clients may release the same interactions again: where they draw no noise that was planned for once."""
    return isinstance(mechanism, Plain | GaussianMechanism)

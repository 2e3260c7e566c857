"""What a coordinator tells a device beside tasks: it asks whether there is anything to say, and says when all is over.

An engine lets a coordinator write to a device and the device answer, and not the other way round. A device that wants to
leave therefore gives its request as the answer to whatever comes next, and the confirmation is a message of its own.
"""

from __future__ import annotations

GREETING = b"quorank: is there anything to say?"
OVER = b"quorank: all rounds are done"
HEARD = b"quorank: heard"
"""A device's answer to a notice that asks for none."""

NOTHING = b"quorank: nothing was given before"
"""A device's answer to a task of a rebuilding where it holds nothing that it could learn from again."""

REQUEST = b'{"at"'
RECEIPT = b"quorank left "
"""How a request to leave and its confirmation begin (`leaving`)."""


def is_notice(content: bytes) -> bool:
    """Whether a coordinator's message asks for no reply."""
    return content in (GREETING, OVER) or content.startswith(RECEIPT)

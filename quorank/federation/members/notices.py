"""What a device says in the place of a reply."""

from __future__ import annotations

NOTHING = b"quorank: nothing was given before"
"""A device's answer to a task of a rebuilding where it holds nothing that it could learn from again."""

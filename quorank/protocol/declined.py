"""Reasons why a device sends no release: a fixed list of words, so that nothing private can be in them."""

from __future__ import annotations

from dataclasses import dataclass

REASONS = {
    "consent": "consent is off",
    "waiting": "there are too few new interactions",
    "malformed": "the task cannot be read",
    "run": "the task is of another run",
    "client": "the task is for another client",
    "over": "the run's planned rounds are over",
    "old": "a later round has been answered already",
    "repeated": "this round has been answered for another task",
    "resting": "the device sits out some rounds between two answers",
    "often": "the device has answered as many rounds of this run as was agreed",
    "task": "the task is not what was agreed",
    "secure": "this run's updates leave in secure sums only",
    "unmasking": "the secure sum was not as agreed",
    "version": "the secure sum is of another version and both sides need the same",
    "numbers": "the update holds a number that is not finite",
    "place": "what was said before does not fit this folder",
    "stopped": "the run cannot go on at this party",
    "storage": "the private file cannot be written",
    "fault": "the device could not answer",
}
"""All that a device ever says instead of a release."""


@dataclass(frozen=True)
class Declined:
    """Why there is no release."""

    code: str

    def __post_init__(self) -> None:
        assert self.code in REASONS

    @property
    def sentence(self) -> str:
        return REASONS[self.code]


class Refusal(Exception):
    """Ends an answer; carries nothing but a code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.declined = Declined(code)

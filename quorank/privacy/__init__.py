"""What is done to an update before it leaves."""

from quorank.parts import Family
from quorank.privacy.mechanisms.gaussian import ClippedGaussian
from quorank.privacy.mechanisms.integer_sums import SecureSum
from quorank.privacy.mechanisms.mechanism import Mechanism, Plain
from quorank.privacy.mechanisms.none import NoPrivacy
from quorank.privacy.mechanisms.privacy import Privacy
from quorank.privacy.mechanisms.published import PublishedLaplace
from quorank.privacy.mechanisms.randomised_response import RandomisedResponse
from quorank.privacy.mechanisms.setting import Setting
from quorank.privacy.mechanisms.signs import Signs

PRIVACIES: Family[Privacy] = Family(
    "privacy",
    NoPrivacy,
    ClippedGaussian,
    PublishedLaplace,
    RandomisedResponse,
    SecureSum,
    Signs,
    base=Privacy,
)  # a new one: its file, and its name here

__all__ = [
    "PRIVACIES",
    "ClippedGaussian",
    "Mechanism",
    "NoPrivacy",
    "Plain",
    "Privacy",
    "PublishedLaplace",
    "RandomisedResponse",
    "SecureSum",
    "Setting",
    "Signs",
]

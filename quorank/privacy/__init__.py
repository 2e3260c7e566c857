"""What is done to an update before it leaves."""

from quorank.parts import Family
from quorank.privacy.gaussian import ClippedGaussian
from quorank.privacy.integer_sums import SecureSum
from quorank.privacy.mechanism import Mechanism, Plain
from quorank.privacy.none import NoPrivacy
from quorank.privacy.published import PublishedLaplace
from quorank.privacy.randomised_response import RandomisedResponse
from quorank.privacy.setting import Setting
from quorank.privacy.signs import Signs

Privacy = NoPrivacy | ClippedGaussian | PublishedLaplace | RandomisedResponse | SecureSum | Signs
PRIVACIES: Family[Privacy] = Family(
    "privacy", NoPrivacy, ClippedGaussian, PublishedLaplace, RandomisedResponse, SecureSum, Signs
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

"""Privacy mechanisms; `PRIVACIES` lists the parts.

Their mathematics: `clipping`, `discrete_gaussian` and `skellam` (stochastic rounding, noise in shares).
"""

from quorank.parts import Family
from quorank.privacy.mechanisms.gaussian import ClippedGaussian
from quorank.privacy.mechanisms.integer_sums import SecureSum
from quorank.privacy.mechanisms.mechanism import NoPrivacy, Privacy
from quorank.privacy.mechanisms.published import PublishedLaplace
from quorank.privacy.mechanisms.randomised_response import RandomisedResponse
from quorank.privacy.mechanisms.signs import Signs

PRIVACIES: Family[Privacy] = Family(
    "privacy", NoPrivacy, ClippedGaussian, PublishedLaplace, RandomisedResponse, SecureSum, Signs, base=Privacy
)  # a new one: its file, and its name here

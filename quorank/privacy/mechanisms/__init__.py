"""Privacy mechanisms: one part a file, each with the mechanism that it becomes for a run; `PRIVACIES` lists the parts.

The mathematics lies beside them: `clipping`, `correlated` (noise over rounds), `discrete_noise` (Skellam), `quantise`
(rounding to whole numbers); `figure_response` tells one figure from 0 to 1 by randomised response.
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

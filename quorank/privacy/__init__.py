"""Privacy: protection of updates before they leave a client, and the privacy loss of all releases of a run.

`mechanisms` are the parts, `secure_sum` the protocol that hides single updates, `accounting` and `ledger` compute ε,
`audit` tries to refute it, and `streams` draws the random numbers.
"""

from quorank.privacy.accounting import Setting
from quorank.privacy.mechanisms import PRIVACIES
from quorank.privacy.mechanisms.gaussian import ClippedGaussian
from quorank.privacy.mechanisms.integer_sums import SecureSum
from quorank.privacy.mechanisms.mechanism import Mechanism, NoPrivacy, Plain, Privacy
from quorank.privacy.mechanisms.published import PublishedLaplace
from quorank.privacy.mechanisms.randomised_response import RandomisedResponse
from quorank.privacy.mechanisms.signs import Signs

__all__ = [
    "PRIVACIES", "ClippedGaussian", "Mechanism", "NoPrivacy", "Plain", "Privacy", "PublishedLaplace", "RandomisedResponse",
    "SecureSum", "Setting", "Signs",
]  # fmt: skip

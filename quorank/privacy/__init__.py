"""What is done to an update before it leaves."""

from quorank.parts import Family
from quorank.privacy.none import NoPrivacy
from quorank.privacy.randomised_response import RandomisedResponse

Privacy = NoPrivacy | RandomisedResponse
PRIVACIES: Family[Privacy] = Family("privacy", NoPrivacy, RandomisedResponse)

__all__ = ["PRIVACIES", "NoPrivacy", "Privacy", "RandomisedResponse"]

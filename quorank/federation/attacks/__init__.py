"""Attacks by malicious updates and clicks, for measuring defences."""

from quorank.federation.attacks.attack import Attack
from quorank.federation.attacks.clicks import ClickPoisoning
from quorank.federation.attacks.fang import Fang
from quorank.federation.attacks.inner_product import InnerProduct
from quorank.federation.attacks.lies import Lies
from quorank.federation.attacks.little_is_enough import LittleIsEnough
from quorank.federation.attacks.mimic import Mimic
from quorank.federation.attacks.min_max import MinMax, MinSum
from quorank.federation.attacks.sign_flip import Scaled, SignFlip
from quorank.federation.attacks.tailored import Tailored
from quorank.parts import Family

ATTACKS: Family[Attack] = Family(
    "attack",
    ClickPoisoning,
    LittleIsEnough,
    Fang,
    SignFlip,
    Scaled,
    InnerProduct,
    MinMax,
    MinSum,
    Mimic,
    Tailored,
    Lies,
    base=Attack,
)

__all__ = [
    "ATTACKS", "Attack", "ClickPoisoning", "Fang", "InnerProduct", "Lies", "LittleIsEnough", "Mimic", "MinMax", "MinSum",
    "Scaled", "SignFlip", "Tailored",
]  # fmt: skip

"""Attacks by malicious updates and clicks, for measuring defences."""

from quorank.federation.attacks.attack import Attack
from quorank.federation.attacks.closed_form import ClickPoisoning, InnerProduct, LittleIsEnough, Mimic, Scaled, SignFlip
from quorank.federation.attacks.fang import Fang
from quorank.federation.attacks.lies import Lies
from quorank.federation.attacks.min_max import MinMax, MinSum
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

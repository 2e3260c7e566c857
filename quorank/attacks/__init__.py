"""Attacks: updates and clicks that do harm, for measuring defences."""

from quorank.attacks.clicks import ClickPoisoning
from quorank.attacks.fang import Fang
from quorank.attacks.inner_product import InnerProduct
from quorank.attacks.lies import Lies
from quorank.attacks.little_is_enough import LittleIsEnough
from quorank.attacks.mimic import Mimic
from quorank.attacks.min_max import MinMax, MinSum
from quorank.attacks.sign_flip import Scaled, SignFlip
from quorank.attacks.tailored import Tailored
from quorank.federation.attack import Attack
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
)  # a new one: its file, and its name here

__all__ = [
    "ATTACKS", "Attack", "ClickPoisoning", "Fang", "InnerProduct", "Lies", "LittleIsEnough", "Mimic", "MinMax", "MinSum",
    "Scaled", "SignFlip", "Tailored",
]  # fmt: skip

"""Attacks by malicious updates and clicks, for measuring defences."""

from quorank.federation.attacks.attack import Attack
from quorank.federation.attacks.closed_form import (
    ClickPoisoning,
    InnerProduct,
    LittleIsEnough,
    Mimic,
    MinMax,
    MinSum,
    Scaled,
    SignFlip,
)
from quorank.federation.attacks.fitted import Fang, Lies, Tailored, TwoPhase
from quorank.parts import Family

OF_UPDATES = (LittleIsEnough, Fang, SignFlip, Scaled, InnerProduct, MinMax, MinSum, Mimic, Tailored, TwoPhase)
ATTACKS: Family[Attack] = Family("attack", ClickPoisoning, *OF_UPDATES, Lies, base=Attack)

__all__ = [
    "ATTACKS", "Attack", "ClickPoisoning", "Fang", "InnerProduct", "Lies", "LittleIsEnough", "Mimic", "MinMax", "MinSum",
    "Scaled", "SignFlip", "Tailored", "TwoPhase",
]  # fmt: skip

"""Attacks: updates and clicks that do harm, for measuring defences."""

from quorank.attacks.clicks import ClickPoisoning
from quorank.attacks.fang import Fang
from quorank.attacks.lies import Lies
from quorank.attacks.little_is_enough import LittleIsEnough
from quorank.attacks.sign_flip import Scaled, SignFlip
from quorank.federation.attack import Attack
from quorank.parts import Family

ATTACKS: Family[Attack] = Family(
    "attack", ClickPoisoning, LittleIsEnough, Fang, SignFlip, Scaled, Lies, base=Attack
)  # a new one: its file, and its name here

__all__ = ["ATTACKS", "Attack", "ClickPoisoning", "Fang", "Lies", "LittleIsEnough", "Scaled", "SignFlip"]

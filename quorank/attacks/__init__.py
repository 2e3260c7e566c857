"""Updates and clicks that mean harm, for measuring defences."""

from quorank.attacks.clicks import ClickPoisoning
from quorank.attacks.fang import Fang
from quorank.attacks.little_is_enough import LittleIsEnough
from quorank.attacks.sign_flip import Scaled, SignFlip
from quorank.parts import Family

Attack = ClickPoisoning | LittleIsEnough | Fang | SignFlip | Scaled
ATTACKS: Family[Attack] = Family(
    "attack", ClickPoisoning, LittleIsEnough, Fang, SignFlip, Scaled
)  # a new one: its file, and its name here

__all__ = ["ATTACKS", "Attack", "ClickPoisoning", "Fang", "LittleIsEnough", "Scaled", "SignFlip"]

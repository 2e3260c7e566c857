"""Users: click models of those who search."""

from quorank.parts import Family
from quorank.users.click_model import Cascade, ClickModel, ClickTables, LoggedClicks, simulate_clicks
from quorank.users.position import PositionBased, TrustBias, UserBrowsing

# a new one: its file, its name here
CLICK_MODELS: Family[ClickModel] = Family(
    "click model", Cascade, PositionBased, TrustBias, UserBrowsing, LoggedClicks, base=ClickModel, word="users"
)

__all__ = [
    "CLICK_MODELS", "Cascade", "ClickModel", "ClickTables", "LoggedClicks", "PositionBased", "TrustBias", "UserBrowsing",
    "simulate_clicks",
]  # fmt: skip

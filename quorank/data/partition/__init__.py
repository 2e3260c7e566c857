"""Partitions: how data, preferences, clicks and interactions differ among clients (thesis chapter 4).

`even` changes nothing. Type 1 is `preferences`, type 2 `labels`, type 3 `clicks`, type 4 `quantity`; type 4 can be mixed
into types 1, 2 and 3 by their field `quantity`. `iid = true` makes a partition's twin: the same clients with data that do
not differ among them, each with the experiment's interactions. `assigned` names the client of each query, and `users`
divides a log of real clicks by the people who searched.
"""

from __future__ import annotations

from quorank.data.partition.labels import LabelSplit
from quorank.data.partition.preferences import Preferences
from quorank.data.partition.shares import ANY_CLICK_MODEL, Clicks, Even, Partition, Quantity, Shares
from quorank.data.partition.users import Assigned, LogUsers
from quorank.parts import Family

PARTITIONS: Family[Partition] = Family(
    "partition", Even, Preferences, LabelSplit, Clicks, Quantity, Assigned, LogUsers, base=Partition
)  # a new one: its file, and its name here

__all__ = [
    "ANY_CLICK_MODEL", "PARTITIONS", "Assigned", "Clicks", "Even", "LabelSplit", "LogUsers", "Partition", "Preferences",
    "Quantity",
    "Shares",
]  # fmt: skip

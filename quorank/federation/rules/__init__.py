"""How a cohort's updates become one: the mean of sums, and the rules that look at single updates."""

from __future__ import annotations

from quorank.federation.rules.mean import Mean
from quorank.federation.rules.robust import AGGREGATION_RULES, Robust
from quorank.parts import Family

Aggregation = Mean | Robust
AGGREGATIONS: Family[Aggregation] = Family(
    "aggregation", Mean, *AGGREGATION_RULES
)  # a new rule: its file, and its name in robust.py

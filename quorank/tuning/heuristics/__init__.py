"""Heuristics with named weights: frecency, Firefox's 22 weights, mail search, and constraints on weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorank import lazy_exports

if TYPE_CHECKING:
    from quorank.tuning.heuristics.heuristic import Heuristic, Order, Weight, one_by_one

__all__ = ["Heuristic", "Order", "Weight", "one_by_one"]

__getattr__ = lazy_exports(__name__, {"quorank.tuning.heuristics.heuristic": "Heuristic Order Weight one_by_one"})

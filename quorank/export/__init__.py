"""Rankers in other systems' formats: one module a target, each with its `ExportTarget`; `TARGETS` lists them."""

from __future__ import annotations

from quorank.errors import BadInput
from quorank.export.lightgbm import LIGHTGBM
from quorank.export.target import ExportTarget
from quorank.export.xgboost import XGBOOST
from quorank.parts import suggest

TARGETS: dict[str, ExportTarget] = {target.name: target for target in (LIGHTGBM, XGBOOST)}  # a new one: its name here


def target_of(name: str) -> ExportTarget:
    """Return the target of this name."""
    if name not in TARGETS:
        known = ", ".join(TARGETS)
        raise BadInput(
            "export.unknown-target", f"unknown format {name!r}{suggest(name, TARGETS)}; known: {known}", "--to"
        )
    return TARGETS[name]

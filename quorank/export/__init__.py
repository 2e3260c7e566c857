"""Rankers in other systems' formats: one module a target, each with its `ExportTarget`; `TARGETS` lists them."""

from __future__ import annotations

from quorank.errors import BadInput, suggest
from quorank.export.lightgbm import LIGHTGBM
from quorank.export.onnx import ONNX
from quorank.export.plugin import ELASTICSEARCH, OPENSEARCH
from quorank.export.ranklib import RANKLIB
from quorank.export.solr import SOLR
from quorank.export.target import ExportTarget
from quorank.export.vespa import VESPA
from quorank.export.xgboost import XGBOOST

_ALL = (ONNX, ELASTICSEARCH, OPENSEARCH, SOLR, VESPA, RANKLIB, LIGHTGBM, XGBOOST)  # a new one: its name here
TARGETS: dict[str, ExportTarget] = {target.name: target for target in _ALL}


def target_of(name: str, where: str = "--to") -> ExportTarget:
    """Return the target of this name."""
    if name not in TARGETS:
        known = ", ".join(TARGETS)
        sentence = f"unknown format {name!r}{suggest(name, TARGETS)}; known: {known}"
        raise BadInput("export.unknown-target", sentence, where)
    return TARGETS[name]

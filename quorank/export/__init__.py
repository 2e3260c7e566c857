"""Rankers in other systems' formats: one module for each format, with its writer and its checker."""

from __future__ import annotations

from quorank.errors import BadInput, suggest
from quorank.export.exported_ranker import ExportTarget
from quorank.export.lightgbm import LIGHTGBM
from quorank.export.onnx import ONNX
from quorank.export.plugin import ELASTICSEARCH, OPENSEARCH
from quorank.export.ranklib import RANKLIB
from quorank.export.solr import SOLR
from quorank.export.vespa import VESPA
from quorank.export.xgboost import XGBOOST

_ALL = (ONNX, ELASTICSEARCH, OPENSEARCH, SOLR, VESPA, RANKLIB, LIGHTGBM, XGBOOST)
TARGETS: dict[str, ExportTarget] = {target.name: target for target in _ALL}


def target_of(name: str, where: str = "--to") -> ExportTarget:
    """Return the target with a name."""
    if name not in TARGETS:
        sentence = f"unknown format {name!r}{suggest(name, TARGETS)}; known: {', '.join(TARGETS)}"
        raise BadInput("export.unknown-target", sentence, where)
    return TARGETS[name]

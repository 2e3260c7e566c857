"""Metrics of ranked lists, evaluation of rankers on a split, significance of differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorank import lazy_exports

if TYPE_CHECKING:
    from quorank.metrics.evaluator import Evaluator, intersection_distance
    from quorank.metrics.lists import dcg, discounted_sum, discounts, err, gain, ndcg
    from quorank.metrics.significance import Difference, bonferroni, paired_t, repeated_t, welch_t
    from quorank.metrics.trec_files import trec_qrels, trec_run

__all__ = [
    "Difference", "Evaluator", "bonferroni", "dcg", "discounted_sum", "discounts", "err", "gain", "intersection_distance",
    "ndcg", "paired_t", "repeated_t", "trec_qrels", "trec_run", "welch_t",
]  # fmt: skip

__getattr__ = lazy_exports(
    __name__,
    {
        "quorank.metrics.evaluator": "Evaluator intersection_distance",
        "quorank.metrics.lists": "dcg discounted_sum discounts err gain ndcg",
        "quorank.metrics.significance": "Difference bonferroni paired_t repeated_t welch_t",
        "quorank.metrics.trec_files": "trec_qrels trec_run",
    },
)

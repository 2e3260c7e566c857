"""Metrics by hand, by ir_measures, and by what must hold for every list."""

from __future__ import annotations

import shutil
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.metrics.lists import dcg, discounted_sum, err, ndcg

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=25)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (dcg([1, 0, 1]), 1 / log2(2) + 1 / log2(4)),
        (dcg([2, 4, 0, 3]), 3 / log2(2) + 15 / log2(3) + 7 / log2(5)),
        (dcg([0, 1, 1], k=2), 1 / log2(3)),
        (dcg([]), 0),
        (ndcg([0, 1], [0, 1]), 1 / log2(3)),
        (ndcg([0, 2, 1], [2, 1, 0]), (3 / log2(3) + 1 / log2(4)) / (3 / log2(2) + 1 / log2(3))),
        (ndcg([1, 0], [1, 0, 2, 2], k=2), 1 / (3 / log2(2) + 3 / log2(3))),  # the best list of all candidates
        (ndcg([0, 0], [0, 0]), 0),
        (err([2, 0, 4]), 3 / 16 / 1 + (1 - 3 / 16) * (0 / 16) / 2 + (1 - 3 / 16) * (1 - 0 / 16) * (15 / 16) / 3),
        (err([2], max_label=2), 3 / 4),
        (err([]), 0),
    ],
)
def test_metrics_by_hand(found, expected) -> None:
    assert found == pytest.approx(expected, rel=1e-15)


def test_discounted_sum_by_hand() -> None:
    assert discounted_sum([1, 2, 3], gamma=0.5) == 1 + 0.5 * 2 + 0.25 * 3
    assert discounted_sum([]) == 0
    # SPEC §1: a thousand rounds sum to at most 787.
    assert discounted_sum(np.ones(1000)) == pytest.approx((1 - 0.9995**1000) / (1 - 0.9995))
    assert int(discounted_sum(np.ones(1000))) == 787


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: dcg([1], k=0), "k: must be at least 1"),
        (lambda: dcg([-1]), "0 or more"),
        (lambda: dcg([float("nan")]), "not NaN"),
        (lambda: dcg([[1, 2]]), "flat list"),
        (lambda: err([3], max_label=2), "above max_label"),
        (lambda: discounted_sum([[1.0]]), "one value per round"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, says) -> None:
    with pytest.raises(BadInput, match=says):
        call()


def _against_ir_measures(measures) -> dict[str, dict[str, float]]:
    """The measures of 60 random rankings with distinct scores, so that no tool breaks a tie its own way."""
    import ir_measures

    random = np.random.default_rng(5)
    judged, scored, lists = [], [], {}
    for query in range(1, 61):  # gdeval takes numbers only
        labels = random.choice(5, size=random.integers(1, 31), p=[0.55, 0.2, 0.1, 0.1, 0.05])
        labels[random.integers(len(labels))] = 1 + query % 4  # something relevant: tools differ where nothing is
        lists[str(query)] = labels
        for rank, label in enumerate(labels):
            judged.append(ir_measures.Qrel(str(query), f"d{rank}", int(label)))
            scored.append(ir_measures.ScoredDoc(str(query), f"d{rank}", float(len(labels) - rank)))
    found: dict[str, dict[str, float]] = {}
    for value in ir_measures.iter_calc(measures, judged, scored):
        found.setdefault(str(value.measure), {})[value.query_id] = value.value
    return {name: {q: (lists[q], v) for q, v in values.items()} for name, values in found.items()}


def test_ndcg_agrees_with_ir_measures() -> None:
    from ir_measures import nDCG

    gains = nDCG(gains={1: 1, 2: 3, 3: 7, 4: 15}) @ 10
    found = _against_ir_measures([gains])
    assert len(found[str(gains)]) == 60
    for labels, value in found[str(gains)].values():
        assert ndcg(labels, labels) == pytest.approx(value, abs=1e-9)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("perl"), reason="gdeval, the tool behind these two measures, is a Perl script")
def test_exponential_ndcg_and_err_agree_with_gdeval() -> None:
    from ir_measures import ERR, nDCG

    exponential = nDCG(dcg="exp-log2") @ 10
    found = _against_ir_measures([exponential, ERR @ 10])
    # gdeval prints five decimals, and always takes 4 for the highest grade.
    for labels, value in found[str(exponential)].values():
        assert ndcg(labels, labels) == pytest.approx(value, abs=6e-6)
    for labels, value in found["ERR@10"].values():
        assert err(labels, max_label=4) == pytest.approx(value, abs=6e-6)


@given(LABELS, st.integers(1, 12))
def test_the_perfect_ranking_has_ndcg_one(labels: list[int], k: int) -> None:
    expected = 1.0 if any(labels) else 0.0
    assert ndcg(sorted(labels, reverse=True), labels, k) == pytest.approx(expected)


@given(LABELS, st.data())
def test_moving_a_better_document_up_never_lowers(labels: list[int], data: st.DataObject) -> None:
    upper = data.draw(st.integers(0, len(labels) - 1))
    lower = data.draw(st.integers(upper, len(labels) - 1))
    better = list(labels)
    if labels[lower] > labels[upper]:
        better[upper], better[lower] = labels[lower], labels[upper]
    assert ndcg(better, labels) >= ndcg(labels, labels) - 1e-12
    assert err(better) >= err(labels) - 1e-12


@given(LABELS)
def test_padding_with_irrelevant_documents_changes_nothing(labels: list[int]) -> None:
    longer = [*labels, 0, 0, 0]
    assert dcg(longer) == pytest.approx(dcg(labels))
    assert err(longer) == pytest.approx(err(labels))

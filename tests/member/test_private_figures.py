"""Figures that devices report privately: what they are, how they travel, what a coordinator shows of them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from chance import assert_follows, assert_mean
from devices import answered, device_of, simulator_of, task_of, terms_of, user_of
from hypothesis import given
from hypothesis import strategies as st

from quorank.cli.join import show_log, show_status
from quorank.federation.reply import decode_reply
from quorank.federation.rounds import Report
from quorank.member.client_privacy import mean_ndcg, private_report
from quorank.privacy.mechanisms.randomised_response import MetricResponse
from quorank.service.holders.devices import DECAY, LEAST_DEVICES, quality_of, reported_quality

CLIENTS, ROUNDS = 5, 3


def clicks(*ranks: int, shown: int = 10) -> np.ndarray:
    found = np.zeros(shown, dtype=np.bool_)
    found[[rank - 1 for rank in ranks]] = True
    return found


# the figure


def test_the_figure_of_a_list_by_hand() -> None:
    assert mean_ndcg([clicks()], 10) == 0.0
    assert mean_ndcg([clicks(1)], 10) == mean_ndcg([clicks(1, 2, 3)], 10) == 1.0
    assert mean_ndcg([clicks(3)], 10) == pytest.approx((1 / math.log2(4)) / (1 / math.log2(2)))
    both = (1 / math.log2(3) + 1 / math.log2(6)) / (1 / math.log2(2) + 1 / math.log2(3))
    assert mean_ndcg([clicks(2, 5)], 10) == pytest.approx(both)
    assert mean_ndcg([clicks(8)], 5) == 0.0, "what stands below k is not looked at"
    assert mean_ndcg([clicks(1), clicks(), clicks(3), clicks()], 10) == pytest.approx(1.5 / 4)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=6), st.integers(1, 12))
def test_the_figure_lies_between_0_and_1_and_a_list_more_moves_it_by_its_share(lists, k) -> None:
    found = [np.array(one, dtype=np.bool_) for one in lists]
    figure = mean_ndcg(found, k)
    assert 0.0 <= figure <= 1.0
    assert mean_ndcg([*found, clicks()], k) == pytest.approx(figure * len(found) / (len(found) + 1))


# on a device


def test_a_device_reports_by_the_law_and_only_where_that_was_agreed(tiny_collection) -> None:
    simulator = simulator_of(tiny_collection)
    silent = terms_of(simulator, 0)
    assert private_report(silent, [clicks(1)], lambda n: pytest.fail("drawn"), 0) == ((0.0, 0.0, 0.0), {})
    terms = terms_of(simulator, 0, report_epsilon=2.0)
    random, sent, asked = np.random.default_rng(5), [], []
    figure = terms.metric_response

    def entropy(count: int) -> bytes:
        asked.append(count)
        return random.bytes(count)

    lists = [clicks(3), clicks(1), clicks()]  # 0.5, 1 and 0: their mean is one of the three values
    for _ in range(2000):
        statistics, note = private_report(terms, lists, entropy, 4)
        assert statistics[1:] == (0.0, 0.0) and note["report"]["epsilon_per_report"] == 2.0
        assert note["report"]["value"] == figure.unbiased(statistics[0])
        sent.append(int(statistics[0]))
    assert set(asked) == {32} and len(asked) == 2000
    share = 1.0 / (math.exp(2.0) + 2.0)
    assert_follows(sent, {0: share, 1: math.exp(2.0) * share, 2: share})
    assert_mean([figure.unbiased(steps) for steps in sent], 0.5)


def test_a_device_s_reply_holds_its_report_and_its_log_says_so(tiny_collection, tmp_path, capsys) -> None:
    simulator = simulator_of(tiny_collection)
    user, task = user_of(simulator), task_of(simulator)
    device = device_of(simulator, tmp_path / "a", report_epsilon=1.0)
    first = answered(device, user, task)
    assert device.answer(task) == first, "the same bytes again, never a second report"
    reply = decode_reply(first)
    plain = decode_reply(answered(device_of(simulator, tmp_path / "b"), user_of(simulator), task))
    assert np.array_equal(reply.release, plain.release) and plain.statistics == (0.0, 0.0, 0.0)
    assert reply.statistics in {(0.0, 0.0, 0.0), (1.0, 0.0, 0.0)}
    (release,) = device.store.releases()
    report = release.privacy["report"]
    assert report["value"] == MetricResponse(1.0).unbiased(reply.statistics[0])
    assert (report["epsilon"], report["epsilon_per_report"], report["delta"]) == (4.0, 1.0, 0.0)
    device.store.set_note("terms", device.terms.table())
    device.store.close()
    show_log(tmp_path / "a", json=False)
    told = " ".join(capsys.readouterr().out.split())
    assert f"{report['value']:.4g}" in told and "ε = 1 each (δ = 0, unit: client)" in told
    assert "4 reports, one a round, by adding up: ε = 4" in told
    show_log(tmp_path / "a", json=True)
    assert json.loads(capsys.readouterr().out)["releases"][0]["privacy"]["report"] == report
    show_status(tmp_path / "a", json=False)
    assert "in addition to the ε of the updates" in " ".join(capsys.readouterr().out.split())


# what a coordinator makes of it


def round_of(number: int, participants: int, figure: float) -> Report:
    return Report(number, 4 * participants, figure, 0.0, 0.0, 1.0, participants, math.nan, 0.0)


def test_the_figures_of_rounds_against_brute_force() -> None:
    """Each device's report is drawn many times; mean, error and smoothed error are those of the draws."""
    figure, random = MetricResponse(2.0), np.random.default_rng(3)
    truths = [np.full(6, 0.5), np.full(2, 0.1), np.full(9, 0.25), np.full(4, 0.75)]  # 0.25: the worst figure
    p, q = math.exp(2.0) / (math.exp(2.0) + 2.0), 1.0 / (math.exp(2.0) + 2.0)
    found = []
    for _ in range(4000):
        reports = []
        for number, figures in enumerate(truths, start=1):
            true = np.floor(figures * 2 + random.random(len(figures))).astype(int)
            others = (true + random.integers(1, 3, len(true))) % 3
            sent = np.where(random.random(len(true)) < p, true, others)
            reports.append(round_of(number, len(sent), figure.unbiased(int(sent.sum()), len(sent))))
        found.append(quality_of(reports, figure, "q"))
    first = found[0]
    assert (first.devices, first.round) == (4, 4)
    weights = [DECAY**3 * 6, DECAY * 9, 1.0 * 4]
    expected = np.dot(weights, [0.5, 0.25, 0.75]) / sum(weights)
    assert_mean([[one.value, one.smoothed] for one in found], [0.75, expected])
    assert first.error == pytest.approx(math.sqrt(figure.variance / 4))
    spread = np.std([one.value for one in found])
    assert spread == pytest.approx(first.error, rel=0.05), "0.75 is a worst figure too"
    by_hand = math.sqrt(sum(w**2 * figure.variance / n for w, n in zip(weights, (6, 9, 4), strict=True)))
    assert first.smoothed_error == pytest.approx(by_hand / sum(weights))
    assert np.std([one.smoothed for one in found]) <= first.smoothed_error * 1.03
    assert q < p


def test_a_figure_of_too_few_devices_is_not_shown() -> None:
    figure = MetricResponse(1.0)
    few = [round_of(1, LEAST_DEVICES - 1, 0.4)]
    assert quality_of(few, None, "q") is None and reported_quality(few[0], figure) == (None, None)
    assert quality_of([], figure, "q").best is None and quality_of(few, figure, "q").best is None
    one = quality_of([*few, round_of(2, LEAST_DEVICES, 0.6), round_of(3, 1, 0.9), round_of(4, 0, 0.0)], figure, "q")
    assert one is not None and (one.round, one.value, one.smoothed) == (2, 0.6, pytest.approx(0.6))
    assert one.best == (one.smoothed, one.smoothed_error) and reported_quality(round_of(2, 40, 0.5), figure) == (
        0.5,
        figure.error(40),
    )
    hidden = quality_of([round_of(1, 50, 0.6), round_of(2, 40, 0.5)], figure, "q", planned=45)
    assert (hidden.devices, hidden.error) == (45, figure.error(45))
    many = [round_of(number, 10, 0.5) for number in range(1, 5000)]
    assert quality_of(many, figure, "q").smoothed == pytest.approx(0.5)
    tail = math.sqrt(figure.variance / 10 * (1 - DECAY) / (1 + DECAY))
    assert quality_of(many, figure, "q").smoothed_error == pytest.approx(tail)

"""Noise on released cells: drawn as it is written, the published form broken, the strict form within e^ε."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from chance import UNLIKELY, assert_follows, assert_mean
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quorank.errors import BadInput
from quorank.silos.count_sketch import Hashing, sketch_rows
from quorank.silos.discrete_laplace import (
    AddressedStream,
    SystemStream,
    below,
    draw_noise,
    scale_for,
    true_with_exponential,
)
from quorank.silos.generated import TermCounts
from quorank.silos.holdings import index_of
from quorank.silos.sketch.questions import QuestionProtocol, one_sample_noise, strict_lengths, strict_table

HASHING = Hashing(bytes(range(32)), 5, 12)
DOCUMENT = {"star": 3, "ship": 1, "moon": 2, "tide": 5}
EXTRA = "moon"


def sketch(counts, hashing=HASHING) -> np.ndarray:
    """Return the (z, w) Count Sketch of a document."""
    terms = TermCounts(np.array([0, len(counts)]), np.arange(len(counts)), np.array(list(counts.values())))
    return np.concatenate([row.toarray() for row in sketch_rows(index_of(terms, list(counts)), hashing, "count")])


def neighbours(extra: str = EXTRA, hashing=HASHING) -> tuple[np.ndarray, np.ndarray]:
    """A document, and the same with one occurrence more."""
    return sketch(DOCUMENT, hashing), sketch(DOCUMENT | {extra: DOCUMENT.get(extra, 0) + 1}, hashing)


def probability(k: int, scale: float) -> float:
    """P(k) = (1 − q)/(1 + q)·q^|k|, q = e^(−1/scale)."""
    return math.tanh(0.5 / scale) * math.exp(-abs(k) / scale)


def deviation(scale: float) -> float:
    """The standard deviation, √(2q)/(1 − q) = 1/(√2 sinh(1/(2 scale)))."""
    return 1.0 / (math.sqrt(2.0) * math.sinh(0.5 / scale))


# ---------------------------------------------------------------- the distribution


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5, 3), Fraction(60)])
@pytest.mark.parametrize("stream", ["addressed", "system"])
def test_draws_follow_the_discrete_laplace_distribution(scale, stream) -> None:
    sample = draw_noise(AddressedStream(4) if stream == "addressed" else SystemStream(bytes(32)), scale, 40_000)
    edge = math.ceil(12 * scale)
    folded = np.clip(sample, -edge - 1, edge + 1)
    expected = {k: probability(k, float(scale)) for k in range(-edge, edge + 1)}
    tail = (1 - sum(expected.values())) / 2
    assert_follows(folded.tolist(), expected | {-edge - 1: tail, edge + 1: tail})
    assert_mean(sample, 0.0)
    assert_mean((sample / deviation(float(scale))) ** 2, 1.0)


def test_whole_numbers_below_n_are_uniform_and_exponential_coins_are_right() -> None:
    words = AddressedStream(5).words(60_000)
    found, at = [], 0
    while at < 30_000:
        number, at = below(words, at, 7)
        found.append(int(number))
    assert_follows(found, dict.fromkeys(range(7), 1 / 7))
    for u, t in ((0, 5), (2, 5), (5, 5), (1, 1)):
        coins, at = [], 0
        while at < 50_000:
            coin, at = true_with_exponential(words, at, u, t)
            coins.append(bool(coin))
        assert_follows(coins, {True: math.exp(-u / t), False: 1 - math.exp(-u / t)})


def test_running_out_of_words_changes_nothing(monkeypatch) -> None:
    """A draw that is cut short goes on with the same words: otherwise long draws, large numbers, would be rarer."""
    whole = draw_noise(AddressedStream(6), Fraction(7), 500)
    monkeypatch.setattr("quorank.silos.discrete_laplace._WORDS_EACH", 0)

    class Drops(AddressedStream):
        def words(self, count):
            return super().words(4)  # four words at a time, where a draw takes eight or so

    assert np.array_equal(draw_noise(Drops(6), Fraction(7), 500), whole)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), 1e-7, "0.5"])
def test_epsilons_that_cannot_be_are_refused(epsilon) -> None:
    with pytest.raises(BadInput, match="epsilon"):
        QuestionProtocol(epsilon=epsilon)


@given(st.integers(1, 257), st.floats(1e-3, 1e3))
def test_the_scale_is_never_less_than_asked_for(sensitivity, epsilon) -> None:
    scale = scale_for(sensitivity, epsilon)
    assert scale >= sensitivity / Fraction(str(epsilon))
    assert float(scale) <= sensitivity / epsilon * 1.0011


# ---------------------------------------------------------------- sensitivity


@given(
    st.dictionaries(st.text(min_size=1, max_size=4), st.integers(1, 9), min_size=1, max_size=9),
    st.text(min_size=1, max_size=4),
    st.integers(0, 2**16),
)
def test_one_occurrence_changes_one_cell_of_each_row_by_one(counts, extra, seed) -> None:
    hashing = Hashing(seed.to_bytes(16, "little"), 7, 5)
    change = np.abs(sketch(counts | {extra: counts.get(extra, 0) + 1}, hashing) - sketch(counts, hashing))
    assert change.sum() == 7 and change.max() == 1 and np.all(change.sum(axis=1) == 1)


# ---------------------------------------------------------------- as published: broken


def published_answer(sketched: np.ndarray, columns: np.ndarray, stream) -> np.ndarray:
    z = len(sketched)
    cells = sketched[np.arange(z), columns].astype(np.int64)
    return cells + one_sample_noise(np.zeros(z, np.int64), 0.5, stream)


def test_one_published_answer_tells_two_neighbours_apart_with_certainty() -> None:
    """Row 0 asks for the cell of the extra term, row 1 for another cell: their difference has no noise in it."""
    one, two = neighbours()
    columns = HASHING.places([EXTRA])[0][0].copy()
    columns[1] = (columns[1] + 1) % HASHING.columns
    stream = AddressedStream(2)
    differences = [
        {int(a[0] - a[1]) for a in (published_answer(t, columns, stream) for _ in range(300))} for t in (one, two)
    ]
    assert len(differences[0]) == len(differences[1]) == 1
    assert differences[0] != differences[1]  # one event of probability 1 here and 0 there: no ε bounds that


def test_even_the_question_of_an_honest_asker_tells_neighbours_apart() -> None:
    """All rows about the extra term itself: the signs differ, so the cells move in different directions."""
    one, two = neighbours()
    columns, signs = HASHING.places([EXTRA])
    assert set(signs[0].tolist()) == {-1, 1}
    stream = AddressedStream(3)
    a, b = (published_answer(t, columns[0], stream) for t in (one, two))
    assert not np.array_equal(a - a[0], b - b[0])


def test_the_median_alone_is_as_private_as_theorem_1_says() -> None:
    """The median moves by at most one, so its exact distribution is within e^ε; it is just not what is sent."""
    one, two = neighbours()
    columns, signs = HASHING.places([EXTRA])
    medians = [int(np.median(signs[0] * t[np.arange(5), columns[0]])) for t in (one, two)]
    assert abs(medians[0] - medians[1]) <= 1
    for k in range(-40, 40):
        ratio = probability(k - medians[0], 2.0) / probability(k - medians[1], 2.0)
        assert math.exp(-0.5) * (1 - 1e-9) <= ratio <= math.exp(0.5) * (1 + 1e-9)


def test_fresh_samples_wash_out_when_the_same_question_is_repeated() -> None:
    one, two = neighbours()
    columns, signs = HASHING.places([EXTRA])
    stream = AddressedStream(9)
    means = [
        np.mean(
            [
                np.median(signs[0] * t[np.arange(5), columns[0]]) + draw_noise(stream, Fraction(2), 1)[0]
                for _ in range(900)
            ]
        )
        for t in (one, two)
    ]
    assert means[1] - means[0] > 0.5  # they differ by one, with a standard error of 0.13


# ---------------------------------------------------------------- strict: within e^ε


def exact_ratios(one: np.ndarray, two: np.ndarray, scale: float, reach: int) -> np.ndarray:
    """log P(output | one) / P(output | two) of every output within reach, by enumeration."""
    outputs = itertools.product(range(-reach, reach + 1), repeat=len(one))
    logs = []
    for output in outputs:
        pairs = zip(output, one, two, strict=True)
        logs.append(sum((abs(o - y) - abs(o - x)) / scale for o, x, y in pairs))
    return np.array(logs)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_every_release_of_a_table_is_within_e_to_epsilon_and_the_bound_is_reached(rows, epsilon) -> None:
    """The cells that differ between neighbours, and the length."""
    hashing = Hashing(bytes(range(16)), rows, 12)
    one, two = neighbours(hashing=hashing)
    columns, length = hashing.places([EXTRA])[0][0], sum(DOCUMENT.values())
    released = [
        [*t[np.arange(rows), columns].tolist(), length - 10 + more] for more, t in enumerate((one, two))
    ]  # shifted: only differences matter
    scale = float(scale_for(rows + 1, epsilon))
    assert np.abs(exact_ratios(*released, scale, 7)).max() == pytest.approx(epsilon)  # not more, and no noise is wasted
    assert np.abs(exact_ratios(*released, scale / 2, 7)).max() == pytest.approx(2 * epsilon)  # half of it is noticed


def log_ratio_limits(one: np.ndarray, two: np.ndarray) -> tuple[float, int]:
    """The largest lower confidence limit of log P(event | one)/P(event | two) over all cells of a grid of events."""
    keys, events = np.unique(np.concatenate((one, two)), axis=0, return_inverse=True)
    a = np.bincount(events[: len(one)], minlength=len(keys))
    b = np.bincount(events[len(one) :], minlength=len(keys))
    worst, tested = 0.0, 0
    level = UNLIKELY / (4 * len(keys))
    for x, y in [*zip(a, b, strict=True), *zip(b, a, strict=True)]:
        if x + y < 40:
            continue
        tested += 1
        low = stats.beta.ppf(level, x, len(one) - x + 1) if x else 0.0
        high = stats.beta.isf(level, y + 1, len(one) - y) if y < len(one) else 1.0
        if low > 0:
            worst = max(worst, math.log(low / high))
    return worst, tested


def test_every_cell_of_a_table_gets_noise_of_its_own() -> None:
    empty, stream = np.zeros((3, 8), dtype=np.int32), AddressedStream(12)
    noisy = np.array([strict_table(empty, 1.0, stream) for _ in range(4000)])
    scale = float(scale_for(4, 1.0))
    assert_mean((noisy.reshape(4000, 24) / deviation(scale)) ** 2, np.ones(24))
    assert_follows(np.clip(noisy[:, 1, 3], -1, 1).tolist(), {
        0: probability(0, scale), 1: (1 - probability(0, scale)) / 2, -1: (1 - probability(0, scale)) / 2,
    })  # fmt: skip
    correlation = np.corrcoef(noisy.reshape(4000, 24).T)[np.triu_indices(24, 1)]
    assert np.abs(correlation).max() < stats.norm.isf(UNLIKELY / 276 / 2) / math.sqrt(4000)


@pytest.mark.parametrize(("epsilon", "spoilt"), [(1.0, False), (3.0, True)])
def test_many_noisy_tables_of_neighbours_stay_within_the_bound(epsilon, spoilt) -> None:
    """Events over the cells that differ and the length's noise, ε = 1 claimed, one row. Three times the ε is noticed."""
    hashing = Hashing(bytes(range(16)), 1, 4)
    one, two = neighbours(hashing=hashing)
    stream = AddressedStream(13)
    column = int(hashing.places([EXTRA])[0][0, 0])
    length = sum(DOCUMENT.values())
    drawn = []
    for t, exact in ((one, length), (two, length + 1)):
        stacked = np.tile(t[:, column : column + 1], (1, 120_000)).astype(np.int32)
        cells = strict_table(stacked, epsilon, stream)[0] - one[0, column]
        lengths = strict_lengths(np.full(120_000, exact), 1, epsilon, stream) - length
        drawn.append(np.clip(np.stack((cells, lengths), axis=1), -3, 4))
    worst, tested = log_ratio_limits(*drawn)
    assert tested > 50 and worst > 0.7
    assert (worst > 1.0) == spoilt


# ---------------------------------------------------------------- the protocol


def test_strict_lengths_have_the_noise_of_a_cell() -> None:
    lengths = np.arange(1, 2000)
    noise = strict_lengths(lengths, 5, 0.5, AddressedStream(3)) - lengths
    assert_mean((noise / deviation(float(scale_for(6, 0.5)))) ** 2, 1.0)


def test_one_sample_is_shared_by_the_rows_of_a_document_and_not_by_documents() -> None:
    noise = one_sample_noise(np.tile(np.arange(300), 4), 0.1, AddressedStream(1)).reshape(4, 300)
    assert np.all(noise == noise[0]) and len(set(noise[0].tolist())) > 20

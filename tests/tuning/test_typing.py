"""Generated histories and typists: exact distributions, and that a better heuristic types less."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from chance import UNLIKELY, assert_follows, assert_mean
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.histories.generated import (
    LAST,
    SIGMA,
    HistorySetting,
    Suggestions,
    draw_choices,
    generate_suggestions,
)
from quorank.tuning.searches import slice_searches
from quorank.tuning.studies.address_bar import (
    DECAY,
    PageOrder,
    People,
    Persons,
    PersonSearches,
    decayed,
    draw_searches,
    generate_persons,
    observe_study,
    observe_typing,
    simulate_typing,
)
from quorank.tuning.studies.study import Study

WORLD = generate_suggestions(1, 3000)


def test_visits_are_an_exponential_with_mean_seven_rounded_up() -> None:
    p = {n: math.exp(-(n - 1) / 7) - math.exp(-n / 7) for n in range(1, 400)}
    p[399] += 1 - sum(p.values())
    assert_follows(WORLD.visits.tolist(), p)
    assert WORLD.visits.mean() == pytest.approx(1 / (1 - math.exp(-1 / 7)), rel=0.02)  # 7.51, not 1/7


def test_buckets_and_types_have_their_shares() -> None:
    setting = HistorySetting()
    seen = WORLD.recency >= 0
    assert_follows(WORLD.recency[seen].tolist(), dict(enumerate(setting.recency)))
    assert_follows(WORLD.type[seen].tolist(), dict(enumerate(setting.types)))
    table = np.zeros((5, 7))
    np.add.at(table, (WORLD.recency[seen], WORLD.type[seen]), 1)
    p = stats.chi2_contingency(table[:, table.any(axis=0)]).pvalue
    assert p > UNLIKELY, "recency and type are independent (§6.1)"


def test_the_number_of_suggestions_is_a_clipped_normal() -> None:
    sizes = np.diff(WORLD.offsets)
    cdf = stats.norm(10, 4).cdf
    p = {n: cdf(n + 0.5) - cdf(n - 0.5) for n in range(3, 20)} | {2: cdf(2.5), 20: 1 - cdf(19.5)}
    assert_follows(sizes.tolist(), p)


def test_sampled_visits_are_the_last_ten_and_nothing_else_is_filled() -> None:
    assert np.array_equal(WORLD.sampled, np.minimum(WORLD.visits, LAST))
    there = np.arange(LAST)[None, :] < WORLD.sampled[:, None]
    assert np.array_equal(WORLD.recency >= 0, there) and np.array_equal(WORLD.type >= 0, there)
    assert (WORLD.chosen == -1).all()


@pytest.mark.parametrize("habit", [0.5, 1.0])
def test_habit_keeps_the_shares_and_ties_the_visits_of_a_page(habit: float) -> None:
    setting = HistorySetting(habit=habit)
    world = generate_suggestions(3, 2000, setting=setting)
    assert_follows(world.type[world.sampled == 1, 0].tolist(), dict(enumerate(setting.types)))
    assert_follows(world.recency[world.sampled == 1, 0].tolist(), dict(enumerate(setting.recency)))
    two = world.sampled >= 2
    # both by habit, or one of them not and equal by chance
    by_chance = sum(share**2 for share in setting.types)
    assert_mean(world.type[two, 0] == world.type[two, 1], habit**2 + (1 - habit**2) * by_chance)


def test_choices_without_noise_are_the_best_and_ties_go_to_the_first() -> None:
    scores = np.repeat([1.0], len(WORLD.visits))
    assert (draw_choices(1, WORLD, scores, sigma=0.0).chosen == 0).all()
    scores = np.random.default_rng(5).random(len(WORLD.visits))
    best = [int(scores[a:b].argmax()) for a, b in zip(WORLD.offsets, WORLD.offsets[1:], strict=False)]
    assert draw_choices(1, WORLD, scores, sigma=0.0).chosen.tolist() == best


def test_choices_between_two_follow_the_normal_distribution() -> None:
    pairs = generate_suggestions(1, 20000, setting=HistorySetting(suggestions=2, spread=0, most=2))
    scores = np.tile([0.0, 6.0], 20000)
    chosen = draw_choices(9, pairs, scores).chosen
    assert_mean(chosen, stats.norm.cdf(6.0 / (SIGMA * math.sqrt(2))))
    assert pytest.approx(30.0) == SIGMA**2
    part = draw_choices(9, slice_searches(pairs, 100, 200), scores[200:400], first=100)
    assert np.array_equal(part.chosen, chosen[100:200])


SMALL = People(pages=30.0, spread=10.0, searches=5.0)


def one_person(texts: list[str]) -> Persons:
    """A person with these pages; everything that typing does not look at is left empty."""
    n = len(texts)
    letters = np.frombuffer("".join(texts).encode(), np.uint8)
    ends = np.cumsum([0, *map(len, texts)])
    none = Suggestions(np.array([0, n]), *(np.empty(0) for _ in range(5)))
    return Persons(0, none, np.zeros(n), np.zeros(n), letters, ends)


def by_hand(texts: list[str], scores: list[float], page: int, start: int, looks: int, shown: int) -> tuple[int, int]:
    """Types one letter after the other, filters and sorts all pages, and looks."""
    words = texts[page][start:]
    for typed in range(1, len(words) + 1):
        match = [i for i, text in enumerate(texts) if f" {words[:typed]}" in f" {text}"]
        rank = sorted(match, key=lambda i: (-scores[i], i)).index(page)
        if (typed >= looks and rank < shown) or typed == len(words):
            return typed, rank
    raise AssertionError


TEXT = st.text("ab ", min_size=1, max_size=6).map(lambda t: " ".join(t.split())).filter(bool)


@given(data=st.data(), texts=st.lists(TEXT, min_size=1, max_size=8))
def test_typing_is_what_a_letter_by_letter_search_says(data: st.DataObject, texts: list[str]) -> None:
    n = len(texts)
    scores = data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=n, max_size=n))
    page = data.draw(st.integers(0, n - 1))
    starts = [i for i in range(len(texts[page])) if i == 0 or texts[page][i - 1] == " "]
    start = data.draw(st.sampled_from(starts))
    looks, shown = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 3)))
    group = one_person(texts)
    search = PersonSearches(
        np.array([0]), np.array([page]), np.array([int(group.texts[page]) + start]), np.array([looks])
    )
    typed = simulate_typing(group, search, np.array(scores), People(shown=shown))
    expected = by_hand(texts, scores, page, start, looks, shown)
    assert (int(typed.characters[0]), int(typed.rank[0])) == expected


def test_people_are_the_same_alone() -> None:
    many, alone = generate_persons(1, 0, 6, SMALL), generate_persons(1, 4, 2, SMALL)
    low = int(many.suggestions.offsets[4])
    assert np.array_equal(many.truth[low:], alone.truth) and np.array_equal(many.idle[low:], alone.idle)
    assert np.array_equal(many.letters[many.texts[low] :], alone.letters)
    rankers = {"a": PageOrder(FRECENCY.shipped)}
    all_ = observe_typing(1, 0, 600, SMALL, rankers)["a"]
    part = observe_typing(1, 300, 300, SMALL, rankers)["a"]
    late = all_.client >= 300
    assert all(np.array_equal(x[late], y) for x, y in zip(all_, part, strict=True))


def test_the_truth_is_frecency_by_the_taste_of_the_population_where_nobody_differs() -> None:
    same = replace(SMALL, own=0.0)
    group = generate_persons(3, 0, 5, same)
    expected = FRECENCY.score(np.array([same.taste]), group.suggestions)[0]
    assert np.allclose(group.truth, expected)


def test_wanted_pages_follow_the_true_score() -> None:
    people = People(pages=4.0, spread=0.0, searches=200_000.0, sharpness=0.7)
    group = generate_persons(6, 1, 1, people)
    searches = draw_searches(6, group, people)
    assert len(searches.page) > 20_000
    p = group.truth**0.7 / (group.truth**0.7).sum()
    assert_follows(searches.page[:20_000].tolist(), dict(enumerate(p.tolist())))
    by_name = searches.start == group.texts[searches.page]
    assert_mean(by_name[:20_000], people.by_name)


def test_decay_by_hand() -> None:
    assert decayed(np.array([8.0, 8.0, 8.0]), np.array([0.9, 1.0, 3.5]), 0.5).tolist() == [8.0, 4.0, 1.0]
    group = generate_persons(1, 0, 2, SMALL)
    plain, with_decay = PageOrder(FRECENCY.shipped), PageOrder(FRECENCY.shipped, DECAY)
    expected = plain.scores(group) * 0.975 ** np.floor(group.idle)
    assert np.allclose(with_decay.scores(group), expected)


def test_a_better_heuristic_types_less() -> None:
    """Ranked by what they want, people type less than under the shipped weights; upside down, they type more."""
    people = People(pages=60.0, spread=20.0)
    taste = np.array(people.taste)
    upside_down = np.concatenate((-taste[:5], taste[5:]))
    rankers = {"shipped": PageOrder(FRECENCY.shipped), "own": PageOrder(taste), "upside down": PageOrder(upside_down)}
    means = {name: typed.characters.mean() for name, typed in observe_typing(1, 0, 1500, people, rankers).items()}
    assert means["own"] < means["shipped"] - 0.2 and means["shipped"] < means["upside down"] - 0.5


def test_arms_of_a_study_get_their_rankers() -> None:
    study, people = Study("frecency"), People(pages=40.0, spread=15.0)
    taste, shipped = np.array(people.taste), FRECENCY.shipped
    found = observe_study(1, study, people, taste, 0, 60)
    orders = (PageOrder(taste), PageOrder(shipped, DECAY), PageOrder(shipped))
    plain = observe_typing(1, 0, 60, people, dict(zip(study.arms, orders, strict=True)))
    for arm in study.arms:
        for client, characters in zip(found[arm].client, found[arm].characters, strict=True):
            assert study.assign(f"person-{client}") == arm
            assert characters in plain[arm].characters[plain[arm].client == client]
    assert set(np.concatenate([typed.client for typed in found.values()]).tolist()) == set(range(60))

"""Simulator of typing into an address bar: characters typed and rank selected (Hartmann et al. 2019, §6.2).

The two metrics of the study are the characters typed before a suggestion is selected, and its rank, counted from 0.
The paper's come from real people; here a person has a history of pages from the generator of §6.1
(`histories.generated`), and each page has an address and a title. Wanted pages follow the person's taste: frecency
(§4) with weights scattered around those of the whole population. A ranker that knows these weights shows wanted pages
earlier, so fewer letters are typed.

The text of a page is the name of its site and three words of its title. Words are made of syllables and used as often
as Zipf's law says, one over their rank, so sites and words recur among the pages of a person, and beginnings are
shared.

Pages that match what has been typed so far are ranked by frecency. A person types letter by letter what they remember
of the wanted page, looks up after a few letters and then after each, and takes the page as soon as it is among the
first `shown`; after all of it the person reads the whole list. A longer text never matches more pages, so a single pass
over the pages that score higher is enough: the longest beginning that each of them matches says for how long it stands
above the wanted page.

Every draw has an address, so a person is the same alone or among a million, under every ranker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Bytes, Doubles, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, key_of, normal_pair, uniform_pair
from quorank.tuning.heuristics.frecency import BUCKETS, FRECENCY, TYPES
from quorank.tuning.histories.generated import (
    VOCABULARY,
    HistorySetting,
    Suggestions,
    generate_suggestions,
    idle_days,
    visits_of,
    vocabulary,
)
from quorank.tuning.studies.study import Study, TypedSearches

CHUNK = 256  # persons at once: their pages stay in memory for a moment only
DECAY = 0.025  # Firefox multiplied every score by 0.975 once a day; the paper says "a few percentage"
SPACE = 32
WORDS = 4  # of a page: the site's name and three of its title
_TEXT, _TASTE = 2, 4  # rounds of Purpose.HISTORY; the others are in `histories`
_WANTED, _SEARCHES = 1, 2  # rounds of Purpose.CHOICE


@dataclass(frozen=True)
class People:
    """Parameters of a population: histories, taste, and reading of suggestions."""

    pages: float = 150.0  # in a person's history, on average
    spread: float = 60.0  # standard deviation of that
    searches: float = 12.0  # of a person, on average; the paper's evaluation had 3,674,063 of 306,200
    # the population's true weights of frecency
    taste: tuple[float, ...] = (100.0, 90.0, 80.0, 70.0, 60.0, 0.1, 5.0, 5.0, 0.0)
    own: float = 0.3  # standard deviation of the logarithm of a person's weights around these
    sharpness: float = 1.3  # a page is wanted in proportion to its true score to this power
    looks_after: float = 1.5  # letters beyond the first before a person looks up; median over persons
    pace: float = 0.7  # standard deviation of the logarithm of that between persons
    shown: int = 2  # suggestions that a person reads
    by_name: float = 0.8  # share of searches by the site's name; the others begin at a word of the title
    # frequency, recency and types of visits
    history: HistorySetting = field(default_factory=lambda: HistorySetting(habit=0.8))

    @property
    def setting(self) -> HistorySetting:
        """Setting of the generator whose blocks are whole histories."""
        return replace(self.history, suggestions=self.pages, spread=self.spread, fewest=2, most=10_000)


class Persons(NamedTuple):
    """Histories of persons `first`, `first + 1`, …: one block of pages each."""

    first: int
    suggestions: Suggestions
    idle: Doubles  # (pages,): days since the last visit
    truth: Doubles  # (pages,): the score by the person's own taste
    letters: Bytes  # the words of all pages, a space between two words
    texts: Integers  # (pages + 1,): where each page's words begin


class PersonSearches(NamedTuple):
    """Searches of persons: client, page, first typed letter, and letters before the first look."""

    client: Integers
    page: Integers  # counted over all pages of `Persons`
    start: Integers  # place in `letters` of the first letter that is typed
    looks: Integers


def generate_persons(seed: int, first: int, count: int, people: People) -> Persons:
    """Generate persons `first` to `first + count` of a population under a seed."""
    require_range("first", first, least=0, most=2**32 - count)
    suggestions = generate_suggestions(seed, count, first=first, setting=people.setting)
    idle, truth = idle_days(seed, suggestions, first=first), np.empty(len(suggestions.visits))
    _truth(key_of(seed, Purpose.HISTORY), first, suggestions, np.array(people.taste), people.own, truth)
    letters, texts = page_texts(seed, first, suggestions.offsets)
    return Persons(first, suggestions, idle, truth, letters, texts)


def draw_searches(seed: int, group: Persons, people: People) -> PersonSearches:
    """Draw all searches of these persons: ⌈Exp(mean)⌉ each."""
    key = key_of(seed, Purpose.CHOICE)
    each = np.empty(len(group.suggestions.offsets) - 1, np.int64)
    _how_many(key, group.first, people.searches, each)
    found = PersonSearches(*np.empty((4, int(each.sum())), np.int64))
    _want(key, group, each, people.sharpness, people.by_name, people.looks_after, people.pace, found)
    return found


@kernel
def _truth(key: Uint64s, first: int, suggestions: Suggestions, taste: Doubles, own: float, truth: Doubles) -> None:
    """Frecency (§4) by each person's own weights: those of the population times exp(own · N(0, 1))."""
    offsets, visits, sampled, recency, type_, _ = suggestions
    weights = np.empty(BUCKETS + TYPES)
    for q in range(len(offsets) - 1):
        for k in range(len(weights)):
            normal, _ = normal_pair(*uniform_pair(key, k, first + q, 0, _TASTE))
            weights[k] = taste[k] * math.exp(own * normal)
        for x in range(offsets[q], offsets[q + 1]):
            total = 0.0
            for v in range(sampled[x]):
                total += weights[recency[x, v]] * weights[BUCKETS + min(type_[x, v], TYPES - 1)]
            truth[x] = total * visits[x] / sampled[x]


@kernel
def _how_many(key: Uint64s, first: int, mean: float, each: Integers) -> None:
    for q in range(len(each)):
        u, _ = uniform_pair(key, 0, 0, first + q, _SEARCHES)
        each[q] = visits_of(u, mean)


@kernel
def _want(
    key: Uint64s, group: Persons, each: Integers, sharpness: float, by_name: float, looks_after: float, pace: float,
    found: PersonSearches,
) -> None:  # fmt: skip
    first, at = group.first, 0
    for q in range(len(each)):
        begin, end = group.suggestions.offsets[q], group.suggestions.offsets[q + 1]
        limits = np.cumsum(group.truth[begin:end] ** sharpness)
        limits /= limits[-1]
        limits[-1] = 1.0
        normal, _ = normal_pair(*uniform_pair(key, 1, 0, first + q, _SEARCHES))
        mean = looks_after * math.exp(pace * normal)
        for s in range(each[q]):
            u, v = uniform_pair(key, 0, s, first + q, _WANTED)
            w, _ = uniform_pair(key, 1, s, first + q, _WANTED)
            found.client[at] = first + q
            found.page[at] = begin + np.searchsorted(limits, u, side="right")
            word = 0 if v < by_name else 1 + int((v - by_name) / (1.0 - by_name) * (WORDS - 1))
            start = group.texts[found.page[at]]
            while word > 0:
                word -= group.letters[start] == SPACE
                start += 1
            found.start[at] = start
            found.looks[at] = 1 + int(-mean * math.log(1.0 - w))
            at += 1


def page_texts(seed: int, first: int, offsets: Integers) -> tuple[Bytes, Integers]:
    """Return the letters of all pages of persons `first`, … and the beginning of each page (pages + 1,).

    offsets: (persons + 1,), the pages of each person.
    """
    words, ends = vocabulary(seed)
    lengths = np.diff(ends, prepend=0)
    chosen = np.empty((int(offsets[-1]), WORDS), np.int64)
    _draw_words(key_of(seed, Purpose.HISTORY), first, offsets, VOCABULARY, chosen)
    column = np.arange(lengths.max() + 1)
    padded = np.full((len(lengths), len(column)), SPACE, np.uint8)
    padded[column < lengths[:, None]] = words
    used = lengths[chosen] + (np.arange(WORDS) < WORDS - 1)  # a space follows each word but the last
    texts = np.append(0, np.cumsum(used.sum(axis=1)))
    return padded[chosen][column < used[..., None]], texts


@kernel
def _word(u: float, count: int) -> int:
    """Draw a word whose frequency falls as one over its rank: Zipf's law, by inversion of 1/x."""
    return min(int(math.exp(u * math.log(count + 1.0))) - 1, count - 1)


@kernel
def _draw_words(key: Uint64s, first: int, offsets: Integers, count: int, chosen: Integers) -> None:
    for q in range(len(offsets) - 1):
        for x in range(offsets[q], offsets[q + 1]):
            for pair in range(WORDS // 2):
                u, v = uniform_pair(key, (x - offsets[q]) * (WORDS // 2) + pair, first + q, 0, _TEXT)
                chosen[x, 2 * pair], chosen[x, 2 * pair + 1] = _word(u, count), _word(v, count)


class PageOrder(NamedTuple):
    """Order of pages by frecency (§4) with these weights, which loses a share every day since the last visit."""

    weights: Doubles
    decay: float = 0.0

    def scores(self, group: Persons) -> Doubles:
        """Return the scores (pages,) of all pages of these persons."""
        return decayed(FRECENCY.score(self.weights[None, :], group.suggestions)[0], group.idle, self.decay)


def decayed(scores: Doubles, idle: Doubles, decay: float) -> Doubles:
    """Return score · (1 − decay)^⌊days since the last visit⌋ (pages,)."""
    return scores * (1.0 - decay) ** np.floor(idle)


def simulate_typing(group: Persons, searches: PersonSearches, scores: Doubles, people: People) -> TypedSearches:
    """Simulate these searches with pages ranked by `scores` (pages,)."""
    typed = TypedSearches(searches.client, *np.empty((2, len(searches.page)), np.int32))
    _simulate_typing(group, np.ascontiguousarray(scores), searches, people.shown, typed)
    return typed


def observe_typing(
    seed: int, first: int, count: int, people: People, orders: Mapping[str, PageOrder]
) -> dict[str, TypedSearches]:
    """Simulate the same searches of persons `first` to `first + count` under each order of pages, by name."""
    found: dict[str, list[TypedSearches]] = {name: [] for name in orders}
    for start in range(first, first + count, CHUNK):
        group = generate_persons(seed, start, min(CHUNK, first + count - start), people)
        searches = draw_searches(seed, group, people)
        for name, order in orders.items():
            found[name].append(simulate_typing(group, searches, order.scores(group), people))
    return {name: TypedSearches(*map(np.concatenate, zip(*parts, strict=True))) for name, parts in found.items()}


@kernel
def longest_match(letters: Any, begin: int, end: int, start: int, length: int) -> int:
    """Return the length of the longest beginning of letters[start : start + length] at a word in letters[begin : end]."""
    best = 0
    for at in range(begin, end):
        if at > begin and letters[at - 1] != SPACE:
            continue
        most = min(length, end - at)
        same = 0
        while same < most and letters[at + same] == letters[start + same]:
            same += 1
        if same > best:
            best = same
    return best


@kernel
def _simulate_typing(
    group: Persons, scores: Doubles, searches: PersonSearches, shown: int, typed: TypedSearches
) -> None:
    offsets, letters, texts = group.suggestions.offsets, group.letters, group.texts
    client, page, start, looks = searches
    for s in range(len(page)):
        q, mine = client[s] - group.first, page[s]
        length = texts[mine + 1] - start[s]
        above = np.zeros(length + 1, np.int64)  # pages that score higher, by the longest beginning they match
        for x in range(offsets[q], offsets[q + 1]):
            if scores[x] > scores[mine] or (scores[x] == scores[mine] and x < mine):
                above[longest_match(letters, texts[x], texts[x + 1], start[s], length)] += 1
        standing, count = above[length], length
        while count > 1 and count > looks[s] and standing + above[count - 1] < shown:
            count -= 1
            standing += above[count]
        typed.characters[s], typed.rank[s] = count, standing


def observe_study(
    seed: int, study: Study, people: People, treatment: Doubles, first: int, clients: int
) -> dict[str, TypedSearches]:
    """Simulate the searches of persons `first` to `first + clients`, each under the order of pages of the person's arm.

    The first arm has the weights of the treatment. The others have the shipped ones: with the daily decay, unless their
    name ends in `no-decay`.
    """
    shipped, (treated, *controls) = FRECENCY.shipped, study.arms
    orders = {treated: PageOrder(treatment)}
    orders |= {arm: PageOrder(shipped, 0.0 if arm.endswith("no-decay") else DECAY) for arm in controls}
    arms = np.array(study.assign_all(f"person-{number}" for number in range(first, first + clients)))
    found = observe_typing(seed, first, clients, people, orders)
    return {arm: typed.of_arm(arms[typed.client - first], arm) for arm, typed in found.items()}

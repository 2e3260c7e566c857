"""Made-up people who search their history: pages with addresses and titles, a taste of their own, wanted pages.

A person's pages are a block of the generator of Hartmann et al. 2019, §6.1 (`histories`); each has an address and a
title made of invented words. What a person wants follows a taste: frecency (§4) with weights of the person's own,
scattered around those of the whole population. A heuristic that knows these weights shows wanted pages earlier, so
fewer letters are typed. Nothing of this is in the paper, whose two figures of typing come from real people.

Every draw has an address, so a person is the same alone or among a million, under every heuristic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from quorank.arrays import Bytes, Doubles, Int8s, Int32s, Integers, Uint64s
from quorank.compiled import kernel
from quorank.draws import Purpose, key_of, uniform_pair
from quorank.errors import require
from quorank.parts import read_fields
from quorank.tuning.heuristics.frecency import BUCKETS, KINDS, WEIGHTS
from quorank.tuning.histories.generated import RECENCY_DAYS, Candidates, HistorySetting, generate, visits_of
from quorank.tuning.histories.invented import SPACE, WORDS, page_texts

OLDEST_DAYS = 365.0
_AGES, _TASTE = 1, 4  # rounds of Purpose.HISTORY; 0 are the visits, 2 and 3 the words, 5 the habits
_WANTED, _SEARCHES = 1, 2  # rounds of Purpose.CHOICE


@dataclass(frozen=True)
class People:
    """A population: how much it remembers, what it wants, and how it looks at suggestions."""

    pages: float = 150.0  # in a person's history, on average
    spread: float = 60.0  # standard deviation of that
    searches: float = (
        12.0  # of a person in a study, on average; the paper's evaluation had 3,674,063 of 306,200
    )
    taste: tuple[float, ...] = (
        100.0,
        90.0,
        80.0,
        70.0,
        60.0,
        0.1,
        5.0,
        5.0,
        0.0,
    )  # the population's true weights
    own: float = 0.3  # standard deviation of the logarithm of a person's weights around these
    sharpness: float = 1.3  # a page is wanted in proportion to its true score to this power
    looks_after: float = (
        1.5  # letters typed before the first look, beyond the first, of a person in the middle
    )
    pace: float = 0.7  # standard deviation of the logarithm of that between persons
    shown: int = 2  # suggestions that a person reads
    by_name: float = 0.8  # share of searches by the site's name; the others begin at a word of the title
    match: Literal["prefix", "substring"] = "prefix"  # letters match the beginning of a word, or anywhere
    history: HistorySetting = field(
        default_factory=lambda: HistorySetting(habit=0.8)
    )  # frequency, recency and types of visits

    def __post_init__(self) -> None:
        require(2 <= self.pages <= 10_000, f"pages must be 2 to 10000 on average, got {self.pages}")
        require(0 <= self.spread < math.inf, f"spread must be 0 or more, got {self.spread}")
        require(0 < self.searches <= 1e6, f"searches must be above 0, got {self.searches}")
        require(
            len(self.taste) == WEIGHTS and all(0 <= w < math.inf for w in self.taste) and any(self.taste),
            f"taste must be {WEIGHTS} weights of frecency, none below 0, got {list(self.taste)}",
        )
        require(0 <= self.own <= 5, f"own must lie between 0 and 5, got {self.own}")
        require(0 <= self.sharpness <= 20, f"sharpness must lie between 0 and 20, got {self.sharpness}")
        require(
            0 <= self.looks_after <= 100, f"looks_after must lie between 0 and 100, got {self.looks_after}"
        )
        require(0 <= self.pace <= 5, f"pace must lie between 0 and 5, got {self.pace}")
        require(self.shown >= 1, f"shown must be at least 1, got {self.shown}")
        require(0 <= self.by_name <= 1, f"by_name must be a share, got {self.by_name}")

    @property
    def setting(self) -> HistorySetting:
        """The generator's setting whose blocks are whole histories."""
        h = self.history
        return HistorySetting(h.visits, h.recency, h.types, h.habit, self.pages, self.spread, 2, 10_000)


class Persons(NamedTuple):
    """The histories of persons `first`, `first + 1`, …: one block of pages each."""

    first: int
    candidates: Candidates
    idle: Doubles  # (pages,): days since the last visit
    truth: Doubles  # (pages,): the score by the person's own taste
    letters: Bytes  # the words of all pages, a space between two words
    texts: Integers  # (pages + 1,): where each page's words begin


class Wanted(NamedTuple):
    """Searches: who, which page, from which of its letters on, and after how many letters they look up."""

    client: Integers
    page: Integers  # counted over all pages of `Persons`
    start: Integers  # place in `letters` of the first letter that is typed
    looks: Integers


def read_people(table: Mapping[str, Any], where: str) -> People:
    """The table [people] of a study's file; `history` is a table within it."""
    fields = dict(table)
    inner = fields.pop("history", None)
    people = read_fields(People, fields, where)  # type: ignore[type-var]
    if inner is None:
        return people
    require(isinstance(inner, Mapping), f"{where}.history must be a table, got {inner!r}")
    return replace(people, history=read_fields(HistorySetting, inner, f"{where}.history"))  # type: ignore[type-var]


def persons(seed: int, first: int, count: int, people: People) -> Persons:
    """Persons `first` to `first + count` of the population `seed`."""
    require(first >= 0 and first + count <= 2**32, f"persons are numbered 0 to 2^32 − 1, got {first} and on")
    candidates = generate(seed, count, first=first, setting=people.setting)
    key = key_of(seed, Purpose.HISTORY)
    idle, truth = idle_days(seed, candidates, first=first), np.empty(len(candidates.visits))
    _truth(
        key, first, candidates.offsets, candidates.visits, candidates.sampled, candidates.recency, candidates.type,
        np.array(people.taste), people.own, truth,
    )  # fmt: skip
    letters, texts = page_texts(seed, first, candidates.offsets)
    return Persons(first, candidates, idle, truth, letters, texts)


def idle_days(seed: int, candidates: Candidates, *, first: int = 0) -> Doubles:
    """Days since the last visit of each generated page; `first` as in `generate`."""
    idle = np.empty(len(candidates.visits))
    limits = np.array([0.0, *RECENCY_DAYS, OLDEST_DAYS])
    key = key_of(seed, Purpose.HISTORY)
    _idle(key, first, candidates.offsets, candidates.sampled, candidates.recency, limits, idle)
    return idle


def wanted(seed: int, group: Persons, people: People) -> Wanted:
    """All searches of these persons: ⌈Exp(mean)⌉ each."""
    key = key_of(seed, Purpose.CHOICE)
    count = len(group.candidates.offsets) - 1
    each = np.empty(count, np.int64)
    _how_many(key, group.first, people.searches, each)
    total = int(each.sum())
    found = Wanted(*(np.empty(total, np.int64) for _ in range(4)))
    _want(
        key, group.first, each, group.candidates.offsets, group.truth, people.sharpness, group.letters, group.texts,
        people.by_name, people.looks_after, people.pace, *found,
    )  # fmt: skip
    return found


@kernel
def _idle(
    key: Uint64s,
    first: int,
    offsets: Integers,
    sampled: Int8s,
    recency: Int8s,
    limits: Doubles,
    idle: Doubles,
) -> None:
    """Days since the newest of a page's visits, each drawn evenly within its bucket."""
    for q in range(len(offsets) - 1):
        for x in range(offsets[q], offsets[q + 1]):
            newest = BUCKETS - 1
            for v in range(sampled[x]):
                newest = min(newest, recency[x, v])
            least = 1.0
            for v in range(sampled[x]):
                if recency[x, v] == newest:
                    u, _ = uniform_pair(key, ((x - offsets[q]) << 8) | v, first + q, 0, _AGES)
                    least = min(least, u)
            idle[x] = limits[newest] + least * (limits[newest + 1] - limits[newest])


@kernel
def _truth(
    key: Uint64s,
    first: int,
    offsets: Integers,
    visits: Int32s,
    sampled: Int8s,
    recency: Int8s,
    type_: Int8s,
    taste: Doubles,
    own: float,
    truth: Doubles,
) -> None:
    """Frecency (§4) by each person's own weights: those of the population times exp(own · N(0, 1))."""
    weights = np.empty(WEIGHTS)
    for q in range(len(offsets) - 1):
        for k in range(WEIGHTS):
            u, v = uniform_pair(key, k, first + q, 0, _TASTE)
            normal = math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2.0 * math.pi * v)
            weights[k] = taste[k] * math.exp(own * normal)
        for x in range(offsets[q], offsets[q + 1]):
            total = 0.0
            for v in range(sampled[x]):
                total += weights[recency[x, v]] * weights[BUCKETS + min(type_[x, v], KINDS - 1)]
            truth[x] = total * visits[x] / sampled[x]


@kernel
def _how_many(key: Uint64s, first: int, mean: float, each: Integers) -> None:
    for q in range(len(each)):
        u, _ = uniform_pair(key, 0, 0, first + q, _SEARCHES)
        each[q] = visits_of(u, mean)


@kernel
def _want(
    key: Uint64s,
    first: int,
    each: Integers,
    offsets: Integers,
    truth: Doubles,
    sharpness: float,
    letters: Bytes,
    texts: Integers,
    by_name: float,
    looks_after: float,
    pace: float,
    client: Integers,
    page: Integers,
    start: Integers,
    looks: Integers,
) -> None:
    at = 0
    for q in range(len(each)):
        begin, end = offsets[q], offsets[q + 1]
        limits = np.cumsum(truth[begin:end] ** sharpness)
        limits /= limits[-1]
        limits[-1] = 1.0
        u, v = uniform_pair(key, 1, 0, first + q, _SEARCHES)
        normal = math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2.0 * math.pi * v)
        mean = looks_after * math.exp(pace * normal)
        for s in range(each[q]):
            u, v = uniform_pair(key, 0, s, first + q, _WANTED)
            w, _ = uniform_pair(key, 1, s, first + q, _WANTED)
            client[at] = first + q
            page[at] = begin + np.searchsorted(limits, u, side="right")
            word = 0 if v < by_name else 1 + int((v - by_name) / (1.0 - by_name) * (WORDS - 1))
            start[at] = texts[page[at]]
            while word > 0:
                word -= letters[start[at]] == SPACE
                start[at] += 1
            looks[at] = 1 + int(-mean * math.log(1.0 - w))
            at += 1

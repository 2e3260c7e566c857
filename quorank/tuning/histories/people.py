"""Simulated people: what they are shown and choose, and persons who type what they want into an address bar.

A scenario is a heuristic with a generator of what its people see (Hartmann et al. 2019, §6.1): they take the item with
the highest true score after noise. The true weights are the shipped ones as in the paper, or others: where they are the
shipped ones there is nothing to find, and a simulation can only show that nothing breaks.

A person has a history of pages from the generator of §6.1 (`generated`), and each page has an address and a title.
Wanted pages follow the person's taste: frecency (§4) with weights scattered around those of the whole population. A
heuristic that knows these weights shows wanted pages earlier, so fewer letters are typed. Nothing of this is in the
paper, whose two figures of typing come from real people.

The text of a page is the name of its site and three words of its title. Words are made of syllables and used as often as
Zipf's law says, one over their rank, so sites and words recur among the pages of a person, and beginnings are shared.

Every draw has an address, so a person is the same alone or among a million, under every heuristic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np

from quorank.errors import BadInput, require, require_range, suggest
from quorank.files.codec import decode
from quorank.kernels.arrays import Bytes, Doubles, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, key_of, normal_pair, uniform_pair, uniforms
from quorank.tuning.heuristics.decay import DECAY_FRECENCY
from quorank.tuning.heuristics.firefox import FIREFOX, AgedSuggestions, with_ages
from quorank.tuning.heuristics.frecency import BUCKETS, FRECENCY, KINDS, WEIGHTS
from quorank.tuning.heuristics.heuristic import Heuristic
from quorank.tuning.heuristics.loading import load_object
from quorank.tuning.heuristics.mail import MAIL, generate_mails
from quorank.tuning.histories.browser import History, find_searches
from quorank.tuning.histories.generated import (
    BUCKET_LIMITS,
    SIGMA,
    HistorySetting,
    Suggestions,
    draw_choices,
    fill_ages,
    generate_suggestions,
    visits_of,
)
from quorank.tuning.searches import count_searches, join_searches, pick_searches

SPACE = 32
WORDS = 4  # of a page: the site's name and three of its title
VOCABULARY = 600
_CONSONANTS, _VOWELS = "strnlcmpdbgfhvwkzjqx", "eaoiu"
_TEXT, _WORD, _TASTE = 2, 3, 4  # rounds of Purpose.HISTORY; 0 are the visits, 1 their ages, 5 the habits
_WANTED, _SEARCHES = 1, 2  # rounds of Purpose.CHOICE

ShowItems = Callable[[int, int, int], Any]
"""show(seed, searches, first) → items of these searches, nothing chosen."""

RecordedItems = Callable[[History], Any]
"""recorded(history) → items of the searches that were made, with what was chosen."""

HELD_OUT = 2**40
"""Number of the first held-out search: no client ever meets it."""

LEAST = 20
"""Recorded searches below which there is nothing to simulate."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """Heuristic with a generator of what its people see, and the margins that suit its loss."""

    follows_weights: ClassVar[bool] = True  # whether its people choose by weights that are known

    heuristic: Heuristic
    show: ShowItems
    margin: float  # Δ that suits the size of its scores
    share: float = 0.2  # δ, the margin of the relative loss
    recorded: RecordedItems | None = None  # how the searches of a history look to it, where it can score them

    def searches(self, seed: int, count: int, first: int, truth: Doubles, sigma: float = SIGMA) -> Any:
        """Return searches `first` to `first + count` of people who follow the weights `truth`."""
        items = self.show(seed, count, first)
        scores = np.ascontiguousarray(self.heuristic.score(truth[None, :], items)[0])
        return draw_choices(seed, items, scores, sigma=sigma, first=first)


def _show_aged(seed: int, count: int, first: int) -> AgedSuggestions:
    return with_ages(seed, generate_suggestions(seed, count, first), first=first)


def _recorded(history: History) -> Suggestions:
    return find_searches(history).suggestions(history)


def _recorded_with_ages(history: History) -> AgedSuggestions:
    return find_searches(history).aged(history)


SCENARIOS = {
    "frecency": Scenario(FRECENCY, generate_suggestions, 30.0, recorded=_recorded),
    "mail": Scenario(MAIL, generate_mails, 5.0),
    "firefox": Scenario(FIREFOX, _show_aged, 30.0, recorded=_recorded_with_ages),
    "decay": Scenario(DECAY_FRECENCY, _show_aged, 30.0, recorded=_recorded_with_ages),
}


@dataclass(frozen=True, eq=False)
class RecordedScenario(Scenario):
    """Searches of real visits instead of generated ones: what was chosen is what a person visited by typing.

    Each simulated search is one of them, drawn with replacement: every other one of all for the clients, the rest
    held out. No weights are behind the choices.
    """

    items: Any = None

    follows_weights: ClassVar[bool] = False

    def searches(self, seed: int, count: int, first: int, truth: Doubles, sigma: float = SIGMA) -> Any:
        held_out, all_ = first >= HELD_OUT, count_searches(self.items)
        u = uniforms(seed, Purpose.QUERY, count, interaction=first & 0xFFFFFFFF, client=first >> 32)
        return pick_searches(self.items, 2 * (u * (all_ // 2)).astype(np.int64) + held_out)


def recorded_items(scenario: Scenario, histories: Sequence[History]) -> Any:
    """Return the searches that are found in these histories, as the heuristic of the scenario sees them."""
    name = scenario.heuristic.name
    known = ", ".join(name for name, one in SCENARIOS.items() if one.recorded)
    unable = f"the heuristic {name} cannot score pages of a history; these can: {known}"
    require(scenario.recorded is not None, "heuristic.no-visits", unable)
    assert scenario.recorded is not None
    return join_searches([scenario.recorded(history) for history in histories])


def recorded_scenario(scenario: Scenario, histories: Sequence[History]) -> RecordedScenario:
    """Return the scenario with the searches that are found in these histories."""
    items = recorded_items(scenario, histories)
    found = count_searches(items)
    few = f"there are {found} searches in these visits (typed again, with others that match); expected at least {LEAST}"
    require(found >= LEAST, "visits.too-few-searches", few)
    return RecordedScenario(scenario.heuristic, scenario.show, scenario.margin, scenario.share, items=items)


def find_scenario(name: str) -> Scenario:
    """Return the scenario of a heuristic by its name, or one of the user's own by `module:object`."""
    if ":" in name:
        found = load_object(name)
        wrong = f"a simulation needs a Scenario (a heuristic and what its people see), got {type(found).__name__}"
        require(isinstance(found, Scenario), "heuristic.no-scenario", wrong, name)
        return cast("Scenario", found)
    if name not in SCENARIOS:
        known = f"{suggest(name, SCENARIOS)}; known: {', '.join(SCENARIOS)}"
        raise BadInput("heuristic.unknown", f"unknown heuristic {name!r}{known}")
    return SCENARIOS[name]


def find_heuristic(name: str) -> Heuristic:
    """Return a heuristic by its name, or one of the user's own by `module:object`; a scenario stands for its heuristic."""
    found = load_object(name) if ":" in name else find_scenario(name)
    found = found.heuristic if isinstance(found, Scenario) else found
    wrong = f"expected a Heuristic or a Scenario, got {type(found).__name__}"
    require(isinstance(found, Heuristic), "heuristic.wrong-type", wrong, name)
    return cast("Heuristic", found)


@dataclass(frozen=True)
class People:
    """Parameters of a population: its histories, what it wants, and how it reads suggestions."""

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
    match: Literal["prefix", "substring"] = "prefix"  # letters match the beginning of a word, or anywhere
    # frequency, recency and types of visits
    history: HistorySetting = field(default_factory=lambda: HistorySetting(habit=0.8))

    def __post_init__(self) -> None:
        require_range("pages", self.pages, least=2, most=10_000)
        require_range("spread", self.spread, least=0)
        require_range("searches", self.searches, above=0, most=1e6)
        fits = len(self.taste) == WEIGHTS and all(0 <= w < math.inf for w in self.taste) and any(self.taste)
        wrong = f"must be {WEIGHTS} weights of frecency, none below 0, got {list(self.taste)}"
        require(fits, "value.out-of-range", wrong, "taste")
        require_range("own", self.own, least=0, most=5)
        require_range("sharpness", self.sharpness, least=0, most=20)
        require_range("looks_after", self.looks_after, least=0, most=100)
        require_range("pace", self.pace, least=0, most=5)
        require_range("shown", self.shown, least=1)
        require_range("by_name", self.by_name, least=0, most=1)

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
    """Searches of persons: who, which page, from which of its letters on, and after how many letters they look up."""

    client: Integers
    page: Integers  # counted over all pages of `Persons`
    start: Integers  # place in `letters` of the first letter that is typed
    looks: Integers


def read_people(table: Mapping[str, Any], where: str) -> People:
    """Read the table [people] of a study's file; `history` is a table within it."""
    fields = dict(table)
    inner = fields.pop("history", None)
    people = decode(People, fields, where)
    if inner is None:
        return people
    require(isinstance(inner, Mapping), "value.wrong-type", f"must be a table, got {inner!r}", f"{where}.history")
    return replace(people, history=decode(HistorySetting, inner, f"{where}.history"))


def generate_persons(seed: int, first: int, count: int, people: People) -> Persons:
    """Generate persons `first` to `first + count` of a population under a seed."""
    require_range("first", first, least=0, most=2**32 - count)
    suggestions = generate_suggestions(seed, count, first=first, setting=people.setting)
    idle, truth = idle_days(seed, suggestions, first=first), np.empty(len(suggestions.visits))
    _truth(key_of(seed, Purpose.HISTORY), first, suggestions, np.array(people.taste), people.own, truth)
    letters, texts = page_texts(seed, first, suggestions.offsets)
    return Persons(first, suggestions, idle, truth, letters, texts)


def idle_days(seed: int, suggestions: Suggestions, *, first: int = 0) -> Doubles:
    """Draw the days since the last visit (pages,) of each generated page; `first` as in `generate_suggestions`."""
    ages = np.full(suggestions.recency.shape, BUCKET_LIMITS[-1], order="F")  # by columns: their minimum is faster
    fill_ages(seed, suggestions, first, ages)
    return np.asarray(ages.min(axis=1))


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
    weights = np.empty(WEIGHTS)
    for q in range(len(offsets) - 1):
        for k in range(WEIGHTS):
            normal, _ = normal_pair(*uniform_pair(key, k, first + q, 0, _TASTE))
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
    """Return the letters of all pages of persons `first`, `first + 1`, …, and where each page begins (pages + 1,).

    offsets: (persons + 1,), the pages of each person.
    """
    words, ends = vocabulary(seed)
    begins = ends - np.diff(ends, prepend=0)
    chosen = np.empty((int(offsets[-1]), WORDS), np.int64)
    _draw_words(key_of(seed, Purpose.HISTORY), first, offsets, VOCABULARY, chosen)
    lengths = (ends - begins)[chosen].sum(axis=1) + WORDS - 1
    texts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    letters = np.full(int(texts[-1]), SPACE, np.uint8)
    _write(chosen, words, begins, ends, texts, letters)
    return letters, texts


@lru_cache(maxsize=4)
def vocabulary(seed: int) -> tuple[Bytes, Integers]:
    """Return the letters of a population's invented words, the commonest first, and where each word ends."""
    draws = uniforms(seed, Purpose.HISTORY, VOCABULARY * 12, round_=_WORD).reshape(VOCABULARY, 12)
    words = []
    for row in draws:
        syllables = 2 + int(row[0] * 2.5)
        pairs = row[1 : 1 + 2 * syllables].reshape(-1, 2) ** (1.5, 1.0)  # some consonants are commoner
        words.append("".join(_CONSONANTS[int(c * 20)] + _VOWELS[int(v * 5)] for c, v in pairs))
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    return np.frombuffer("".join(words).encode(), np.uint8), ends


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


@kernel
def _write(chosen: Integers, words: Bytes, begins: Integers, ends: Integers, texts: Integers, letters: Bytes) -> None:
    for x in range(len(chosen)):
        at = texts[x]
        for word in chosen[x]:
            for i in range(begins[word], ends[word]):
                letters[at] = words[i]
                at += 1
            at += 1  # the space between two words

"""Simulator of typing into an address bar: characters typed and rank selected (Hartmann et al. 2019, §6.2).

The two metrics of the study are the characters typed before a suggestion is selected, and its rank, counted from 0.
Pages that match what has been typed so far are ranked by a score. A person types letter by letter what they remember of
the wanted page, looks up after a few letters and then after each, and takes the page as soon as it is among the
first `shown`; who has typed all of it reads the whole list.

A longer text never matches more pages, so a single pass over the pages that score higher is enough: the longest
beginning that each of them matches says for how long it stands above the wanted page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.kernels.compiled import kernel
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.histories.generated import Suggestions
from quorank.tuning.histories.people import SPACE, People, Persons, PersonSearches, draw_searches, generate_persons
from quorank.tuning.searches import check_score_count

CHUNK = 256  # persons at once: their pages stay in memory for a moment only
DECAY = 0.025
"""Firefox multiplied every score by 0.975 once a day; the paper says "a few percentage"."""


class TypedSearches(NamedTuple):
    """Searches with the client, the characters typed and the rank selected, one entry each."""

    client: Integers
    characters: Int32s
    rank: Int32s

    def metric(self, name: str) -> Doubles:
        """Return the values (searches,) of a metric."""
        return np.asarray(getattr(self, name), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class PageRanker:
    """Ranker of pages by a score that, with `decay`, loses that share every day since the last visit."""

    score: Callable[[Suggestions], Doubles]
    decay: float = 0.0

    def __post_init__(self) -> None:
        require_range("decay", self.decay, least=0, below=1)

    def scores(self, group: Persons) -> Doubles:
        """Return the scores (pages,) of all pages of these persons."""
        scores = np.asarray(self.score(group.suggestions), dtype=np.float64)
        check_score_count(scores, len(group.idle))
        return decayed(scores, group.idle, self.decay)


def decayed(scores: Doubles, idle: Doubles, decay: float) -> Doubles:
    """Return score · (1 − decay)^⌊days since the last visit⌋ (pages,)."""
    return scores * (1.0 - decay) ** np.floor(idle)


def frecency_ranker(weights: Doubles, decay: float = 0.0) -> PageRanker:
    """Return the ranker of frecency (§4) with these weights."""
    row = np.ascontiguousarray(weights, dtype=np.float64)[None, :]
    return PageRanker(lambda suggestions: FRECENCY.score(row, suggestions)[0], decay)


def simulate_typing(group: Persons, searches: PersonSearches, scores: Doubles, people: People) -> TypedSearches:
    """Simulate these searches with pages ranked by `scores` (pages,)."""
    typed = TypedSearches(searches.client, *np.empty((2, len(searches.page)), np.int32))
    _simulate_typing(group, np.ascontiguousarray(scores), searches, people.shown, people.match == "substring", typed)
    return typed


def observe_typing(
    seed: int, first: int, count: int, people: People, rankers: Mapping[str, PageRanker]
) -> dict[str, TypedSearches]:
    """Simulate the same searches of persons `first` to `first + count` under each ranker, by name."""
    found: dict[str, list[TypedSearches]] = {name: [] for name in rankers}
    for start in range(first, first + count, CHUNK):
        group = generate_persons(seed, start, min(CHUNK, first + count - start), people)
        searches = draw_searches(seed, group, people)
        for name, ranker in rankers.items():
            found[name].append(simulate_typing(group, searches, ranker.scores(group), people))
    return {name: TypedSearches(*map(np.concatenate, zip(*parts, strict=True))) for name, parts in found.items()}


@kernel
def longest_match(letters: Any, begin: int, end: int, start: int, length: int, anywhere: bool) -> int:
    """Return the length of the longest beginning of letters[start : start + length] found in letters[begin : end].

    It must begin where a word does unless `anywhere`.
    """
    best = 0
    for at in range(begin, end):
        if not anywhere and at > begin and letters[at - 1] != SPACE:
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
    group: Persons, scores: Doubles, searches: PersonSearches, shown: int, anywhere: bool, typed: TypedSearches
) -> None:
    offsets, letters, texts = group.suggestions.offsets, group.letters, group.texts
    client, page, start, looks = searches
    for s in range(len(page)):
        q, mine = client[s] - group.first, page[s]
        length = texts[mine + 1] - start[s]
        above = np.zeros(length + 1, np.int64)  # pages that score higher, by the longest beginning they match
        for x in range(offsets[q], offsets[q + 1]):
            if scores[x] > scores[mine] or (scores[x] == scores[mine] and x < mine):
                above[longest_match(letters, texts[x], texts[x + 1], start[s], length, anywhere)] += 1
        standing, count = above[length], length
        while count > 1 and count > looks[s] and standing + above[count - 1] < shown:
            count -= 1
            standing += above[count]
        typed.characters[s], typed.rank[s] = count, standing

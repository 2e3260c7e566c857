"""How much is typed until the wanted page appears, and where it stands then (Hartmann et al. 2019, §6.2).

The two figures of the study: the characters typed before a suggestion is selected, and its rank, counted from 0.
Pages that match what has been typed so far are ranked by a score. A person types letter by letter what they remember of
the wanted page, looks up after a few letters and then after each, and takes the page as soon as it is among the
first `shown`; who has typed all of it looks through the whole list.

A longer text never matches more pages, so a single pass over the pages that score higher is enough: the longest
beginning that each of them matches says for how long it stands above the wanted page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from quorank.arrays import Doubles, Int32s, Integers
from quorank.compiled import kernel
from quorank.errors import require
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.histories.generated import Candidates
from quorank.tuning.histories.invented import SPACE
from quorank.tuning.histories.people import People, Persons, Wanted, persons, wanted

CHUNK = 256  # persons at once: their pages stay in memory for a moment only
DECAY = 0.025
"""Firefox multiplied every score by 0.975 once a day; the paper says "a few percentage"."""


class Typed(NamedTuple):
    """The two figures of every search, and whose search it was."""

    client: Integers
    characters: Int32s
    rank: Int32s


@dataclass(frozen=True, eq=False)
class Ranker:
    """A score of pages; with `decay`, it has lost that share every day since the page's last visit, when it was made."""

    score: Callable[[Candidates], Doubles]
    decay: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.decay < 1, f"decay must be a share below 1, got {self.decay}")

    def scores(self, group: Persons) -> Doubles:
        """The scores of all pages of these persons."""
        scores = np.asarray(self.score(group.candidates), dtype=np.float64)
        require(
            scores.shape == group.idle.shape,
            f"{len(group.idle)} pages need as many scores, got an array of {scores.shape}",
        )
        return decayed(scores, group.idle, self.decay)


def decayed(scores: Doubles, idle: Doubles, decay: float) -> Doubles:
    """score · (1 − decay)^⌊days since the last visit⌋."""
    return scores * (1.0 - decay) ** np.floor(idle)


def frecency_ranker(weights: Doubles, decay: float = 0.0) -> Ranker:
    """Frecency (§4) with these weights."""
    row = np.ascontiguousarray(weights, dtype=np.float64)[None, :]
    return Ranker(lambda candidates: FRECENCY.score(row, candidates)[0], decay)


def type_out(group: Persons, searches: Wanted, scores: Doubles, people: People) -> Typed:
    """What these searches come to when pages are ranked by `scores`."""
    characters, rank = np.empty(len(searches.page), np.int32), np.empty(len(searches.page), np.int32)
    _type_out(
        group.first, group.candidates.offsets, np.ascontiguousarray(scores), group.letters, group.texts, *searches,
        people.shown, people.match == "substring", characters, rank,
    )  # fmt: skip
    return Typed(searches.client, characters, rank)


def observe(
    seed: int, first: int, count: int, people: People, rankers: Mapping[str, Ranker]
) -> dict[str, Typed]:
    """The same persons with the same searches under each ranker, by name."""
    found: dict[str, list[Typed]] = {name: [] for name in rankers}
    for start in range(first, first + count, CHUNK):
        group = persons(seed, start, min(CHUNK, first + count - start), people)
        searches = wanted(seed, group, people)
        for name, ranker in rankers.items():
            found[name].append(type_out(group, searches, ranker.scores(group), people))
    return {name: joined(parts) for name, parts in found.items()}


def joined(parts: list[Typed]) -> Typed:
    """Searches one after the other."""
    return Typed(
        np.concatenate([np.empty(0, np.int64), *(part.client for part in parts)]),
        np.concatenate([np.empty(0, np.int32), *(part.characters for part in parts)]),
        np.concatenate([np.empty(0, np.int32), *(part.rank for part in parts)]),
    )


@kernel
def longest_match(letters: Any, begin: int, end: int, start: int, length: int, anywhere: bool) -> int:
    """The longest beginning of letters[start : start + length] found in letters[begin : end].

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
def _type_out(
    first: int,
    offsets: Integers,
    scores: Doubles,
    letters: Any,
    texts: Integers,
    client: Integers,
    page: Integers,
    start: Integers,
    looks: Integers,
    shown: int,
    anywhere: bool,
    characters: Int32s,
    rank: Int32s,
) -> None:
    for s in range(len(page)):
        q, mine = client[s] - first, page[s]
        length = texts[mine + 1] - start[s]
        above = np.zeros(length + 1, np.int64)  # pages that score higher, by the longest beginning they match
        for x in range(offsets[q], offsets[q + 1]):
            if scores[x] > scores[mine] or (scores[x] == scores[mine] and x < mine):
                above[longest_match(letters, texts[x], texts[x + 1], start[s], length, anywhere)] += 1
        standing, typed = above[length], length
        while typed > 1 and typed > looks[s] and standing + above[typed - 1] < shown:
            typed -= 1
            standing += above[typed]
        characters[s], rank[s] = typed, standing

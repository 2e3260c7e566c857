"""Generator of click logs for work without anybody's clicks: `synthetic:aol` and `synthetic:clicks`.

`aol` has the shape of AOL4FOLTR: 20 candidates a search in no order, 103 features, one click. People search in sessions
over three months, few of them most of the time, each with preferences of his own: what he clicks is drawn from the softmax
of a score whose weights differ from person to person, and his searches have features around a level of their own.

`clicks` has lists of ten documents as a noisy ranker showed them, again and again for the same queries, and position-based
clicks: P(click) = relevance / rank. The worth of a ranker that was not shown is known exactly
(`true_relevance`).

Draws are addressed by (seed, shape, purpose), and those of features by blocks of searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.data.logs.aol4foltr import FEATURE_NAMES
from quorank.data.logs.click_log import ClickLog
from quorank.data.ranking import pad
from quorank.data.synthetic import block_draws
from quorank.errors import require_range
from quorank.kernels import elementary
from quorank.kernels.arrays import Doubles, Floats, Integers

_START = 1_141_171_200_000_000  # 2006-03-01 in microseconds, when the AOL logs begin
_DAY = 86_400_000_000
_DAYS = 92
_BLOCK = 512  # searches
_SCHEDULE, _PEOPLE, _WORLD, _FEATURES = range(4)  # what is drawn


@dataclass(frozen=True)
class LogShape:
    """Sizes of one generated log."""

    number: int  # in the address of each draw
    features: tuple[str, ...]
    candidates: int  # documents of a list
    queries: int  # training searches by default; a fifth of a log is for testing
    most: int
    per_user: int  # searches of a user, on average of a large log
    telling: int  # features that say something about relevance
    ranked: bool


LOG_SHAPES = {
    "aol": LogShape(11, FEATURE_NAMES, 20, 8_000, 400_000, 260, 24, ranked=False),
    "clicks": LogShape(12, tuple(f"f{n}" for n in range(1, 17)), 10, 8_000, 400_000, 40, 12, ranked=True),
}


def generated_log(name: str, searches: int, seed: int) -> ClickLog:
    """Generate a log of `searches` searches, in order of time."""
    shape = LOG_SHAPES[name]
    require_range("queries", searches, least=1, most=4 * shape.most)
    require_range("seed", seed, least=0, below=2**63)
    user, times = _schedule(shape, searches, seed)
    blocks = list((_shown_lists if shape.ranked else _candidates)(shape, user, seed))
    k, numbers = shape.candidates, dict[int, int]()
    number = [numbers.setdefault(who, len(numbers)) for who in user.tolist()]
    return ClickLog(
        pad(np.concatenate([block.features.reshape(-1, len(shape.features)) for block in blocks])),
        np.concatenate([block.clicks.reshape(-1) for block in blocks]).astype(np.int8),
        np.tile(np.arange(1, k + 1, dtype=np.int16) * np.int16(shape.ranked), searches),
        np.arange(0, searches * k + 1, k, dtype=np.int64),
        np.array(number, dtype=np.int32),
        times,
        shape.features,
        [f"u{who}" for who in numbers],
        [str(search) for search in range(searches)],
        [query for block in blocks for query in block.queries],
        [document for block in blocks for document in block.documents],
    )


class _Block(NamedTuple):
    """Some searches with k documents each."""

    features: Floats  # (searches, k, n)
    clicks: npt.NDArray[np.bool_]  # (searches, k)
    queries: list[str]
    documents: list[str]  # of all searches


def _schedule(shape: LogShape, searches: int, seed: int) -> tuple[Integers, Integers]:
    """Draw users and times (searches,), in order of time: log-normal activity, sessions of about four searches."""
    draws = block_draws(shape.number, seed, _SCHEDULE)
    users = max(2, searches // shape.per_user, min(40, searches // 15))
    activity = elementary.exp(draws.standard_normal(users))
    # everybody once, so that as many users occur as there are
    others = draws.choice(users, max(0, searches - users), p=activity / activity.sum())
    user = np.concatenate([np.arange(users), others])[:searches]
    session = np.floor(draws.random(searches) * np.ceil(np.bincount(user, minlength=users)[user] / 4))
    # a session begins at the same moment for all of its searches: a draw addressed by user and number
    base = (user * 1_000_003 + session.astype(np.int64) * 7_919).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    begins = (base >> np.uint64(11)).astype(np.float64) / 2.0**53 * _DAYS * _DAY
    times = _START + begins.astype(np.int64) + (draws.exponential(300e6, searches)).astype(np.int64)
    times -= times % 1_000_000  # the logs are in seconds
    order = np.argsort(times, kind="stable")
    return user[order].astype(np.int64), times[order].astype(np.int64)


def _candidates(shape: LogShape, user: Integers, seed: int) -> Iterator[_Block]:
    """Generate searches of the shape of AOL4FOLTR."""
    world, people = block_draws(shape.number, seed, _WORLD), block_draws(shape.number, seed, _PEOPLE)
    users, n, k = int(user.max()) + 1, len(shape.features), shape.candidates
    telling = world.permutation(n)[: shape.telling]
    weights = np.zeros((users, n), dtype=np.float32)
    weights[:, telling] = 1.2 * elementary.exp(0.5 * world.standard_normal(shape.telling))
    weights[:, telling] *= 1.0 + 0.9 * people.standard_normal((users, shape.telling))
    level = (0.7 * people.standard_normal((users, n))).astype(np.float32)
    scale = elementary.exp(1.5 * world.standard_normal(n)).astype(np.float32)
    for number, first in enumerate(range(0, len(user), _BLOCK)):
        draws, who = block_draws(shape.number, seed, _FEATURES, number), user[first : first + _BLOCK]
        hidden = draws.standard_normal((len(who), k, n), dtype=np.float32) + level[who][:, None, :]
        total = np.asarray(sum(hidden[:, :, f] * weights[who][:, None, f] for f in telling.tolist()))
        scores = total / np.float32(shape.telling**0.5)
        chosen = np.argmax(3.0 * scores + draws.gumbel(size=scores.shape), axis=1)
        clicks = np.arange(k) == chosen[:, None]
        names = range(first, first + len(who))
        documents = [f"d{search}" if click else "" for search, own in zip(names, clicks, strict=True) for click in own]
        features = np.round(np.maximum(hidden + 1.0, 0.0) * scale, 4).astype(np.float32)
        yield _Block(features, clicks, [f"query {search}" for search in names], documents)


def true_relevance(features: Floats) -> Doubles:
    """Return P(relevant) of documents of `synthetic:clicks` by their features, (rows, 16): a logistic function."""
    logits = np.full(len(features), -1.0)
    for f in range(LOG_SHAPES["clicks"].telling):  # one by one: no sum depends on a processor's vectors
        logits += features[:, f] if f >= features.shape[1] // 4 else -features[:, f]
    return np.asarray(1.0 / (1.0 + elementary.exp(-logits)), dtype=np.float64)


def true_propensities(ranks: int) -> Doubles:
    """Return P(look) at ranks 1, 2, … of `synthetic:clicks`: 1/rank."""
    return 1.0 / np.arange(1, ranks + 1)


def _shown_lists(shape: LogShape, user: Integers, seed: int) -> Iterator[_Block]:
    """Generate searches for a fixed set of queries, whose documents a noisy ranker showed, with position-based clicks."""
    k, queries = shape.candidates, max(5, len(user) // 40)
    size = (queries, k, len(shape.features))
    features = np.round(block_draws(shape.number, seed, _WORLD).standard_normal(size, dtype=np.float32), 4)
    relevant = true_relevance(features.reshape(-1, size[2])).reshape(size[:2])
    # the ranker of the log knows a third of what tells
    shown_by = np.asarray(sum(features[:, :, f].astype(np.float64) for f in range(0, shape.telling, 3)))
    for number, first in enumerate(range(0, len(user), _BLOCK)):
        draws, count = block_draws(shape.number, seed, _FEATURES, number), len(user[first : first + _BLOCK])
        query = draws.integers(queries, size=count)
        order = np.argsort(-(shown_by[query] + draws.gumbel(size=(count, k))), axis=1)
        clicks = draws.random((count, k)) < np.take_along_axis(relevant[query], order, axis=1) * true_propensities(k)
        listed = list(zip(query.tolist(), order.tolist(), strict=True))
        yield _Block(
            np.take_along_axis(features[query], order[:, :, None], axis=1),
            clicks,
            [f"query {q}" for q, _ in listed],
            [f"q{q}d{d}" for q, row in listed for d in row],
        )

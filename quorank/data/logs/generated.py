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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quorank.data.letor.writer import shortest_texts
from quorank.data.logs.aol4foltr import FEATURE_NAMES
from quorank.data.logs.click_log import NOBODY, ClickLog, SearchBlock, write_time
from quorank.data.ranking import pad
from quorank.errors import BadInput, require_range
from quorank.files.atomic import atomically
from quorank.kernels import elementary
from quorank.kernels.arrays import Doubles, Floats, Integers

LOG_VERSION = 1
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


def is_generated_log(name: str) -> bool:
    """Return whether `synthetic:name` is a log."""
    return name in LOG_SHAPES


def generated_log(name: str, searches: int, seed: int) -> ClickLog:
    """Generate a log of `searches` searches, in order of time."""
    blocks = list(log_blocks(name, searches, seed))
    numbers: dict[str, int] = {}
    user = [numbers.setdefault(who, len(numbers)) if who else NOBODY for block in blocks for who in block.users]
    lengths = np.concatenate([block.lengths for block in blocks])
    documents = [document for block in blocks for document in block.documents or [""] * len(block.clicks)]
    return ClickLog(
        pad(np.concatenate([block.features for block in blocks])),
        np.concatenate([block.clicks for block in blocks]),
        np.concatenate([block.ranks for block in blocks]),
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        np.array(user, dtype=np.int32),
        np.concatenate([block.times for block in blocks]),
        LOG_SHAPES[name].features,
        list(numbers),
        [search for block in blocks for search in block.searches],
        [query for block in blocks for query in block.queries],
        documents,
    )


def log_blocks(name: str, searches: int, seed: int) -> Iterator[SearchBlock]:
    """Generate the same log block by block."""
    shape = LOG_SHAPES[name]
    require_range("queries", searches, least=1, most=4 * shape.most)
    require_range("seed", seed, least=0, below=2**63)
    user, times = _schedule(shape, searches, seed)
    make = _ShownLists(shape, searches, seed) if shape.ranked else _Candidates(shape, int(user.max()) + 1, seed)
    for block, first in enumerate(range(0, searches, _BLOCK)):
        rows = slice(first, min(first + _BLOCK, searches))
        yield make.block(block, first, user[rows], times[rows])


def _draws(shape: LogShape, seed: int, what: int, block: int = 0) -> np.random.Generator:
    address = (shape.number << 48) | (what << 40) | block
    return np.random.Generator(np.random.Philox(key=np.array([seed, address], np.uint64)))


def _schedule(shape: LogShape, searches: int, seed: int) -> tuple[Integers, Integers]:
    """(searches,) who searches when, in order of time: log-normal activity, and sessions of about four searches."""
    draws = _draws(shape, seed, _SCHEDULE)
    users = max(2, searches // shape.per_user, min(40, searches // 15))
    activity = elementary.exp(draws.standard_normal(users))
    # everybody once, so that as many users occur as there are
    user = np.concatenate(
        [np.arange(users), draws.choice(users, max(0, searches - users), p=activity / activity.sum())]
    )
    user = user[:searches]
    session = np.floor(draws.random(searches) * np.ceil(np.bincount(user, minlength=users)[user] / 4))
    # a session begins at the same moment for all of its searches: a draw addressed by user and number
    base = (user * 1_000_003 + session.astype(np.int64) * 7_919).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    begins = (base >> np.uint64(11)).astype(np.float64) / 2.0**53 * _DAYS * _DAY
    times = _START + begins.astype(np.int64) + (draws.exponential(300e6, searches)).astype(np.int64)
    times -= times % 1_000_000  # the logs are in seconds
    order = np.argsort(times, kind="stable")
    return user[order].astype(np.int64), times[order].astype(np.int64)


class _Candidates:
    """Searches of the shape of AOL4FOLTR."""

    def __init__(self, shape: LogShape, users: int, seed: int) -> None:
        self._shape, self._seed = shape, seed
        world, people = _draws(shape, seed, _WORLD), _draws(shape, seed, _PEOPLE)
        n = len(shape.features)
        telling = self._telling = world.permutation(n)[: shape.telling]
        self._weights = np.zeros((users, n), dtype=np.float32)
        self._weights[:, telling] = 1.2 * elementary.exp(0.5 * world.standard_normal(shape.telling))
        self._weights[:, telling] *= 1.0 + 0.9 * people.standard_normal((users, shape.telling))
        self._level = (0.7 * people.standard_normal((users, n))).astype(np.float32)
        self._scale = elementary.exp(1.5 * world.standard_normal(n)).astype(np.float32)

    def block(self, number: int, first: int, user: Integers, times: Integers) -> SearchBlock:
        """Return a block of searches by these users at these times."""
        shape, draws = self._shape, _draws(self._shape, self._seed, _FEATURES, number)
        count, n = len(user), len(shape.features)
        hidden = draws.standard_normal((count, shape.candidates, n), dtype=np.float32) + self._level[user][:, None, :]
        weights = self._weights[user]
        scores = sum(hidden[:, :, f] * weights[:, None, f] for f in self._telling.tolist()) / np.float32(
            shape.telling**0.5
        )
        chosen = np.argmax(3.0 * scores + draws.gumbel(size=scores.shape), axis=1)
        clicks = np.zeros((count, shape.candidates), dtype=np.int8)
        clicks[np.arange(count), chosen] = 1
        features = np.round(np.maximum(hidden + 1.0, 0.0) * self._scale, 4).astype(np.float32)
        documents = [""] * (count * shape.candidates)
        for search, row in enumerate((np.arange(count) * shape.candidates + chosen).tolist()):
            documents[row] = f"d{first + search}"
        return SearchBlock(
            [f"u{who}" for who in user.tolist()],
            times,
            [str(first + search) for search in range(count)],
            [f"query {first + search}" for search in range(count)],
            np.full(count, shape.candidates, dtype=np.int64),
            features.reshape(-1, n),
            clicks.reshape(-1),
            np.zeros(clicks.size, dtype=np.int16),
            documents,
            [f"search {first + search}" for search in range(count)],
        )


def true_relevance(features: Floats) -> Doubles:
    """Return P(relevant) of documents of `synthetic:clicks` by their features, (rows, 16): a logistic function."""
    logits = np.full(len(features), -1.0)
    for f in range(LOG_SHAPES["clicks"].telling):  # one by one: no sum depends on a processor's vectors
        logits += features[:, f] if f >= features.shape[1] // 4 else -features[:, f]
    return np.asarray(1.0 / (1.0 + elementary.exp(-logits)), dtype=np.float64)


def true_propensities(ranks: int) -> Doubles:
    """Return P(look) at ranks 1, 2, … of `synthetic:clicks`: 1/rank."""
    return 1.0 / np.arange(1, ranks + 1)


class _ShownLists:
    """Searches for a fixed set of queries, whose documents a noisy ranker showed, with position-based clicks."""

    def __init__(self, shape: LogShape, searches: int, seed: int) -> None:
        self._shape, self._seed = shape, seed
        world = _draws(shape, seed, _WORLD)
        self._queries = max(5, searches // 40)
        size = (self._queries, shape.candidates, len(shape.features))
        self._features = np.round(world.standard_normal(size, dtype=np.float32), 4)
        self._relevance = true_relevance(self._features.reshape(-1, size[2])).reshape(size[:2])
        # the ranker of the log knows a third of what tells
        known = range(0, shape.telling, 3)
        self._shown_by = np.asarray(sum(self._features[:, :, f].astype(np.float64) for f in known))

    def block(self, number: int, first: int, user: Integers, times: Integers) -> SearchBlock:
        """Return a block of searches by these users at these times."""
        shape, draws = self._shape, _draws(self._shape, self._seed, _FEATURES, number)
        count, k = len(user), shape.candidates
        query = draws.integers(self._queries, size=count)
        order = np.argsort(-(self._shown_by[query] + draws.gumbel(size=(count, k))), axis=1)
        relevance = np.take_along_axis(self._relevance[query], order, axis=1)
        clicks = draws.random((count, k)) < relevance * true_propensities(k)
        features = np.take_along_axis(self._features[query], order[:, :, None], axis=1)
        return SearchBlock(
            [f"u{who}" for who in user.tolist()],
            times,
            [str(first + search) for search in range(count)],
            [f"query {q}" for q in query.tolist()],
            np.full(count, k, dtype=np.int64),
            features.reshape(-1, features.shape[2]),
            clicks.reshape(-1).astype(np.int8),
            np.tile(np.arange(1, k + 1, dtype=np.int16), count),
            [f"q{q}d{d}" for q, row in zip(query.tolist(), order.tolist(), strict=True) for d in row],
            [f"search {first + search}" for search in range(count)],
        )


def write_aol4foltr(folder: Path, blocks: Iterator[SearchBlock]) -> None:
    """Write searches as `letor.txt` and `metadata.csv` of AOL4FOLTR; each file appears whole or not at all."""

    def save(temporary: Path) -> None:
        def save_metadata(table: Path) -> None:
            with temporary.open("w", encoding="utf-8") as letor, table.open("w", encoding="utf-8") as metadata:
                metadata.write("qid,user_id,timestamp,query,target_doc_id,candidate_doc_ids\n")
                for block in blocks:
                    letor.write(letor_text(block, block.searches))
                    metadata.writelines(_metadata_lines(block))

        atomically(folder / "metadata.csv", save_metadata)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomically(folder / "letor.txt", save)
    except OSError as error:
        raise BadInput("file.unwritable", f"cannot be written: {error.strerror}", f"{folder}") from None


def letor_text(block: SearchBlock, qids: Sequence[str]) -> str:
    """Return the lines of a block as `letor.txt` has them, under these query ids."""
    row_format = "%d qid:%s " + " ".join(f"{f}:%s" for f in range(1, block.features.shape[1] + 1))
    numbers = shortest_texts(block.features).reshape(block.features.shape).tolist()
    of_row = np.repeat(np.arange(len(block.lengths)), block.lengths).tolist()
    lines = [
        row_format % (click, qids[search], *row)
        for click, search, row in zip(block.clicks.tolist(), of_row, numbers, strict=True)
    ]
    return "\n".join(lines) + "\n"


def _metadata_lines(block: SearchBlock) -> Iterator[str]:
    documents = block.documents or ()
    ends = np.cumsum(block.lengths)
    for number, (qid, user, time) in enumerate(zip(block.searches, block.users, block.times.tolist(), strict=True)):
        own = documents[int(ends[number] - block.lengths[number]) : int(ends[number])]
        target = next((name for name in own if name), "")
        when = write_time(time).replace("T", " ").removesuffix("Z")
        others = ", ".join(f"'{target}x{place}'" for place in range(1, len(own)))
        yield f"{qid},{user},{when},{block.queries[number]},{target},\"{{'{target}', {others}}}\"\n"

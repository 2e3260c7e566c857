"""Generator of collections shaped like MQ2007 and MSLR, for work without anybody's data.

Each document of a query has a few hidden qualities: how well it is on topic, how well each of its five fields
(body, anchor, title, address, whole) matches, its authority, length, spam and interest. The features are
noisy views of these on the scales of the originals: counts with heavy tails, fields that are often empty,
statistics of the query alone, log-probabilities, and pure noise. Relevance mixes the hidden qualities with
interactions that no linear ranker can express, plus a shift for each query and noise, cut into grades.

Draws are addressed by (seed, collection, split, block), so that a block of queries is the same whichever other blocks
is made and however many threads make it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import Collection, RankingData, stride_of
from quorank.errors import BadInput, require_range, suggest
from quorank.kernels import elementary
from quorank.kernels.arrays import Booleans, Doubles, Int8s, Integers

GENERATOR_VERSION = 2  # part of every cache key: raise it when the same seed gives other data

Reals = npt.NDArray[np.floating]

FIELDS = 5  # body, anchor, title, address, whole document
_ABSENT = (0.02, 0.55, 0.25, 0.7, 0.01)  # how often a field has none of the query's words
_LENGTH = (6.2, 2.2, 1.6, 1.4, 6.4)  # mean log length of a field
_SHIFT = 0.9  # deviation of the query's shift of relevance
_BLOCK = 128  # queries


@dataclass(frozen=True)
class SyntheticShape:
    """Sizes, features and grades of one generated collection."""

    number: int  # in the address of each draw
    statistics: tuple[str, ...]  # of each field
    page: tuple[str, ...]  # of the document as a whole
    queries: int  # training queries by default; validation and test have a third of them each
    most: int
    documents: tuple[float, float, int, int]  # in a list: mean, spread of the logarithm, shortest, longest
    hopeless: float  # share of the queries that nearly no document answers
    noise: float  # deviation of the noise in relevance
    cuts: tuple[float, ...]  # between the grades

    @property
    def n_features(self) -> int:
        return len(self.statistics) * FIELDS + len(self.page)


_TF = ("sum", "min", "max", "mean", "variance")
SHAPES = {
    "mq2007": SyntheticShape(
        number=1,
        statistics=("tf sum", "idf", "tfidf sum", "length", "bm25", "lm abs", "lm dir", "lm jm"),
        page=("pagerank", "inlinks", "outlinks", "slashes", "address length", "children"),
        queries=1_017,
        most=10_000,
        documents=(41, 0.5, 6, 147),
        hopeless=0.15,
        noise=0.7,
        cuts=(0.0, 1.82),
    ),
    "mslr": SyntheticShape(
        number=2,
        statistics=(
            *("covered", "ratio", "length", "idf"),
            *(f"{kind} {part}" for kind in ("tf", "density", "tfidf") for part in _TF),
            *("boolean", "vector", "bm25", "lm abs", "lm dir", "lm jm"),
        ),
        page=(
            *("slashes", "address length", "inlinks", "outlinks", "pagerank", "siterank"),
            *("quality", "quality two", "query clicks", "clicks", "dwell"),
        ),
        queries=1_000,
        most=6_000,
        documents=(120, 0.6, 5, 900),
        hopeless=0.03,
        noise=1.5,
        cuts=(-0.863, 1.288, 3.386, 4.484),
    ),
}


def generate(name: str, queries: int | None = None, seed: int = 1) -> Collection:
    """Generate the collection `synthetic:name` with this many training queries, raw features."""
    shape = shape_of(name)
    train = training_queries(name, queries, seed)
    held = max(1, round(train / 3))
    sizes, first = (train, held, held), (1, 1 + train, 1 + train + held)
    splits = [_split(shape, sizes[split], seed, split, first[split]) for split in range(3)]
    return Collection(f"synthetic:{name}", splits[0], splits[2], splits[1])


def shape_of(name: str) -> SyntheticShape:
    """Return the shape of `synthetic:name`."""
    if name not in SHAPES:
        known = ", ".join(f"synthetic:{known}" for known in SHAPES)
        sentence = f"there is no generated collection 'synthetic:{name}'{suggest(name, SHAPES)}; known: {known}"
        raise BadInput("source.unknown", sentence)
    return SHAPES[name]


def training_queries(name: str, queries: int | None, seed: int) -> int:
    """Return the number of training queries, the shape's own where `queries` is None; BadInput for too many."""
    shape = shape_of(name)
    n = shape.queries if queries is None else queries
    require_range("queries", n, least=1, most=shape.most)
    require_range("seed", seed, least=0, below=2**63)
    return n


def _split(shape: SyntheticShape, queries: int, seed: int, split: int, first_id: int) -> RankingData:
    lengths = _lengths(shape, queries, seed, split)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    padded = np.zeros((int(offsets[-1]), stride_of(shape.n_features)), np.float32)
    labels = np.zeros(len(padded), np.int8)

    def fill(block: int) -> None:
        sizes = lengths[block * _BLOCK : (block + 1) * _BLOCK]
        rows = slice(int(offsets[block * _BLOCK]), int(offsets[block * _BLOCK + len(sizes)]))
        draws = block_draws(shape.number, seed, split, block + 1)
        _fill(shape, draws, sizes, padded[rows, : shape.n_features], labels[rows])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, range(-(-queries // _BLOCK))))
    names = [str(first_id + q) for q in range(queries)]
    return RankingData(padded, labels, offsets.astype(np.int64), shape.n_features, names)


def block_draws(shape: int, seed: int, part: int, block: int = 0) -> np.random.Generator:
    """Return the generator of a block of queries in one part of the shape with this number."""
    address = (shape << 48) | (part << 40) | block
    return np.random.Generator(np.random.Philox(key=np.array([seed, address], np.uint64)))


def _lengths(shape: SyntheticShape, queries: int, seed: int, split: int) -> Integers:
    """Documents of each query: log-normal between the shortest and the longest list of the original."""
    mean, spread, shortest, longest = shape.documents
    draws = block_draws(shape.number, seed, split).standard_normal(queries)
    lengths = elementary.exp(elementary.log(mean) - spread**2 / 2 + spread * draws)
    clipped: Integers = np.clip(np.rint(lengths), shortest, longest).astype(np.int64)
    return clipped


@dataclass(frozen=True)
class _Documents:
    """Hidden qualities of a block of documents, each (rows,) or (fields, rows)."""

    terms: Reals  # words of the query, the same in all its rows
    rarity: Reals  # of the query's words
    topic: Reals
    match: Reals  # by field
    present: Booleans  # by field
    length: Reals  # by field, logarithmic
    authority: Reals
    spam: Reals
    interest: Reals


def _fill(shape: SyntheticShape, draws: np.random.Generator, sizes: Integers, out: Reals, labels: Int8s) -> None:
    def per_query(values: Doubles) -> Reals:
        return np.repeat(values.astype(np.float32), sizes)

    def normal(*size: int) -> Reals:
        return draws.standard_normal(size, dtype=np.float32)

    n, rows = len(sizes), len(labels)
    shift = per_query(_SHIFT * draws.standard_normal(n) - 6.0 * (draws.random(n) < shape.hopeless))
    terms = per_query(1.0 + np.minimum(draws.poisson(1.6, n), 6))
    rarity = per_query(3.0 + 4.0 * draws.random(n))
    topic = normal(rows)
    match = np.float32(0.75) * topic + np.float32(0.66) * normal(FIELDS, rows)
    match[4] = np.float32(0.8) * match[0] + np.float32(0.2) * match[2] + np.float32(0.15) * normal(rows)
    authority, spam, interest = normal(rows), normal(rows), normal(rows)
    absent = np.array(_ABSENT)[:, None] * (1 - elementary.tanh(0.5 * authority + 0.5 * topic) * 0.4)
    present = draws.random((FIELDS, rows), dtype=np.float32) > absent
    length = np.array(_LENGTH, np.float32)[:, None] + np.float32(0.8) * normal(FIELDS, rows)
    documents = _Documents(terms, rarity, topic, match, present, length, authority, spam, interest)

    relevance = _relevance(documents) + shift + np.float32(shape.noise) * normal(rows)
    labels[:] = np.searchsorted(np.array(shape.cuts, np.float32), relevance)

    for column, (statistic, field) in enumerate(product(shape.statistics, range(FIELDS))):
        out[:, column] = _field_statistic(statistic, field, documents, normal(rows))
    for column, name in enumerate(shape.page, len(shape.statistics) * FIELDS):
        out[:, column] = _PAGE[name](documents, normal(rows))


def _relevance(d: _Documents) -> Reals:
    """Compute relevance, which no sum of features expresses.

    Authority only helps pages that are on topic, one good field is enough, short and very long documents are worse, and
    spam undoes the rest.
    """
    titled = np.where(d.present[2], d.match[2], -1.0)
    anchored = np.where(d.present[1], d.match[1], -1.0)
    on_topic = 1 / (1 + elementary.exp(-2 * d.topic))
    mix = 0.6 * d.topic + 0.2 * d.match[0] + 0.5 * np.maximum(titled, anchored)
    mix += 1.2 * (d.authority - 0.3) * (on_topic - 0.25) - 0.9 * (d.length[0] - 6.2) ** 2
    mix -= 0.9 * np.maximum(d.spam - 0.3, 0.0) * (0.5 + on_topic)
    result: Reals = (mix + 0.5 * d.interest * on_topic).astype(np.float32)
    return result


def _field_statistic(statistic: str, field: int, d: _Documents, noise: Reals) -> Reals:
    kind, _, part = statistic.partition(" ")
    there, match, length = d.present[field], d.match[field], elementary.exp(d.length[field])
    view = match + _NOISE[kind] * noise
    values: Reals
    if kind == "idf":
        values = d.rarity * (1 + field / 4)
    elif kind == "length":
        values = np.floor(length * np.where(there, 1, 0.5))
    elif kind in ("covered", "ratio", "boolean"):
        covered = np.where(there, np.ceil(d.terms / (1 + elementary.exp(-1.5 * view - 1))), 0)
        values = covered if kind == "covered" else covered / d.terms if kind == "ratio" else (covered == d.terms) * 1.0
    elif kind in ("tf", "density", "tfidf"):
        count = np.where(there, np.ceil(elementary.exp(0.6 * view + 0.25 * d.length[field]) * _SHARE[part](d.terms)), 0)
        if part == "variance":
            count = count * count / 4
        values = count * (1 / np.maximum(length, 1) if kind == "density" else d.rarity if kind == "tfidf" else 1)
    elif kind == "bm25":
        values = np.where(there, d.rarity * d.terms * elementary.log1p(elementary.exp(view + 0.5)), 0)
    elif kind == "vector":
        values = np.where(there, d.rarity * elementary.exp(0.5 * view), 0)
    else:
        floor = -(2.2 + 0.5 * d.rarity) * d.terms - {"abs": 6, "dir": 4, "jm": 5}[part]
        values = np.where(there, floor + d.terms * elementary.log1p(elementary.exp(view + 1.5)), floor)
    return values


_NOISE = dict(idf=0.0, length=0.0, covered=0.6, ratio=0.6, boolean=0.6, tf=0.7, density=0.8, tfidf=0.8)  # noqa: C408
_NOISE |= {"bm25": 0.35, "vector": 0.8, "lm": 0.5}
_SHARE: dict[str, Callable[[Reals], Reals]] = {
    "sum": lambda terms: terms,
    "min": lambda terms: 1 / terms,
    "max": lambda terms: np.sqrt(terms),
    "mean": lambda terms: np.ones_like(terms),
    "variance": lambda terms: np.sqrt(terms) / 2,
}
_PAGE: dict[str, Callable[[_Documents, Reals], Reals]] = {
    "pagerank": lambda d, noise: np.floor(elementary.exp(9 + 1.2 * d.authority + 0.6 * noise)),
    "siterank": lambda d, noise: np.floor(elementary.exp(10 + 0.6 * d.authority + 0.9 * noise)),
    "inlinks": lambda d, noise: np.floor(elementary.exp(1.5 * d.authority + 1.2 * noise)),
    "outlinks": lambda d, noise: np.floor(elementary.exp(2 + 0.5 * noise)),
    "slashes": lambda d, noise: np.maximum(1, np.rint(3 - 0.5 * d.authority + noise)),
    "address length": lambda d, noise: np.floor(elementary.exp(3.8 - 0.15 * d.authority + 0.4 * noise)),
    "children": lambda d, noise: np.floor(elementary.exp(0.4 * d.authority + 1.5 * noise) * (noise > 0)),
    "quality": lambda d, noise: np.clip(np.rint(60 + 45 * d.spam + 30 * noise), 0, 255),
    "quality two": lambda d, noise: np.clip(np.rint(40 + 25 * d.spam + 30 * noise), 0, 255),
    "query clicks": lambda d, noise: np.floor(elementary.exp(1.2 * d.interest + d.topic + noise - 1.5)),
    "clicks": lambda d, noise: np.floor(elementary.exp(1.5 * d.interest + 1.5 * noise)),
    "dwell": lambda d, noise: np.where(noise > 0.5, elementary.exp(3 + 0.8 * d.interest + noise), 0),
}

"""Partition of type 1: clients search for the same queries and prefer different documents (thesis §4.3.1).

Generated preferences differ along hidden directions in feature space. A share κ of the relevant documents of a query
belongs to all P preferences and every other one to a single preference, so that two preferences have the overlap
o = κ / (κ + (1 − κ)/P) (`shared_part`).

The directions lie in the space of the strongest principal components of the relevant documents (features within the query,
standardised), without the direction in which relevant documents differ from their lists: so a direction says what kind of
document is preferred and nothing about whether it is relevant, and preferences are about equally hard to learn. In that
space, brought to unit variance, the directions are at right angles. The documents of a query are divided evenly: the pairs
of document and preference are taken from the best fitting to the worst, while the document is free and the preference has
not had its part. `noise` is added to the fit, in units of its standard deviation. All sums are taken in a fixed order, so
that the same seed gives the same labels on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from quorank.data.intents import IntentCollection
from quorank.data.partition.shares import Partition, Shares, Step, check_counts
from quorank.data.ranking import Collection, RankingData, concatenate_strings
from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Int8s, Integers

SAMPLE = 4096  # relevant documents that the principal components are taken from, evenly spaced over the collection
SWEEPS = 50  # of the subspace iteration, which need not converge: any space near the strongest components does


@dataclass(frozen=True)
class Preferences(Partition):
    """Type 1: client i searches the same lists as all others, judged by preference i mod P.

    A preference is a set of labels for all candidate lists: the intents of a collection that carries them
    (`quorank.data.intents`), renumbered at random for each query, because some intents have more relevant documents than
    others; or labels generated from the collection's own with a chosen overlap. Renumbered, an intent of one query says
    nothing about that of another: such preferences can be remembered for the training queries, but not be learned for
    others. Generated preferences can.

    In the IID twin a document is relevant that is relevant to any preference. Any ranker, also a random one, has a higher
    nDCG on these more relevant documents: as the thesis judges its twin, part of the gap between IID and non-IID is this
    and not a matter of learning. `judged = "preferences"` judges the twin's ranker by the labels that judge the others.

    Args:
        overlap: o, share of a preference's relevant documents that another one has too, in [0, 1]; by default the
            collection's own intents are taken, and where it has none o = 0.
        preferences: P, number of preferences, 2 to 1000.
        noise: Randomness of generated preferences, in standard deviations of a document's fit.
        judged: Labels that judge the twin: the merged ones, or those of its counterpart.
        iid: The IID twin: the same groups of clients, all with the same merged lists.
        quantity: Interactions of clients per round, cycling (type 4 mixed in); by default those of the experiment.

    Raises:
        BadInput: `value.out-of-range` for a field; of `split` `partition.too-few-clients` for fewer clients than
            preferences, `partition.too-few-intents`, and `partition.nothing-relevant` without a relevant document.

    >>> from quorank.data import Collection, RankingData
    >>> lists = RankingData.from_arrays([[0.1, 1.0], [0.9, 0.0], [0.4, 0.2]], [0, 1, 1], [0, 3])
    >>> part = Preferences(overlap=0.0, preferences=2)
    >>> part.split(Collection("one", lists, lists), clients=2, interactions=4, seed=1).data.labels.reshape(2, 3)
    array([[0, 0, 1],
           [0, 1, 0]], dtype=int8)
    """

    kind: ClassVar[str] = "preferences"

    overlap: float | None = None
    preferences: int = 4
    noise: float = 0.5
    judged: Literal["union", "preferences"] = "union"
    iid: bool = False
    quantity: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.overlap is not None:
            require_range("overlap", self.overlap, least=0.0, most=1.0)
        require_range("preferences", self.preferences, least=2, most=1000)
        require_range("noise", self.noise, least=0.0, below=1e6)
        check_counts("quantity", self.quantity)

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        alike = self.equal_shares(collection, clients, interactions)
        sentence = f"{self.preferences} preferences need a client each, got {clients} clients; take more clients"
        require(clients >= self.preferences, "partition.too-few-clients", f"{sentence} or fewer preferences")
        train, test = self.labels(collection, seed)
        each = np.arange(self.preferences, dtype=np.int64)
        queries = collection.train.n_queries
        # merged, a document is as relevant as to the preference to which it is most relevant
        if self.iid and self.judged == "union":
            test = test.max(axis=0, keepdims=True)
        return replace(
            alike,
            data=_relabelled(collection.train, train.max(axis=0)) if self.iid else _repeated(collection.train, train),
            first_query=0 * each if self.iid else each * queries,
            query_count=np.full(self.preferences, queries, dtype=np.int64),
            group=np.arange(clients, dtype=np.int64) % self.preferences,
            tests=tuple(_relabelled(collection.test, labels) for labels in test),
            test_of_group=each % len(test),
        )

    def labels(self, collection: Collection, seed: int) -> tuple[Int8s, Int8s]:
        """Return the labels (preferences, rows) of the training and of the test split."""
        if self.overlap is None and isinstance(collection, IntentCollection):
            known = f"{collection.name} has {len(collection.train_intents)} intents for each query"
            sentence = f"{known}, got preferences = {self.preferences}; take fewer, or generate them by an overlap"
            require(self.preferences <= len(collection.train_intents), "partition.too-few-intents", sentence)
            value = np.int8(collection.grades - 1)
            train = shuffle_intents(collection.train, collection.train_intents, seed)[: self.preferences] * value
            test = shuffle_intents(collection.test, collection.test_intents, seed)[: self.preferences] * value
            sentence = "no training document is relevant to any of its intents"
            require(train.any(), "partition.nothing-relevant", sentence, collection.name)
            return train, test
        weights = preference_directions(collection.train, self.preferences, seed)
        how = weights, self.overlap or 0.0, self.noise, seed
        return preference_labels(collection.train, *how), preference_labels(collection.test, *how)


def shuffle_intents(data: RankingData, intents: Int8s, seed: int) -> Int8s:
    """Return the judgements (intents, rows) with the intents of each query in a random order (thesis §4.3.1)."""
    out = np.empty_like(intents)
    for q, name in enumerate(data.query_ids):
        rows = data.rows_of(q)
        out[:, rows] = intents[Step.INTENTS.permutation(seed, len(intents), name), rows]
    return out


def _relabelled(data: RankingData, labels: Int8s) -> RankingData:
    return replace(data, labels=np.ascontiguousarray(labels, dtype=np.int8))


def _repeated(data: RankingData, labels: Int8s) -> RankingData:
    """Return the same lists once for each row of `labels` (times, rows), judged by it."""
    times = len(labels)
    starts = np.arange(times, dtype=np.int64)[:, None] * data.n_rows
    documents = data.document_ids
    return RankingData(
        np.tile(data.padded, (times, 1)),
        np.ascontiguousarray(labels.reshape(-1), dtype=np.int8),
        np.append((data.offsets[:-1] + starts).reshape(-1), np.int64(times * data.n_rows)),
        data.n_features,
        list(data.query_ids) * times,
        None if documents is None else concatenate_strings([documents] * times),
    )


def shared_part(overlap: float, preferences: int) -> float:
    """Return κ = o / (o + P(1 − o)), the share of relevant documents that all preferences have."""
    return overlap / (overlap + preferences * (1.0 - overlap))


def _list_means(data: RankingData) -> Doubles:
    """Return the mean (queries, features) of each list, added up row by row."""
    sizes = np.maximum(np.diff(data.offsets), 1)[:, None]
    features = data.features.astype(np.float64)
    return np.array([features[data.rows_of(q)].sum(axis=0) for q in range(data.n_queries)]) / sizes


def _dot(a: Doubles, b: Doubles) -> Doubles:
    """Compute Σ over the last axis in order, since NumPy's own sum depends on the processor's vectors."""
    return np.asarray(np.cumsum(a * b, axis=-1)[..., -1])


def _moments(away: Doubles) -> tuple[Doubles, Doubles]:
    """Mean and covariance of rows."""
    shift = away.sum(axis=0) / len(away)
    covariance = np.array([(away * column[:, None]).sum(axis=0) for column in away.T]) / len(away)
    return shift, covariance - shift[:, None] * shift


def _make_orthonormal(vectors: Doubles) -> None:
    """Gram-Schmidt, row by row; a row that depends on earlier ones becomes 0."""
    for i, vector in enumerate(vectors):
        before = _dot(vector, vector)
        for _ in range(2):  # twice, because once leaves rounding errors
            for other in vectors[:i]:
                vector -= _dot(vector, other) * other
        norm = _dot(vector, vector)
        vector[:] = vector / np.sqrt(norm) if norm > 1e-18 * before else 0.0


def _strongest(covariance: Doubles, vectors: Doubles, sweeps: int) -> Doubles:
    """Turn rows 1… into the strongest components at right angles to row 0; their standard deviations."""
    for sweep in range(sweeps + 1):
        _make_orthonormal(vectors)
        products = [_dot(covariance, vector) for vector in vectors[1:]]
        if sweep < sweeps:
            vectors[1:] = products
    variances = [float(_dot(vector, product)) for vector, product in zip(vectors[1:], products, strict=True)]
    return np.sqrt(np.maximum(variances, 0.0))


def preference_directions(data: RankingData, preferences: int, seed: int) -> Doubles:
    """Return (preferences, features): what each preference favours, for features minus their mean over the list."""
    n = data.n_features
    relevant = int(np.count_nonzero(data.labels > 0))
    sentence = "preferences divide relevant documents, and the training data have none"
    require(relevant, "partition.nothing-relevant", sentence)
    step = -(-relevant // SAMPLE)
    rows = np.flatnonzero(data.labels > 0)[step - 1 :: step]
    shift, covariance = _moments(data.features[rows] - _list_means(data)[data.query_of_rows()[rows]])
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros(n), where=scale > 0.0)
    components = min(preferences, max(n - 1, 1))
    vectors = np.empty((1 + components, n))
    vectors[0] = shift * inverse
    vectors[1:] = Step.DIRECTIONS.normals(seed, components * n).reshape(components, n)
    deviation = _strongest(covariance * inverse[:, None] * inverse[None, :], vectors, SWEEPS)
    turned = Step.DIRECTIONS.normals(seed, preferences * components, "turn")
    turned = turned.reshape(preferences, components)
    _make_orthonormal(turned[: min(preferences, components)])
    out = np.zeros((preferences, n))
    for column, component, spread in zip(turned.T, vectors[1:], deviation, strict=True):
        if spread > 1e-6:
            out += np.divide(column[:, None] * component / spread, scale, out=np.zeros_like(out), where=scale > 0.0)
    return out


def share_out(fit: Doubles) -> Integers:
    """Return (documents,) the preference that each document belongs to, for its fit to each (documents, preferences).

    Pairs of document and preference are taken from the best while the parts stay even: they differ by one at most.
    """
    documents, preferences = fit.shape
    owner, had = np.full(documents, -1), [0] * preferences
    part, more = divmod(documents, preferences)
    for pair in np.argsort(-fit.reshape(-1), kind="stable").tolist():
        document, p = divmod(pair, preferences)
        if owner[document] < 0 and had[p] < part + (more > 0):
            more -= had[p] == part
            had[p] += 1
            owner[document] = p
    return owner.astype(np.int64)


def preference_labels(data: RankingData, weights: Doubles, overlap: float, noise: float, seed: int) -> Int8s:
    """Return (preferences, rows): a document's own label for the preferences that it is relevant to, else 0."""
    preferences = len(weights)
    labels = np.zeros((preferences, data.n_rows), dtype=np.int8)
    part, divided, drawn_fits = shared_part(overlap, preferences), list[Integers](), list[Doubles]()
    for q, name in enumerate(data.query_ids):
        relevant = data.offsets[q] + np.flatnonzero(data.labels[data.rows_of(q)] > 0)
        drawn = Step.SHARED.uniforms(seed, 1 + len(relevant), name)
        count = int(part * len(relevant) + drawn[0])  # rounded at random, so that its mean is right
        order = np.argsort(drawn[1:], kind="stable")
        shared, rows = relevant[order[:count]], relevant[np.sort(order[count:])]
        labels[:, shared] = data.labels[shared]
        divided.append(rows)
        drawn_fits.append(noise * Step.NOISE.normals(seed, len(rows) * preferences, name).reshape(-1, preferences))
    rows, fits = np.concatenate(divided), np.concatenate(drawn_fits)
    away = data.features[rows] - _list_means(data)[data.query_of_rows()[rows]]
    for column, weight in zip(away.T, weights.T, strict=True):  # in order, as all sums here
        fits += column[:, None] * weight
    ends = np.cumsum([len(own) for own in divided])
    for own, fit in zip(divided, np.split(fits, ends[:-1]), strict=True):
        labels[share_out(fit), own] = data.labels[own]
    return labels

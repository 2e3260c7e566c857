"""Prior of a ranker as numbers: files are read, features found by their names, the scale measured.

Exploration draws lists by a softmax over scores, so the scale of a prior decides how far the first lists deviate from its
ranking. With `start_scale = "rule"` the best document of the median list scores `SPREAD`·τ above the worst, where τ is the
temperature by which lists are drawn. The rule reads features and no label, on a sample that the owner may see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from quorank.data.normalisation import Normalisation
from quorank.data.ranking import RankingData
from quorank.data.source import typed_name
from quorank.errors import BadInput, brief, require, suggest
from quorank.files.atomic import expand_home
from quorank.parts import Numbers
from quorank.rankers import Linear, Ranker, scores
from quorank.rankers.ranker import is_number
from quorank.rankers.ranker_file import read_ranker

SPREAD = 20.0  # score range of the median list under "rule", at temperature 1
LISTED = 24  # largest number of names in an error
SAMPLE = 10_000  # lists of the sample that are looked at, evenly spread over it


def read_start(ranker: Ranker, normalize: Normalisation) -> Ranker:
    """Return the ranker with the parameters of its start's file in place of the file; itself without a file.

    Args:
        ranker: Ranker of the run.
        normalize: Normalisation of the run's features.

    Raises:
        BadInput: `ranker-file.other-kind` or `ranker-file.other-normalisation` if the file does not fit, or the errors of
            `read_ranker`.
    """
    prior = ranker.prior
    if prior is None or not isinstance(prior.start, str):
        return ranker
    try:
        saved = read_ranker(expand_home(Path(prior.start)))
    except BadInput as error:
        raise BadInput(error.code, f"{error.where}: {error.sentence}", "start") from None
    alike = saved.ranker.kind == ranker.kind and saved.ranker.hidden == ranker.hidden
    linear = saved.ranker.kind == Linear.kind
    sentence = (
        f"holds a ranker of kind {saved.ranker.kind}{_units(saved.ranker)}, and this run's is of kind "
        f"{ranker.kind}{_units(ranker)}; give a file of that, or of a linear ranker"
    )
    require(alike or linear, "ranker-file.other-kind", f"{prior.start} {sentence}", "start")
    sentence = (
        f'was trained on features with normalize = "{saved.normalisation.kind}", and [data] has "{normalize.kind}"'
    )
    if saved.normalisation.kind == normalize.kind:
        sentence = f'has other constants of normalize = "{normalize.kind}" than [data]'
    same = saved.normalisation == normalize.known
    require(same, "ranker-file.other-normalisation", f"{prior.start} {sentence}; use the same", "start")
    return ranker.with_prior(replace(prior, start=tuple(saved.theta.tolist())))


def _units(ranker: Ranker) -> str:
    return f" with {ranker.hidden} hidden units" if ranker.hidden else ""


def with_start(
    ranker: Ranker,
    n_features: int,
    normalize: Normalisation,
    names: Sequence[str] = (),
    sample: RankingData | None = None,
    temperature: float = 1.0,
) -> Ranker:
    """Return the ranker with a prior of numbers that fits the data.

    Args:
        ranker: Ranker of the run.
        n_features: Number of features.
        normalize: Normalisation of the run's features.
        names: Names of the features in their order, if the data has them.
        sample: Lists on which a scale is measured.
        temperature: τ, by which scores are divided when lists are drawn.

    Raises:
        BadInput: The file, a name, the number of parameters or the sample does not fit.

    >>> from quorank.data.normalisation import RawFeatures
    >>> with_start(Linear(start={"bm25": 2.0}), 2, RawFeatures(), names=("length", "bm25")).initial(2, seed=1)
    array([0., 2.])
    """
    ranker = read_start(ranker, normalize)
    prior = ranker.prior
    if prior is None:
        return ranker
    if isinstance(prior.start, Numbers):
        prior = replace(prior, start=weights_by_number(prior.start, names, n_features))
    if prior.scale == "rule":
        unscaled = ranker.with_prior(replace(prior, scale=None))
        prior = replace(prior, scale=measure_scale(unscaled, n_features, sample, temperature))
    ranker = ranker.with_prior(prior)
    ranker.initial(n_features, 0)  # refuses what does not fit
    return ranker


def weights_by_number(weights: Numbers, names: Sequence[str], n_features: int) -> Numbers:
    """Return weights by the numbers of features, from 1.

    Args:
        weights: Weights by number or name.
        names: Names of the features in their order.
        n_features: Number of features, for errors.

    Raises:
        BadInput: `ranker.no-such-feature`, `ranker.ambiguous-feature` or `ranker.feature-twice`.

    >>> weights_by_number(Numbers({"bm25": 2.0}), ("length", "bm25"), n_features=2)
    {'2': 2.0}
    """
    if all(is_number(key) for key in weights):
        return weights
    known: dict[str, list[int]] = {}
    for number, name in enumerate(names, 1):
        if name:
            known.setdefault(typed_name(name), []).append(number)
    found: dict[str, float] = {}
    for key, weight in weights.items():
        where = f"start.{key[:100]}"
        numbers = [int(key)] if is_number(key) else known.get(typed_name(key), [])
        if not numbers:
            listed = ", ".join([*known][:LISTED]) + (", …" if len(known) > LISTED else "")
            there = f"it has {listed}, and" if known else "its features have no names: use"
            meant = suggest(typed_name(key), known)
            sentence = f"the data has no feature {brief(key)}{meant}; {there} numbers 1 to {n_features}"
            raise BadInput("ranker.no-such-feature", sentence, where)
        sentence = f"features {', '.join(map(str, numbers))} have this name; write the number"
        require(len(numbers) == 1, "ranker.ambiguous-feature", sentence, where)
        own = str(numbers[0])
        sentence = f"feature {own} has two weights, by its name and by its number; write one"
        require(own not in found, "ranker.feature-twice", sentence, where)
        found[own] = weight
    return Numbers(found)


def measure_scale(ranker: Ranker, n_features: int, sample: RankingData | None, temperature: float = 1.0) -> float:
    """Return the scale, three digits, at which the median over lists of (highest − lowest score) is `SPREAD`·τ.

    Raises:
        BadInput: `ranker.no-sample` without lists; `ranker.no-spread` if all documents of each list score alike.
    """
    if sample is None:
        sentence = 'start_scale = "rule" measures scores on lists, and there are none here; write a number'
        raise BadInput("ranker.no-sample", sentence, "start_scale")
    step = max(1, sample.n_queries // SAMPLE)
    lists = [sample.rows_of(query) for query in range(0, sample.n_queries, step)]
    found = scores(ranker, ranker.initial(n_features, 0), sample)
    spreads = np.array([np.ptp(found[rows].astype(np.float64)) for rows in lists if rows.stop > rows.start])
    spreads = spreads[spreads > 0.0]
    sentence = "the start scores all documents of each list alike, so there is no spread to bring to a scale"
    require(len(spreads) > 0, "ranker.no-spread", sentence, "start")
    return float(f"{SPREAD * temperature / float(np.median(spreads)):.3g}")

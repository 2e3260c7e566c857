"""The ranker file `ranker.json`: all that is needed to score a document, and where the ranker came from.

Version 2 names the features in their order, how they are normalised and what a missing one counts as. Equal runs write
equal bytes: nothing in it is a time, a path or a machine. `digest` is the SHA-256 of the rest in canonical JSON (keys
sorted, no spaces), so that a changed number is noticed. Version 1 is still read: its features are called f1, f2, …, a
missing one is 0, and where it came from is unknown.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.data.normalisation import NORMALISATIONS, Normalisation, WithinQuery
from quorank.errors import BadInput, require
from quorank.files.atomic import read_whole, write_whole
from quorank.files.documents import (
    ANYTHING,
    Either,
    Items,
    Maybe,
    Number,
    Table,
    Text,
    Whole,
    check_shape,
    json_bytes,
    parse_json,
)
from quorank.files.manifest import read_manifest
from quorank.kernels.arrays import Doubles
from quorank.parts import to_table
from quorank.rankers import RANKERS, Ranker

FORMAT, FIRST_FORMAT = "quorank-ranker/2", "quorank-ranker/1"
FILE = "ranker.json"
LARGEST = 1 << 28
"""Bytes of a ranker file."""
MOST_FEATURES = 1 << 20
LONGEST_NAME = 200
_RANKER = Either((Text(longest=100), Table({"kind": Text(longest=100)})))
_NUMBERS = Items(Number())
_FIRST_SHAPE = Table(
    {
        "ranker": _RANKER,
        "n_features": Whole(1, MOST_FEATURES),
        "normalize": Text(("query", "none")),
        "parameters": _NUMBERS,
    },
    {"format": ANYTHING},
)
_PRIVACY = Table(
    {
        "epsilon": Maybe(Number(0.0)),
        "delta": Maybe(Number(0.0, 1.0)),
        "unit": Text(longest=1000),
        "horizon": Text(longest=10_000),
    },
    closed=True,
)
_ORIGIN = Table(
    {
        "by": Text(longest=100),
        "experiment": Maybe(Text(longest=200)),
        "seed": Maybe(Whole(0)),
        "rounds": Maybe(Whole(0)),
        "privacy": Maybe(_PRIVACY),
    },
    closed=True,
)
_SHAPE = Table(
    {
        "format": ANYTHING,
        "ranker": _RANKER,
        "n_features": Whole(1, MOST_FEATURES),
        "feature_names": Items(Text(longest=LONGEST_NAME), MOST_FEATURES),
        "missing": Number(-3e38, 3e38),
        "normalisation": Table(
            {"kind": Text(("query", "none", "fixed"))}, {"low": _NUMBERS, "high": _NUMBERS}, closed=True
        ),
        "origin": _ORIGIN,
        "parameters": _NUMBERS,
        "digest": Text(longest=64),
    },
    closed=True,
)


@dataclass(frozen=True)
class Origin:
    """Where a ranker came from; None is unknown, and of `privacy` that no ε is stated."""

    by: str = "unknown"  # run, coordinator, unlearning, silo
    experiment: str | None = None  # SHA-256 of the resolved experiment, or of a group's terms
    seed: int | None = None
    rounds: int | None = None  # that it learned for
    privacy: Mapping[str, Any] | None = None  # epsilon, delta, unit, horizon

    def table(self) -> dict[str, Any]:
        """As the file holds it."""
        privacy = None if self.privacy is None else dict(self.privacy)
        return {
            "by": self.by,
            "experiment": self.experiment,
            "seed": self.seed,
            "rounds": self.rounds,
            "privacy": privacy,
        }


UNKNOWN = Origin()


def stated_privacy(statement: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what a ranker file says of a run's privacy statement: ε, δ, unit and horizon.

    ε is rounded up to six digits, since accounting libraries differ in the last ones between processors.
    """
    if statement is None:
        return None
    epsilon = statement.get("epsilon")
    upwards = Context(prec=6, rounding=ROUND_CEILING)
    return {
        "epsilon": None if epsilon is None else float(upwards.create_decimal_from_float(float(epsilon))),
        "delta": statement.get("delta"),
        "unit": str(statement.get("unit", "client")),
        "horizon": str(statement.get("horizon", "")),
    }


def complete_names(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """Return a name for each feature, no two alike: f1, f2, … for those without, the number behind one that others have.

    >>> complete_names(("length", "", "length"), 4)
    ('length (1)', 'f2', 'length (3)', 'f4')
    """
    if _are_complete(names, n_features):
        return tuple(names)
    shown = ["".join(c if c.isprintable() else " " for c in name).strip() for name in names[:n_features]]
    shown += [""] * (n_features - len(shown))
    plain = [name[: LONGEST_NAME - 12] or f"f{number}" for number, name in enumerate(shown, 1)]
    times = Counter(plain)
    plain = [name if times[name] == 1 else f"{name} ({number})" for number, name in enumerate(plain, 1)]
    return tuple(plain) if _are_complete(plain, n_features) else tuple(f"f{i}" for i in range(1, n_features + 1))


def _are_complete(names: Sequence[str], n_features: int) -> bool:
    sound = all(name and len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip() for name in names)
    return sound and len(names) == len({*names}) == n_features


@dataclass(frozen=True, eq=False)
class SavedRanker:
    """A ranker with its parameters, the names of its features, and how they are to be prepared.

    A missing feature is filled with `missing`, in the unit of raw features, before anything is normalised.
    """

    ranker: Ranker
    n_features: int
    theta: Doubles  # (parameters,)
    normalisation: Normalisation = field(default_factory=WithinQuery)
    feature_names: tuple[str, ...] = ()  # of all features in their order; those without one are called f1, f2, …
    missing: float = 0.0
    origin: Origin = UNKNOWN

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranker", self.ranker.with_prior(None))
        object.__setattr__(self, "feature_names", complete_names(self.feature_names, self.n_features))
        self.normalisation.check_size(self.n_features)

    def content(self) -> dict[str, Any]:
        """As the file holds it, without the digest."""
        constants = {"low": [*self.normalisation.low], "high": [*self.normalisation.high]}
        return {
            "format": FORMAT,
            "ranker": to_table(self.ranker),
            "n_features": self.n_features,
            "feature_names": [*self.feature_names],
            "missing": self.missing,
            "normalisation": {"kind": self.normalisation.kind, **(constants if self.normalisation.low else {})},
            "origin": self.origin.table(),
            "parameters": self.theta.tolist(),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return ranker_digest(self.content())

    @classmethod
    def load(cls, path: Path | str) -> SavedRanker:
        """From a ranker file, or from the directory of a run that holds one."""
        return read_ranker(Path(path))

    def save(self, path: Path | str) -> Path:
        """Write the ranker file; it is there whole or not at all."""
        return write_whole(Path(path), ranker_bytes(self))

    def score(self, features: Any, group: Any = None) -> npt.NDArray[np.floating[Any]]:
        """Return (rows,) scores of raw features: missing ones are filled, then all are normalised as in training.

        features: (rows, n) numbers in the order of `feature_names`, NaN where one is missing; or a DataFrame (pandas,
        polars), whose columns are found by their names. group: which rows are one query's list, needed where features are
        normalised within queries: an id for each row, or, where there are fewer, the sizes of lists that follow each other;
        of a DataFrame its column `qid` unless it is given. The scores are float32, of trees float64: the bits that
        `quorank evaluate` ranks by.
        """
        from quorank.rankers.array_scoring import scored_arrays
        from quorank.rankers.raw_features import list_starts, raw_array

        given, group = raw_array(features, group, self.feature_names)
        prepared = (self.missing, self.normalisation)
        if self.normalisation.kind != WithinQuery.kind:
            return scored_arrays(self.ranker, self.theta, given, *prepared)
        order, starts = list_starts(group, len(given))
        if order is None:
            return scored_arrays(self.ranker, self.theta, given, *prepared, starts)
        found = scored_arrays(self.ranker, self.theta, given[order], *prepared, starts)
        out = np.empty_like(found)
        out[order] = found
        return out


def ranker_digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a ranker file's content but for its digest."""
    content = {key: value for key, value in content.items() if key != "digest"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def ranker_bytes(saved: SavedRanker) -> bytes:
    """Encode a ranker file: equal rankers of equal runs are equal bytes."""
    content = saved.content()
    return json_bytes(content | {"digest": ranker_digest(content)})


def read_ranker(path: Path) -> SavedRanker:
    """From the file, or from the directory of a run that holds it."""
    try:
        file = path / FILE if path.is_dir() else path
    except OSError:  # a name that is too long for one
        file = path
    try:
        digest = (read_manifest(file.parent) or {}).get(FILE) if file.name == FILE else None
        raw = read_whole(file, LARGEST, digest, "ranker-file.damaged")
    except BadInput as error:
        if error.code != "file.missing":
            raise
        missing = "no ranker here; expected ranker.json or the directory of a finished run"
        raise BadInput("ranker-file.missing", missing, str(path)) from None
    return parse_ranker(raw, str(file))


def parse_ranker(raw: bytes, where: str) -> SavedRanker:
    """From the content of a ranker file; `where` is what messages call it."""
    content = parse_json(raw, ANYTHING, where, code="ranker-file.unreadable", advice="; not a ranker file")
    known = (FORMAT, FIRST_FORMAT)
    if not isinstance(content, dict) or content.get("format") not in known:
        raise BadInput("ranker-file.other-format", f'not a ranker file; expected "format": "{FORMAT}"', where)
    code = "ranker-file.damaged"
    first = content["format"] == FIRST_FORMAT
    check_shape(content, _FIRST_SHAPE if first else _SHAPE, where, code=code)
    try:
        saved = _saved(content, first=first)
    except BadInput as error:
        raise BadInput(code, f"damaged ranker file ({error})", where) from None
    sentence = "damaged: its digest is of other content; take the file from the run again"
    require(first or ranker_digest(content) == content["digest"], code, sentence, where)
    return saved


def _saved(content: Mapping[str, Any], *, first: bool) -> SavedRanker:
    ranker = RANKERS.read(content["ranker"], "ranker")
    n_features, theta = content["n_features"], np.array(content["parameters"], dtype=np.float64)
    complete = theta.shape == (ranker.size(n_features),) and np.isfinite(theta).all()
    require(complete, "ranker.wrong-size", f"expected {ranker.size(n_features)} finite parameters", "parameters")
    ranker.check_size(theta, n_features)
    if first:
        return SavedRanker(ranker, n_features, theta, NORMALISATIONS.read(content["normalize"], "normalize"))
    names = tuple(content["feature_names"])
    sentence = f"expected {n_features} names, no two alike and none empty"
    require(_are_complete(names, n_features), "ranker.feature-names", sentence, "feature_names")
    normalisation = NORMALISATIONS.read(content["normalisation"], "normalisation")
    origin = Origin(**content["origin"])
    return SavedRanker(ranker, n_features, theta, normalisation, names, float(content["missing"]), origin)

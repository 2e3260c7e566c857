"""The ranker file `ranker.json`: everything needed to score a document, and the origin of the ranker.

It names the features in their order, their normalisation and the value of a missing one. Equal runs write equal bytes: it
holds no time, path or machine. `digest` is the SHA-256 of the rest in canonical JSON (keys sorted, no spaces), so that a
changed number is noticed.
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
from typing import Annotated, Any, TypedDict

import numpy as np
import numpy.typing as npt

from quorank.data.normalisation import NORMALISATIONS, FixedRange, Normalisation, WithinQuery
from quorank.errors import BadInput, require
from quorank.files.atomic import read_whole, write_whole
from quorank.files.codec import Length, Range, decode, encode
from quorank.files.documents import json_bytes, parse_json, read_manifest
from quorank.kernels.arrays import Doubles
from quorank.parts import to_table
from quorank.rankers import RANKERS, Ranker

FORMAT = "quorank-ranker/2"
FILE = "ranker.json"
LARGEST = 1 << 28  # bytes of a ranker file
MOST_FEATURES = 1 << 20
LONGEST_NAME = 200


class StatedPrivacy(TypedDict):
    """Privacy of a run as its ranker states it."""

    epsilon: Annotated[float, Range(0.0)] | None
    delta: Annotated[float, Range(0.0, 1.0)] | None
    unit: Annotated[str, Length(1000)]
    horizon: Annotated[str, Length(10_000)]


@dataclass(frozen=True)
class Origin:
    """Origin of a ranker; None stands for unknown.

    Args:
        by: "run", "coordinator", "unlearning" or "silo".
        experiment: SHA-256 of the resolved experiment, or of a group's terms.
        seed: Seed of the run.
        rounds: Rounds of learning.
        privacy: Privacy of the run; None if no ε is stated.
    """

    by: Annotated[str, Length(100)] = "unknown"
    experiment: Annotated[str, Length(200)] | None = None
    seed: Annotated[int, Range(0)] | None = None
    rounds: Annotated[int, Range(0)] | None = None
    privacy: StatedPrivacy | None = None


@dataclass(frozen=True)
class RankerDocument:
    """Content of a ranker file."""

    format: str
    ranker: str | dict[str, Any]
    n_features: Annotated[int, Range(1, MOST_FEATURES)]
    feature_names: Annotated[tuple[str, ...], Length(MOST_FEATURES)]
    missing: Annotated[float, Range(-3e38, 3e38)]
    normalisation: dict[str, Any]
    origin: Origin
    parameters: list[float]
    digest: Annotated[str, Length(64)]


UNKNOWN = Origin()


def stated_privacy(statement: Mapping[str, Any] | None) -> StatedPrivacy | None:
    """Return the part of a run's privacy statement that its ranker file holds; None without a statement.

    ε is rounded up to six digits, since accounting libraries differ in the last ones between processors.

    >>> stated_privacy({"epsilon": 1.00000001, "delta": 1e-5, "horizon": "whole run"})["epsilon"]
    1.00001
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
    """Return a distinct name for each feature: f1, f2, … for those without, the number behind a name that others have.

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
    are_valid = all(
        name and len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip() for name in names
    )
    return are_valid and len(names) == len({*names}) == n_features


@dataclass(frozen=True, eq=False)
class SavedRanker:
    """Ranker with its parameters and the preparation of its features; exported as `quorank.Ranker`.

    Args:
        ranker: Scoring function.
        n_features: Number of features.
        theta: (parameters,) θ.
        normalisation: Normalisation of the features in training.
        feature_names: Names of all features in their order; one without a name is called f1, f2, …
        missing: Value of a missing raw feature, filled in before the normalisation.
        origin: Origin of the ranker.

    >>> import quorank as qr
    >>> from quorank.data.normalisation import RawFeatures
    >>> from quorank.rankers import Linear
    >>> ranker = qr.Ranker(Linear(), 2, np.array([3.0, 4.0]), RawFeatures(), feature_names=("bm25", "age"))
    >>> ranker.score([[1.0, 2.0], [np.nan, 1.0]])
    array([11.,  4.], dtype=float32)
    >>> qr.Ranker.load(ranker.save("ranker.json")).feature_names
    ('bm25', 'age')
    """

    ranker: Ranker
    n_features: int
    theta: Doubles
    normalisation: Normalisation = field(default_factory=WithinQuery)
    feature_names: tuple[str, ...] = ()
    missing: float = 0.0
    origin: Origin = UNKNOWN

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranker", self.ranker.with_prior(None))
        object.__setattr__(self, "feature_names", complete_names(self.feature_names, self.n_features))
        if self.normalisation.kind == FixedRange.kind:
            self.normalisation.check_size(self.n_features)

    def content(self) -> dict[str, Any]:
        """Return the content of the file without the digest."""
        constants = {"low": [*self.normalisation.low], "high": [*self.normalisation.high]}
        return {
            "format": FORMAT,
            "ranker": to_table(self.ranker),
            "n_features": self.n_features,
            "feature_names": [*self.feature_names],
            "missing": self.missing,
            "normalisation": {"kind": self.normalisation.kind, **(constants if self.normalisation.low else {})},
            "origin": encode(self.origin),
            "parameters": self.theta.tolist(),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return ranker_digest(self.content())

    @classmethod
    def load(cls, path: Path | str) -> SavedRanker:
        """Read a ranker file.

        Args:
            path: The file, or the directory of a run.

        Raises:
            BadInput: `ranker-file.missing`, `ranker-file.unreadable`, `ranker-file.other-format` or `ranker-file.damaged`.
        """
        return read_ranker(Path(path))

    def save(self, path: Path | str) -> Path:
        """Write the ranker file atomically.

        Args:
            path: The file.

        Returns:
            Its path.
        """
        return write_whole(Path(path), ranker_bytes(self))

    def score(self, features: Any, group: Any = None) -> npt.NDArray[np.floating[Any]]:
        """Score raw features: missing ones are filled, then all are normalised as in training.

        Args:
            features: (rows, n) numbers in the order of `feature_names`, NaN for a missing one, or a DataFrame (pandas,
                polars) with columns of these names.
            group: Lists of the rows, needed if features are normalised within queries: an id per row, or the sizes of
                consecutive lists; default for a DataFrame: its column `qid`.

        Returns:
            (rows,) float32 scores, of trees float64: the bits that `quorank evaluate` ranks by.

        Raises:
            BadInput: The features do not fit the ranker.
        """
        from quorank.rankers.array_scoring import list_starts, raw_array, scored_arrays

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
    """Return the SHA-256 of a ranker file's content without its digest, in canonical JSON.

    >>> ranker_digest({"a": 1, "digest": ""}) == hashlib.sha256(b'{"a":1}').hexdigest()
    True
    """
    content = {key: value for key, value in content.items() if key != "digest"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def ranker_bytes(saved: SavedRanker) -> bytes:
    """Encode a ranker file: equal rankers of equal runs are equal bytes."""
    content = saved.content()
    return json_bytes(content | {"digest": ranker_digest(content)})


def read_ranker(path: Path) -> SavedRanker:
    """Read a ranker file.

    Args:
        path: The file, or the directory of a run.

    Raises:
        BadInput: `ranker-file.missing`, or the errors of `parse_ranker`.
    """
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
    """Parse the content of a ranker file.

    Args:
        raw: Bytes that `ranker_bytes` returned.
        where: Name of the file in errors.

    Raises:
        BadInput: `ranker-file.unreadable`, `ranker-file.other-format` or `ranker-file.damaged`.
    """
    content = parse_json(raw, Any, where, code="ranker-file.unreadable", advice="; not a ranker file")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadInput("ranker-file.other-format", f'not a ranker file; expected "format": "{FORMAT}"', where)
    try:
        saved = _saved(decode(RankerDocument, content))
    except BadInput as error:
        raise BadInput("ranker-file.damaged", f"damaged ranker file ({error})", where) from None
    sentence = "damaged: its digest is of other content; take the file from the run again"
    require(ranker_digest(content) == content["digest"], "ranker-file.damaged", sentence, where)
    return saved


def _saved(content: RankerDocument) -> SavedRanker:
    ranker = RANKERS.read(content.ranker, "ranker", imports=False)
    n_features, theta = content.n_features, np.array(content.parameters, dtype=np.float64)
    complete = theta.shape == (ranker.size(n_features),) and np.isfinite(theta).all()
    require(complete, "ranker.wrong-size", f"expected {ranker.size(n_features)} finite parameters", "parameters")
    ranker.check_size(theta, n_features)
    sentence = f"expected {n_features} names, no two alike and none empty"
    require(_are_complete(content.feature_names, n_features), "ranker.feature-names", sentence, "feature_names")
    normalisation = NORMALISATIONS.read(content.normalisation, "normalisation", imports=False)
    return SavedRanker(ranker, n_features, theta, normalisation, content.feature_names, content.missing, content.origin)

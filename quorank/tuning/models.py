"""Files of weights: one version of a heuristic's weights as clients fetch it, with a checksum.

A file is JSON, written atomically. `checksum` is the SHA-256 of everything else in it, written without spaces and with
sorted keys, so that a client in any language can verify it. The file includes all that a stopped coordinator needs to
resume from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from quorank.errors import BadInput, require
from quorank.files.atomic import write_whole
from quorank.files.codec import Range, decode, encode
from quorank.files.documents import read_json
from quorank.tuning.heuristics.constraints import violations
from quorank.tuning.heuristics.heuristic import HeuristicDeclaration

FORMAT = "quorank-weights/2"


@dataclass(frozen=True)
class Model:
    """Version of the weights of a heuristic.

    >>> Model("frecency", 3, {"recency.4-days": 100.0}).version
    3
    """

    heuristic: str
    version: Annotated[int, Range(0)]
    weights: Mapping[str, float]
    updates: Annotated[int, Range(0)] = 0  # behind this version
    loss: float | None = None  # their mean, under the version before
    optimiser: str = ""
    memory: Mapping[str, list[float]] = field(default_factory=dict)  # of the optimiser
    sums: tuple[list[float], ...] = ()  # that undecided weights take along: updates, Σ u and Σ u² of each weight
    trial: Mapping[str, float] | None = None  # weights on trial, at which clients take slopes
    reference: Mapping[str, float] | None = None  # weights at the start of the tuning
    evidence: tuple[tuple[float, float, float, float], ...] = ()  # (`rules`): published, trial against both others
    shortened: Annotated[int, Range(0)] = 0  # number of times the step to the trial was halved


def checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the content without its own `checksum`, in canonical JSON."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def model_file_name(version: int) -> str:
    """Return the name of a version's file; names sort by version."""
    return f"weights-{version:06d}.json"


def model_text(model: Model) -> str:
    """Return the content of a version's file."""
    content: dict[str, Any] = {"format": FORMAT, **encode(model)}
    return json.dumps(content | {"checksum": checksum(content)}, indent=2) + "\n"


def write_model(model: Model, file: Path | str) -> Path:
    """Write the file of a version."""
    return write_whole(file, model_text(model))


def read_model(file: Path | str, heuristic: HeuristicDeclaration | None = None) -> Model:
    """Read a version and verify its checksum; with `heuristic`, also its weights.

    Raises:
        BadInput: `file.missing`, `weights.wrong-format`, `file.damaged`, `weights.other-heuristic` or
        `weights.not-allowed`.
    """
    content = read_json(Path(file), Any, code="weights.wrong-format", advice="; not a file of weights")
    return model_of(content, str(file), heuristic)


def model_of(content: Any, where: str, heuristic: HeuristicDeclaration | None = None) -> Model:
    """Return the version in the content of a file, and verify its checksum; with `heuristic`, also its weights."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadInput("weights.wrong-format", f'not a file of weights; expected "format": "{FORMAT}"', where)
    same = content.get("checksum") == checksum(content)
    require(same, "file.damaged", "damaged file of weights: its checksum does not match; fetch it again", where)
    try:
        model: Model = decode(Model, {name: content[name] for name in content if name not in ("format", "checksum")})
    except BadInput as error:
        raise BadInput("file.damaged", f"damaged file of weights: {error}", where) from None
    if heuristic is not None:
        check_model(model, heuristic, where)
    return model


def check_model(model: Model, heuristic: HeuristicDeclaration, where: str) -> None:
    """Raise BadInput unless the model belongs to this heuristic and satisfies its constraints."""
    other = f"weights of the heuristic {model.heuristic!r}; expected those of {heuristic.name!r}"
    require(model.heuristic == heuristic.name, "weights.other-heuristic", other, where)
    for named in (model.weights, model.trial, model.reference):
        broken = [] if named is None else violations(heuristic, heuristic.vector(named))
        require(not broken, "weights.not-allowed", f"these weights are not allowed: {'; '.join(broken)}", where)

"""Files of weights: one version of a heuristic's weights as clients fetch it, with a checksum.

A file is JSON, written whole or not at all. `checksum` is the SHA-256 of everything else in it, written without spaces
and with sorted keys, so that a client in any language can verify it. The optimiser's memory stands in the file too: a
coordinator that was stopped resumes from the newest version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, require
from quorank.files.atomic import write_whole
from quorank.files.documents import ANYTHING, read_json
from quorank.tuning.heuristics.constraints import violations
from quorank.tuning.heuristics.heuristic import Heuristic

FORMAT = "quorank-weights/1"
_JUDGED = ("trial", "reference", "shortened")  # in the file where versions are judged


@dataclass(frozen=True)
class Model:
    """One version of the weights of a heuristic."""

    heuristic: str
    version: int
    weights: Mapping[str, float]
    updates: int = 0  # that made this version out of the one before
    loss: float | None = None  # their mean, under the version before
    optimiser: str = ""
    memory: Mapping[str, list[float]] = field(default_factory=dict)
    # where versions are judged before they are published (`guards`)
    trial: Mapping[str, float] | None = None  # weights that clients take slopes at and judge; none: these ones
    reference: Mapping[str, float] | None = None  # weights that the tuning began with
    shortened: int = 0  # how often the step to the trial was halved


def checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the content without its own `checksum`, in canonical JSON."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def model_file_name(version: int) -> str:
    """Return the name of a version's file; sorted by name is sorted by version."""
    return f"weights-{version:06d}.json"


def model_text(model: Model) -> str:
    """Return a version as its file has it."""
    content: dict[str, Any] = {"format": FORMAT, **asdict(model)}
    if model.reference is None:
        content = {name: value for name, value in content.items() if name not in _JUDGED}
    content["checksum"] = checksum(content)
    return json.dumps(content, indent=2) + "\n"


def write_model(model: Model, file: Path | str) -> Path:
    """Write the file of a version."""
    return write_whole(file, model_text(model))


def read_model(file: Path | str, heuristic: Heuristic | None = None) -> Model:
    """Read a version and verify its checksum; with `heuristic`, also its weights."""
    where = str(file)
    try:
        content = read_json(Path(file), ANYTHING, code="weights.wrong-format", advice="; not a file of weights")
    except BadInput as error:
        if error.code != "file.missing":
            raise
        raise BadInput("file.missing", "no such file; expected the weights of a heuristic", where) from None
    return model_of(content, where, heuristic)


def model_of(content: Any, where: str, heuristic: Heuristic | None = None) -> Model:
    """Return the version that the content of a file is, and verify its checksum; with `heuristic`, also its weights."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadInput("weights.wrong-format", f'not a file of weights; expected "format": "{FORMAT}"', where)
    try:
        good = content.get("checksum") == checksum(content)
        model = Model(
            str(content["heuristic"]),
            _whole(content["version"]),
            _named(content["weights"]),
            _whole(content["updates"]),
            None if content["loss"] is None else float(content["loss"]),
            str(content["optimiser"]),
            {str(name): [float(v) for v in values] for name, values in content["memory"].items()},
            None if content.get("trial") is None else _named(content["trial"]),
            None if content.get("reference") is None else _named(content["reference"]),
            _whole(content.get("shortened", 0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        damage = f"damaged file of weights ({type(error).__name__}: {error})"
        raise BadInput("file.damaged", damage, where) from None
    require(good, "file.damaged", "damaged file of weights: its checksum does not match; fetch it again", where)
    if heuristic is not None:
        check_model(model, heuristic, where)
    return model


def check_model(model: Model, heuristic: Heuristic, where: str) -> None:
    """Raise BadInput unless the model belongs to this heuristic and satisfies its constraints."""
    other = f"weights of the heuristic {model.heuristic!r}; expected those of {heuristic.name!r}"
    require(model.heuristic == heuristic.name, "weights.other-heuristic", other, where)
    for named in (model.weights, model.trial, model.reference):
        broken = [] if named is None else violations(heuristic, heuristic.vector(named))
        require(not broken, "weights.not-allowed", f"these weights are not allowed: {'; '.join(broken)}", where)


def _named(values: Any) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items()}


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a whole number from 0, got {value!r}")
    return value

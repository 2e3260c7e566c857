"""The directory of an export, and the comparison of its model with the ranker: each score and the order of each list.

export.json     format, names of the features, and true if they arrive normalised
ranker.json     the exported ranker
vectors.json    rows of features with their expected scores
README.md       instructions to install the model
manifest.json   SHA-256 of the other files, written last
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np

from quorank.data.normalisation import query_ranges_scaled
from quorank.errors import BadInput, require
from quorank.export import target_of
from quorank.export.exported_ranker import ExportedRanker, ExportTarget, Scorer, short_floats
from quorank.export.text_features import text_feature_notes
from quorank.files.atomic import make_folder, read_whole, sha256, write_whole
from quorank.files.codec import Length
from quorank.files.documents import MANIFEST, digest_of, json_bytes, parse_json, read_manifest, write_manifest
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.rankers.ranker_file import FILE as RANKER
from quorank.rankers.ranker_file import parse_ranker, ranker_bytes

ABOUT, README, VECTORS = "export.json", "README.md", "vectors.json"
FORMAT, VECTORS_FORMAT = "quorank-export/1", "quorank-vectors/1"
LARGEST = 1 << 28  # bytes of a file of an export
LISTS, DOCUMENTS = 12, 6
MOST_NUMBERS = 200_000  # features of all rows together: rankers with many features get fewer rows
_SEED = 2027
_NEAREST = np.float32(2.0**-42)  # distance from a threshold below which Solr cannot distinguish all numbers
TOLERANCE = 1e-5  # largest accepted difference of two scores, relative to |score| where that is above 1
RESOLUTION = 2.0**-20
"""Largest difference of tied scores, relative to |score| where that is above 1: float32 sums do not order closer ones."""


class _About(TypedDict):
    """Part of `export.json` that is read."""

    target: Annotated[str, Length(40)]
    normalised: bool


@dataclass(frozen=True, eq=False)
class ExportDirectory:
    """An export whose files agree with its manifest."""

    folder: Path
    target: ExportTarget
    exported: ExportedRanker
    files: Mapping[str, bytes]

    def changed_file(self) -> str | None:
        """Return the first file that differs from the one written for the ranker; None if the model is the ranker's."""
        written = model_files(self.target, self.exported)
        return next((name for name, content in written.items() if self.files[name] != content), None)

    def model(self) -> Scorer:
        """Read the model from its files, which must be unchanged."""
        return self.target.load(self.files, self.exported.names)


def model_files(target: ExportTarget, exported: ExportedRanker) -> dict[str, bytes]:
    """Return the model and the description of an export by name."""
    saved = exported.saved
    about = {
        "format": FORMAT,
        "target": target.name,
        "ranker": saved.digest,
        "normalised": exported.prenormalised,
        "features": [{"name": a, "exported": b} for a, b in zip(saved.feature_names, exported.names, strict=True)],
    }
    return target.write(exported) | {ABOUT: json_bytes(about)}


def files_of(target: ExportTarget, exported: ExportedRanker, where: str) -> dict[str, bytes]:
    """Return the files of an export by name; raise BadInput if their scores of the test vectors differ from Quorank's."""
    target.check(exported, where)
    files = model_files(target, exported)
    compared = compare_vectors(exported, target.load(files, exported.names))
    sentence = (
        f"{target.system} computes other scores with these parameters (list {compared.differing} of the test vectors: "
        f"{compared.why}); constants that float32 holds exactly help, or choose onnx"
    )
    require(compared.same, "export.not-the-same", sentence, where)
    documents = {README: readme(target, exported).encode(), VECTORS: vectors_bytes(exported)}
    return files | documents | {RANKER: ranker_bytes(exported.saved)}


def write_export(target: ExportTarget, exported: ExportedRanker, folder: Path, where: str) -> list[Path]:
    """Write an export, its manifest last, in place of an earlier one; raise BadInput if the folder holds other files."""
    files = files_of(target, exported, where)
    make_folder(folder)
    earlier = _earlier_files(folder)
    for name in sorted(entry.name for entry in folder.iterdir() if entry.name not in earlier):
        sentence = f"holds {name!r}, which is no part of an export; choose another folder"
        raise BadInput("folder.not-empty", sentence, str(folder))
    for name in (MANIFEST, *sorted(earlier - {MANIFEST})):
        (folder / name).unlink(missing_ok=True)
    written = [write_whole(folder / name, content) for name, content in files.items()]
    write_manifest(folder, {name: sha256(content) for name, content in files.items()})
    return [*written, folder / MANIFEST]


def _earlier_files(folder: Path) -> set[str]:
    """Return the names of an earlier export's files in a folder."""
    try:
        listed = read_manifest(folder)
    except BadInput:
        listed = None
    if listed is None or ABOUT not in listed:
        return set()
    return {MANIFEST, *(name for name in listed if Path(name).name == name)}


def read_export(folder: Path) -> ExportDirectory:
    """Read an export; raise BadInput with the name of the first file whose digest differs from the manifest's."""
    try:
        listed = read_manifest(folder) if folder.is_dir() else None
    except OSError:  # a name that is too long
        listed = None
    if listed is None or ABOUT not in listed:
        sentence = "no export here; expected the folder that quorank export has written"
        raise BadInput("export.missing", sentence, str(folder))

    def read(name: str) -> bytes:
        path = folder / name
        require(not path.is_symlink(), "export.damaged", "is a link; expected a file", str(path))
        return read_whole(path, LARGEST, digest_of(listed, folder, name), "export.damaged")

    where, files = str(folder / ABOUT), {name: read(name) for name in (ABOUT, RANKER, VECTORS, README)}
    about = parse_json(files[ABOUT], _About, where, code="export.damaged")
    exported = ExportedRanker(parse_ranker(files[RANKER], str(folder / RANKER)), about["normalised"])
    target = target_of(about["target"], where)
    target.check(exported, where)
    files |= {name: read(name) for name in target.files}
    return ExportDirectory(folder, target, exported, files)


def readme(target: ExportTarget, exported: ExportedRanker) -> str:
    """Return the instructions to install an export, in Markdown."""
    saved = exported.saved
    if exported.prenormalised:
        prepared = (
            f"**Prepare the features before you pass them to {target.system}**: fill missing ones with {saved.missing:g}, "
            "then normalise each feature within its list, (x − min) / (max − min)."
        )
    elif exported.normalisation.low:
        prepared = "Pass raw features: their fixed normalisation is part of the model. "
        prepared += f"A missing feature counts as {saved.missing:g}."
    else:
        prepared = f"Pass raw features. A missing feature counts as {saved.missing:g}."
    pairs = zip(saved.feature_names, exported.names, strict=True)
    renamed = [f"| {name.replace('|', '/')} | `{new}` |" for name, new in pairs if name != new]
    parts = (
        f"# Quorank ranker for {target.system}",
        f"{saved.n_features} features in the order of `{ABOUT}`. {prepared}",
        "\n".join([f"| feature | name in {target.system} |", "|---|---|", *renamed]) if renamed else "",
        text_feature_notes(saved),
        target.instructions(exported).strip(),
        f"`{VECTORS}` holds rows of features with their expected scores (null is a missing feature).\n"
        "`quorank export check .` computes the model's scores by `onnxruntime`, or by an evaluator of this format's\n"
        "published description, and compares them; `--data FILE` compares the scores of a LETOR file.",
        f"Ranker: SHA-256 {saved.digest}",
    )
    return "\n\n".join(part for part in parts if part) + "\n"


# ------------------------------------------------------------ test vectors


def vectors_of(exported: ExportedRanker) -> tuple[Floats, Integers]:
    """Sample (rows, n) features for a ranker, NaN where one is missing, and the (lists + 1,) offsets of their lists.

    Common values, missing ones, all zeros, and values at thresholds and next to them.
    """
    n = exported.saved.n_features
    lists = max(2, min(LISTS, MOST_NUMBERS // (n * DOCUMENTS)))
    offsets = np.arange(lists + 1) * DOCUMENTS
    random = np.random.Generator(np.random.Philox(_SEED))
    share = random.random((lists * DOCUMENTS, n))
    x = (share * 1.5 - 0.25) if exported.normalisation.low else share
    features = (exported.low + x * exported.span).astype(np.float32)
    if exported.family == "trees":
        _insert_thresholds(features, exported, random)
    features[1] = 0.0
    if exported.prenormalised:
        features = normalise_lists(features, offsets)
    else:
        missing = random.random(features.shape) < 0.1
        missing[: (lists // 2) * DOCUMENTS] = False
        missing[-1] = True
        features[missing] = np.nan
    return features, offsets


def _insert_thresholds(features: Floats, exported: ExportedRanker, random: np.random.Generator) -> None:
    """Replace most features that trees split by with thresholds, and with numbers next to them."""
    limits: dict[int, list[float]] = {}
    for tree in exported.trees:
        for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
            if feature >= 0:
                limits.setdefault(feature, []).append(threshold)
    for feature, thresholds in limits.items():
        chosen = np.array(thresholds, dtype=np.float32)[random.integers(0, len(thresholds), len(features))]
        beside = chosen
        for _ in range(2):
            beside = np.nextafter(beside, np.float32(np.inf))
        beside = np.maximum(beside, chosen + _NEAREST)
        kind = random.random(len(features))
        features[:, feature] = np.where(kind < 0.4, chosen, np.where(kind < 0.7, beside, features[:, feature]))


def vectors_bytes(exported: ExportedRanker) -> bytes:
    """Encode the test vectors with their expected scores; a missing feature is null."""
    features, offsets = vectors_of(exported)
    rows = [[None if value != value else value for value in short_floats(row)] for row in features]
    lists = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)).tolist()
    scores = expected_scores(exported, features, offsets).tolist()
    return json_bytes({"format": VECTORS_FORMAT, "features": rows, "lists": lists, "scores": scores})


# ------------------------------------------------------------ comparison with the ranker


def expected_scores(exported: ExportedRanker, features: Floats, offsets: Integers) -> Doubles:
    """Return Quorank's (rows,) scores of (rows, n) features as the other system receives them, NaN where missing."""
    scores = exported.effective.score(features, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
    return scores.astype(np.float64)


def normalise_lists(features: Floats, offsets: Integers) -> Floats:
    """Return features normalised within their lists."""
    return query_ranges_scaled(features, offsets[:-1][np.diff(offsets) > 0])


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison; lists are numbered from 0."""

    lists: int
    documents: int
    largest: float = 0.0  # difference of two scores, relative to |score| where that is above 1
    swapped_ties: int = 0  # positions at which documents with tied scores changed places
    differing: int | None = None  # first list that differs
    why: str = ""

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return self.differing is None


def compare_scores(expected: Doubles, actual: Doubles, offsets: Integers) -> Comparison:
    """Compare (rows,) scores in lists that `offsets` (lists + 1,) delimits."""
    list_of_row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    scale = np.maximum(1.0, np.abs(expected))
    with np.errstate(all="ignore"):
        difference = np.nan_to_num(np.abs(actual - expected) / scale, nan=np.inf)
    result = Comparison(len(offsets) - 1, len(expected), float(difference.max(initial=0.0)))
    if result.largest > TOLERANCE:
        row = int(np.argmax(difference > TOLERANCE))
        at, number = int(list_of_row[row]), row - int(offsets[list_of_row[row]]) + 1
        why = f"document {number} scores {actual[row]:.7g}, and {expected[row]:.7g} in Quorank"
        return replace(result, differing=at, why=why)
    ours, theirs = (np.lexsort((-values, list_of_row)) for values in (expected, actual))  # ties in file order
    moved = ours != theirs
    distinct = np.abs(expected[ours] - expected[theirs]) > RESOLUTION * np.maximum(scale[ours], scale[theirs])
    result = replace(result, swapped_ties=int((moved & ~distinct).sum()))
    if not (moved & distinct).any():
        return result
    position = int(np.argmax(moved & distinct))
    at = int(list_of_row[position])
    before = int(offsets[at]) - 1
    why = (
        f"document {int(theirs[position]) - before} stands at rank {position - before}, "
        f"and document {int(ours[position]) - before} in Quorank"
    )
    return replace(result, differing=at, why=why)


def compare_lists(exported: ExportedRanker, model: Scorer, features: Floats, offsets: Integers) -> Comparison:
    """Compare a model's scores of (rows, n) features with Quorank's."""
    return compare_scores(expected_scores(exported, features, offsets), model(features), offsets)


def compare_vectors(exported: ExportedRanker, model: Scorer) -> Comparison:
    """Compare a model's scores of the test vectors with Quorank's."""
    return compare_lists(exported, model, *vectors_of(exported))


def with_gaps(features: Floats) -> Floats:
    """Return features with every eleventh one missing, in changing columns."""
    rows, columns = np.ogrid[: features.shape[0], : features.shape[1]]
    return np.where((rows * 7 + columns * 3) % 11 == 0, np.nan, features).astype(np.float32)

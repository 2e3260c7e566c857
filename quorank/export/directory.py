"""The directory of an export: model files, ranker, test vectors, instructions, and a manifest.

export.json     format, names of the features, and true if they arrive normalised
ranker.json     the exported ranker
vectors.json    rows of features with their expected scores
README.md       instructions to install the model
manifest.json   SHA-256 of the other files, written last
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from quorank.errors import BadInput, require
from quorank.experiments.run_directory import make_folder
from quorank.export import target_of
from quorank.export.comparison import Comparison, compare_scores
from quorank.export.contents import content_of
from quorank.export.exported_ranker import ExportedRanker
from quorank.export.target import ExportTarget, Scorer
from quorank.export.vectors import FILE as VECTORS
from quorank.export.vectors import read_vectors, vectors_bytes, vectors_of
from quorank.files.atomic import read_whole, sha256, write_whole
from quorank.files.codec import Length
from quorank.files.documents import json_bytes, parse_json
from quorank.files.manifest import MANIFEST, read_manifest, write_manifest
from quorank.rankers.ranker_file import FILE as RANKER
from quorank.rankers.ranker_file import SavedRanker, parse_ranker, ranker_bytes

ABOUT, README, FORMAT = "export.json", "README.md", "quorank-export/1"
LARGEST, MOST_FILES = 1 << 28, 20
"""Bytes of a file, and number of files, of an export."""


@dataclass(frozen=True)
class _ExportedFeature:
    name: Annotated[str, Length(200)]
    exported: Annotated[str, Length(80)]


@dataclass(frozen=True)
class _About:
    """Content of the description of an export."""

    format: Literal["quorank-export/1"]
    target: Annotated[str, Length(40)]
    ranker: Annotated[str, Length(64)]
    normalised: bool
    features: tuple[_ExportedFeature, ...]


@dataclass(frozen=True, eq=False)
class ExportDirectory:
    """An export whose files agree with its manifest."""

    folder: Path
    target: ExportTarget
    exported: ExportedRanker
    files: Mapping[str, bytes]

    def model(self) -> Scorer:
        """Read the model from its files."""
        with _prefix_folder(self.folder):
            return self.target.load(self.files, self.exported.names)


def files_of(target: ExportTarget, exported: ExportedRanker, where: str) -> dict[str, bytes]:
    """Return the files of an export by name; raise BadInput if their scores of the test vectors differ from Quorank's."""
    target.check(exported, where)
    vectors = vectors_of(exported)
    files = target.write(exported) | {VECTORS: vectors_bytes(vectors)}
    compared = check_vectors(target.load(files, exported.names), files, exported)
    sentence = (
        f"{target.system} computes other scores with these parameters (list {compared.differing} of the test vectors: "
        f"{compared.why}); constants that float32 holds exactly help, or choose onnx"
    )
    require(compared.same, "export.not-the-same", sentence, where)
    saved = exported.saved
    names = [{"name": a, "exported": b} for a, b in zip(saved.feature_names, exported.names, strict=True)]
    about = {
        "format": FORMAT,
        "target": target.name,
        "ranker": saved.digest,
        "normalised": exported.prenormalised,
        "features": names,
    }
    files |= {ABOUT: json_bytes(about), README: readme(target, exported).encode()}
    return files | {RANKER: ranker_bytes(saved)}


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
    """Read an export; raise BadInput with the name of the first file that was changed."""
    try:
        listed = read_manifest(folder) if folder.is_dir() else None
    except OSError:  # a name that is too long
        listed = None
    if listed is None or ABOUT not in listed:
        sentence = "no export here; expected the folder that quorank export has written"
        raise BadInput("export.missing", sentence, str(folder))
    valid = len(listed) <= MOST_FILES
    valid = valid and all(Path(name).name == name and name not in ("", ".", "..") for name in listed)
    require(valid, "export.damaged", "names files that no export has", str(folder / MANIFEST))
    files = {}
    for name, digest in listed.items():
        require(not (folder / name).is_symlink(), "export.damaged", "is a link; expected a file", str(folder / name))
        files[name] = read_whole(folder / name, LARGEST, digest, "export.damaged")
    with _prefix_folder(folder):
        return _parse_export(folder, files)


def _parse_export(folder: Path, files: Mapping[str, bytes]) -> ExportDirectory:
    about = parse_json(files[ABOUT], _About, ABOUT, code="export.damaged")
    saved: SavedRanker = parse_ranker(content_of(files, RANKER), RANKER)
    same = about.ranker == saved.digest
    require(same, "export.damaged", "is not the ranker that was exported; export it again", RANKER)
    exported, target = ExportedRanker(saved, about.normalised), target_of(about.target, ABOUT)
    target.check(exported, ABOUT)
    pairs = [(each.name, each.exported) for each in about.features]
    known = pairs == list(zip(saved.feature_names, exported.names, strict=True))
    require(known, "export.damaged", "names other features than the ranker", ABOUT)
    return ExportDirectory(folder, target, exported, files)


@contextmanager
def _prefix_folder(folder: Path) -> Iterator[None]:
    """Add the folder to the file name in an error."""
    try:
        yield
    except BadInput as error:
        raise BadInput(error.code, error.sentence, str(folder / error.where)) from None


def check_vectors(model: Scorer, files: Mapping[str, bytes], exported: ExportedRanker) -> Comparison:
    """Compare the model's scores of the stored vectors with the stored scores."""
    vectors = read_vectors(files, exported.saved.n_features)
    return compare_scores(vectors.scores, model(vectors.features, vectors.offsets), vectors.offsets)


def readme(target: ExportTarget, exported: ExportedRanker) -> str:
    """Return the instructions to install an export, in Markdown."""
    saved = exported.saved
    if exported.prenormalised:
        prepared = (
            f"Features arrive **normalised within each list already**, (x − min) / (max − min), after missing ones were "
            f"filled with {saved.missing:g}: you do both before {target.system} receives them."
        )
    elif exported.per_list:
        prepared = "Features are normalised within each list, by the option below."
    elif exported.normalisation.low:
        prepared = "Features arrive as they are: their fixed normalisation is part of the model. "
        prepared += f"A missing one counts as {saved.missing:g}."
    else:
        prepared = f"Features arrive as they are. A missing one counts as {saved.missing:g}."
    pairs = zip(saved.feature_names, exported.names, strict=True)
    renamed = [f"| {name.replace('|', '/')} | `{new}` |" for name, new in pairs if name != new]
    parts = (
        f"# A ranker of Quorank for {target.system}",
        f"{saved.n_features} features in the order of `{ABOUT}`. {prepared}",
        "\n".join(["| feature | here |", "|---|---|", *renamed]) if renamed else "",
        target.instructions(exported).strip(),
        f"`{VECTORS}` has rows and their expected scores (null is a missing feature). `quorank export check .` runs the\n"
        "model in `onnxruntime`, or in an evaluator of this format's published description, and compares; `--data FILE`\n"
        "does so with a LETOR file.",
        f"Ranker: SHA-256 {saved.digest}",
    )
    return "\n\n".join(part for part in parts if part) + "\n"

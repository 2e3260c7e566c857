"""Target of `quorank.export`: a whole export, as a person is handed it."""

from __future__ import annotations

from functools import cache

import numpy as np

from fuzz.target import as_folder, scratch, target
from quorank.data.normalisation import FixedRange
from quorank.export.directory import compare_vectors, read_export
from quorank.export.exported_ranker import ExportedRanker
from quorank.files.atomic import sha256
from quorank.files.documents import MANIFEST, write_manifest
from quorank.rankers import Trees
from quorank.rankers.ranker_file import SavedRanker


@cache
def small_ranker() -> ExportedRanker:
    """A ranker of two trees over three features with fixed constants."""
    split = [0, 1, 0.5, 0.25, 1, 0, 0, -1, 1.5, -0.5, 0.25]  # three leaves: feature, threshold, left, right, value
    split[6:8] = [-2, -1]
    normal = FixedRange((0.0, -1.0, 0.0), (2.0, 1.0, 8.0))
    theta = np.array([*split, *[0.0] * 11])
    return ExportedRanker(SavedRanker(Trees(3, 2), 3, theta, normal, ("title", "body", "clicks")))


@target("export-folder", words=(b"=== ranker.json\n", b"=== vectors.json\n", b'"normalised": true', b"null"))
def export_folder(data: bytes) -> None:
    """An export whose manifest fits; its model is loaded if it is the ranker's."""
    folder = as_folder(data, scratch() / "export")
    files = [path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST]
    write_manifest(folder, {path.name: sha256(path.read_bytes()) for path in files})
    export = read_export(folder)
    if export.changed_file() is None:
        compare_vectors(export.exported, export.model())

"""The directory of an export: written whole, read back, and what was changed in it is found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from exported_rankers import exported_ranker
from refusals import refused

from quorank.export import TARGETS
from quorank.export.directory import Comparison, compare_scores, read_export, vectors_of, write_export
from quorank.files.atomic import sha256
from quorank.files.documents import read_manifest, write_manifest

MODELS = {
    "onnx": "model.onnx",
    "elasticsearch": "model.json",
    "opensearch": "model.json",
    "solr": "model.json",
    "vespa": "quorank.profile",
    "ranklib": "model.txt",
    "lightgbm": "model.txt",
    "xgboost": "model.json",
}


def written(folder: Path, name: str, kind: str = "") -> Path:
    kind = kind or ("trees" if name in ("lightgbm", "xgboost") else "linear")
    write_export(TARGETS[name], exported_ranker(kind, "fixed"), folder, "here")
    return folder


def changed(folder: Path) -> str | None:
    return read_export(folder).changed_file()


def with_new_digests(folder: Path) -> None:
    """As somebody does who changes a file and knows of the manifest."""
    listed = read_manifest(folder)
    assert listed is not None
    write_manifest(folder, {name: sha256((folder / name).read_bytes()) for name in listed})


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_another_ranker_is_never_loaded(tmp_path: Path, name: str) -> None:
    """What an attacker hands over as a model (loops, other files, entities) is compared with ours, not parsed."""
    folder = written(tmp_path / "out", name)
    assert changed(folder) is None
    other = exported_ranker("trees" if name in ("lightgbm", "xgboost") else "linear", "fixed")
    other.saved.theta[4 * 7 if name in ("lightgbm", "xgboost") else 0 :] += 0.01
    for content in (TARGETS[name].write(other)[MODELS[name]], b"", b"[" * 100_000):
        (folder / MODELS[name]).write_bytes(content)
        with refused("export.damaged", f"{folder / MODELS[name]}"):
            read_export(folder)
        with_new_digests(folder)
        assert changed(folder) == MODELS[name]


def test_a_changed_ranker_or_name_is_found(tmp_path: Path) -> None:
    folder = written(tmp_path / "out", "solr")
    content = json.loads((folder / "ranker.json").read_text())
    content["parameters"][0] += 1.0
    (folder / "ranker.json").write_text(json.dumps(content))
    with_new_digests(folder)
    with refused("ranker-file.damaged", f"{folder / 'ranker.json'}"):
        read_export(folder)
    (folder / "ranker.json").write_bytes((written(tmp_path / "x", "solr", "trees") / "ranker.json").read_bytes())
    with_new_digests(folder)
    assert changed(folder) == "model.json"
    folder = written(tmp_path / "named", "solr")
    about = json.loads((folder / "export.json").read_text())
    about["features"][0], about["features"][1] = about["features"][1], about["features"][0]
    (folder / "export.json").write_text(json.dumps(about))
    with_new_digests(folder)
    assert changed(folder) == "export.json"


def test_a_folder_that_is_no_export_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with refused("export.missing", f"{folder}"):
            read_export(folder)
    folder = written(tmp_path / "out", "solr")
    (folder / "model.json").unlink()
    with refused("file.missing"):
        read_export(folder)
    (folder / "model.json").symlink_to("/etc/hostname")
    with refused("export.damaged", f"{folder / 'model.json'}"):
        read_export(folder)
    write_manifest(folder, {"export.json": sha256((folder / "export.json").read_bytes())})
    with refused("file.damaged", f"{folder / 'ranker.json'}"):
        read_export(folder)


def test_an_earlier_export_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    folder = written(tmp_path / "out", "vespa")
    written(folder, "ranklib")
    assert {path.name for path in folder.iterdir()} == {
        "model.txt", "ranker.json", "vectors.json", "export.json", "README.md", "manifest.json",
    }  # fmt: skip
    assert changed(folder) is None
    (folder / "mine.txt").write_text("of somebody else")
    with refused("folder.not-empty", f"{folder}"):
        written(folder, "solr")
    assert changed(folder) is None


def test_the_instructions_for_ranklib_name_the_option_that_its_fork_does_not_have(tmp_path: Path) -> None:
    commands = re.findall(
        r"java -jar (\S+)\.jar (.*)", (written(tmp_path / "out", "ranklib") / "README.md").read_text()
    )
    assert [(program, "-missingZero" in options) for program, options in commands] == [
        ("RankLib", True),
        ("RankyMcRankFace", False),
    ]


def test_vectors_hold_missing_features_zeros_and_thresholds() -> None:
    exported = exported_ranker("trees", "fixed", missing=1.5)
    features, _ = vectors_of(exported)
    assert np.isnan(features).any() and np.isnan(features[-1]).all() and not features[1].any()
    thresholds = {t for tree in exported.trees for t in tree.threshold[: tree.splits]}
    assert len({float(x) for x in features[features == features]} & thresholds) > 5


# ------------------------------------------------------------ what counts as a difference


def test_scores_and_orders_are_compared_list_by_list() -> None:
    offsets = np.array([0, 2, 2, 5])
    ours = np.array([1.0, 2.0, 30.0, 20.0, 10.0])
    assert compare_scores(ours, ours, offsets) == Comparison(3, 5)
    near = compare_scores(ours, ours + np.array([0, 0, 2e-4, 0, 0]), offsets)  # 30 may differ by 3e-4
    assert near.same and near.largest == pytest.approx(2e-4 / 30)
    far = compare_scores(ours, ours + np.array([0, 0, 4e-4, 0, 0]), offsets)
    assert (far.differing, far.same) == (2, False) and far.why.startswith("document 1 scores 30.0004")
    assert compare_scores(ours, np.array([np.nan, 2.0, 30.0, 20.0, 10.0]), offsets).differing == 0


def test_a_swap_counts_unless_float32_cannot_tell() -> None:
    offsets = np.array([0, 3])
    ours = np.array([1.0, 1.0 - 4e-6, 0.0])
    swapped = compare_scores(ours, np.array([1.0 - 4e-6, 1.0, 0.0]), offsets)
    assert swapped.differing == 0 and swapped.why == "document 2 stands at rank 1, and document 1 in Quorank"
    ties = compare_scores(np.array([1.0, 1.0 - 6e-8, 0.0]), np.array([1.0 - 6e-8, 1.0, 0.0]), offsets)
    assert ties.same and ties.swapped_ties == 2

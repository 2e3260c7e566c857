"""Rankers of real runs in every format, checked on every list of their collection: order, scores, missing features.

    python benchmarks/exported_rankers.py                         # generated data, MQ2008 and the MSLR sample
    python benchmarks/exported_rankers.py --only synthetic:mq2007

Runs linear rankers, networks and trees with fixed constants (the minimum and maximum of the training split), exports each
to each format that holds it, and compares as `quorank export check DIR --data COLLECTION` does: the data as it is, and with
every eleventh feature missing. Exits with 1 where anything differs. Where LightGBM or XGBoost is installed, it scores the
test vectors too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quorank.data import Collection, DataSource, load
from quorank.data.normalisation import FixedRange, RawFeatures
from quorank.errors import BadInput
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import find_experiment_file, set_values
from quorank.experiments.runner import run_experiment
from quorank.export import TARGETS
from quorank.export.directory import (
    Comparison,
    ExportDirectory,
    compare_lists,
    compare_vectors,
    expected_scores,
    read_export,
    vectors_of,
    with_gaps,
    write_export,
)
from quorank.export.exported_ranker import ExportedRanker
from quorank.rankers.ranker_file import read_ranker

COLLECTIONS = ("synthetic:mq2007", "../shared/data/mq2008", "../shared/data/mslr-sample")
RANKERS = {
    "linear": ("fpdgd", ["ranker.kind=linear"]),
    "network": ("fpdgd", ["ranker.kind=mlp"]),
    "trees": ("trees", ["learner.least_lists=1"]),
}


def main() -> None:
    """Run, export and check; print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=COLLECTIONS, metavar="COLLECTION")
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    print("| collection | ranker | format | lists | largest difference | ties swapped | in the library itself |")
    print("|---|---|---|---|---|---|---|")
    same = True
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only:
            if not name.startswith("synthetic:") and not Path(name).is_dir():
                print(f"{name} is not here: left out", file=sys.stderr)
                continue
            same = check_collection(name, arguments.rounds, Path(folder)) and same
    sys.exit(not same)


def check_collection(name: str, rounds: int, folder: Path) -> bool:
    """Whether every format scores as the rankers that were learned from one collection."""
    collection = load(DataSource(name, normalize=RawFeatures()))
    features = collection.train.features
    low, high = (tuple(limit(axis=0).astype(float).tolist()) for limit in (features.min, features.max))
    same = True
    for kind, (file, changes) in RANKERS.items():
        given = [*changes, f"data.source={name}", f"federation.rounds={rounds}", "federation.clients=200"]
        given.append(f'data.normalize={{ kind = "{FixedRange.kind}", low = {list(low)}, high = {list(high)} }}')
        run = folder / f"{Path(name).name.replace(':', '-')}-{kind}"
        run_experiment(Experiment.read(set_values(find_experiment_file(file), given)), run)
        exported = ExportedRanker(read_ranker(run))
        for target in TARGETS.values():
            try:
                write_export(target, exported, out := run.with_name(f"{run.name}-{target.name}"), kind)
            except BadInput as error:
                if error.code != "export.wrong-ranker":
                    raise
                continue
            export = read_export(out)
            compared = check_all(export, collection)
            same = same and compared.same
            verdict = f"{compared.largest:.1e}" if compared.same else f"DIFFERS: {compared.why}"
            lists = sum(split.n_queries for split in collection.splits.values())
            columns = (
                Path(name).name,
                kind,
                target.name,
                f"{lists:,}",
                verdict,
                compared.swapped_ties,
                library(export),
            )
            print("|", " | ".join(map(str, columns)), "|", flush=True)
    return same


def check_all(export: ExportDirectory, collection: Collection) -> Comparison:
    """All that `quorank export check` compares, as one."""
    model = export.model()
    found = [compare_vectors(export.exported, model)]
    for split in collection.splits.values():
        for features in (split.features, with_gaps(split.features)):
            found.append(compare_lists(export.exported, model, features, split.offsets))
    worst = max(found, key=lambda each: (not each.same, each.largest))
    return replace(worst, swapped_ties=sum(each.swapped_ties for each in found))


def library(export: ExportDirectory) -> str:
    """The largest difference of the test vectors' scores in the library that the format is of, where it is installed."""
    features, offsets = vectors_of(export.exported)
    expected = expected_scores(export.exported, features, offsets)
    scores: Any
    try:
        if export.target.name == "lightgbm":
            import lightgbm

            scores = lightgbm.Booster(model_file=export.folder / "model.txt").predict(features)
        elif export.target.name == "xgboost":
            import xgboost

            scores = xgboost.Booster(model_file=export.folder / "model.json").predict(xgboost.DMatrix(features))
        else:
            return "as checked" if export.target.name == "onnx" else ""
    except ImportError:
        return "not installed"
    return f"{np.max(np.abs(scores - expected) / np.maximum(1.0, np.abs(expected))):.1e}"


if __name__ == "__main__":
    main()

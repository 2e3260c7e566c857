"""`quorank export RANKER --to FORMAT --out DIR` and `quorank export check DIR`: rankers in other systems' formats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from quorank.cli.display import print_result, print_rows, rows_of, say
from quorank.cli.options import Fold, Json
from quorank.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quorank.data.ranking import RankingData
    from quorank.export.directory import Comparison, ExportDirectory

WRITE = "write"


class ExportGroup(TyperGroup):
    """Reads `quorank export RANKER …` as `quorank export write RANKER …`; a ranker called check is ./check."""

    default_command = WRITE

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = args and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return list(super().parse_args(ctx, args if known or not args else [self.default_command, *args]))


app = typer.Typer(
    cls=ExportGroup,
    no_args_is_help=True,
    help="Write a ranker for another system, or check such an export.\n\n"
    "quorank export RANKER --to FORMAT --out DIR is short for quorank export write; "
    "FORMAT is onnx, elasticsearch, opensearch, solr, vespa, ranklib, lightgbm or xgboost.",
)


@app.command(WRITE)
def write(
    ranker: Annotated[Path, Argument(help="ranker.json, or the directory of a run.")],
    to: Annotated[
        str,
        Option(
            help="onnx, elasticsearch, opensearch, solr, vespa or ranklib; lightgbm or xgboost for rankers of trees."
        ),
    ],
    out: Annotated[Path, Option(help="Output folder.")] = Path("exported"),
    normalised: Annotated[
        bool, Option("--normalised", help='For normalize = "query": the system receives normalised features.')
    ] = False,
    json: Json = False,
) -> None:
    """Write a ranker's model, features, test vectors and instructions.

    A ranker that the system cannot compute is rejected. Nothing is written
    unless the model gives the test vectors the same scores as Quorank.
    """
    from quorank.export import target_of
    from quorank.export.directory import write_export
    from quorank.export.exported_ranker import ExportedRanker
    from quorank.rankers.ranker_file import read_ranker

    target = target_of(to)
    saved = read_ranker(ranker)
    kind = saved.normalisation.kind
    sentence = f'this ranker has normalize = "{kind}", which the export includes; leave the option out'
    require(kind == "query" or not normalised, "option.conflict", sentence, "--normalised")
    written = write_export(target, ExportedRanker(saved, normalised), out, str(ranker))
    result = {
        "format": to,
        "files": [str(path) for path in written],
        "ranker": saved.ranker.kind,
        "digest": saved.digest,
        "features": saved.n_features,
        "normalize": kind,
        "normalised_in_front": normalised,
        "missing": saved.missing,
    }
    print_result(result, json, lambda found: print("\n".join(found["files"])))


@app.command("check")
def check(
    folder: Annotated[Path, Argument(metavar="DIR", help="Folder written by quorank export.")],
    data: Annotated[
        str | None, Option(help="LETOR file, folder or name.", show_default="only the test vectors")
    ] = None,
    fold: Fold = 1,
    json: Json = False,
) -> None:
    """Check that an exported model scores and ranks like its ranker.

    The files must be unchanged. The model, read from them alone, must give the
    test vectors and all lists of --data the same order and the same scores
    within 1e-5, also with missing features. Otherwise the exit code is 1.
    """
    import dataclasses

    from quorank.export.directory import RESOLUTION, TOLERANCE, read_export

    export = read_export(folder)
    exported, changed = export.exported, export.changed_file()
    compared = list(_compared(export, data, fold)) if changed is None else []
    differing = next(((name, at, found.why) for name, found, at in compared if not found.same), None)
    difference = ": ".join(differing) if differing else None
    if changed is not None:
        difference = f"{changed}: differs from the file that is written for this ranker; export again"
    result = {
        "same": difference is None,
        "format": export.target.name,
        "folder": str(folder),
        "ranker": exported.saved.digest,
        "tolerance": TOLERANCE,
        "tie_resolution": RESOLUTION,
        "checked": {name: dataclasses.asdict(found) for name, found, _ in compared},
        "difference": difference,
    }
    print_result(result, json, _show_checked)
    if difference is not None:
        say(f"quorank: {folder}: model differs from its ranker: {difference}")
        raise typer.Exit(1)


def _compared(export: ExportDirectory, data: str | None, fold: int) -> Iterator[tuple[str, Comparison, str]]:
    """Yield the name, the result and the first differing list of each comparison with the ranker."""
    from quorank.export.directory import compare_lists, compare_vectors, normalise_lists, with_gaps

    exported, model = export.exported, export.model()
    found = compare_vectors(exported, model)
    yield "vectors", found, f"list {found.differing} of vectors.json"
    for split, lists in _splits(data, fold, exported.saved.n_features) if data is not None else ():
        if exported.prenormalised:
            variants = {split: normalise_lists(lists.features, lists.offsets)}
        else:
            variants = {split: lists.features, f"{split}, with gaps": with_gaps(lists.features)}
        for name, features in variants.items():
            found = compare_lists(exported, model, features, lists.offsets)
            yield name, found, f"query {lists.query_ids[found.differing or 0]}"


def _splits(data: str, fold: int, width: int) -> Iterator[tuple[str, RankingData]]:
    """Yield the splits of a collection, or one file, with `width` raw features."""
    from quorank.data import DataSource, load
    from quorank.data.letor.reader import read_letor
    from quorank.data.normalisation import RawFeatures
    from quorank.data.ranking import widen
    from quorank.files.atomic import expand_home

    path = expand_home(data)
    if os.path.isfile(path):  # noqa: PTH113  # Path.is_file raises for a name that is too long
        splits = {path.name: read_letor(path)}
    else:
        splits = load(DataSource(data, fold=fold, normalize=RawFeatures())).splits
    for name, split in splits.items():
        differs = f"the ranker has {width} features, but {data} has {split.n_features}"
        require(split.n_features <= width, "ranker.features-differ", differs, "--data")
        yield name, widen(split, width)


def _show_checked(result: dict[str, Any]) -> None:
    row = "{name} | {verdict} | {lists:,} lists, {documents:,} documents, within {largest:.0e}"
    for name, compared in result["checked"].items():
        verdict = "same" if compared["differing"] is None else "DIFFERS"
        print_rows(*rows_of(row, {"name": name, "verdict": verdict, **compared}))

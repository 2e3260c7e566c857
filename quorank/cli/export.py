"""`quorank export RANKER --to FORMAT --out DIR` and `quorank export check DIR`: rankers in other systems' formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from quorank.cli.display import print_figures, print_rows, say
from quorank.cli.options import FiguresJson, Fold
from quorank.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quorank.data.ranking import RankingData
    from quorank.export.directory import ExportDirectory

WRITE = "write"


class ExportGroup(TyperGroup):
    """Takes `quorank export RANKER …` for `quorank export write RANKER …`; a ranker called check is ./check."""

    unnamed = WRITE  # the command that is meant where none is named

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = args and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return list(super().parse_args(ctx, args if known or not args else [self.unnamed, *args]))


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
    out: Annotated[Path, Option(help="Folder that the files are written to.")] = Path("exported"),
    normalised: Annotated[
        bool, Option("--normalised", help="You normalise features within their list in front of the system.")
    ] = False,
    json: FiguresJson = False,
) -> None:
    """Write a ranker's model, features, test vectors and the calls to install it.

    What the system cannot compute is refused. The files score the test
    vectors as Quorank does, or nothing is written.
    """
    from quorank.export import target_of
    from quorank.export.directory import write_export
    from quorank.export.exported_ranker import ExportedRanker
    from quorank.rankers.ranker_file import read_ranker

    target = target_of(to)
    saved = read_ranker(ranker)
    within = saved.normalisation.kind == "query"
    sentence = f'this ranker has normalize = "{saved.normalisation.kind}", which the export does itself; leave it out'
    require(within or not normalised, "option.conflict", sentence, "--normalised")
    exported = ExportedRanker(saved, normalised)
    written = write_export(target, exported, out, str(ranker))
    result = {
        "format": to,
        "files": [str(path) for path in written],
        "ranker": saved.ranker.kind,
        "digest": saved.digest,
        "features": saved.n_features,
        "normalize": saved.normalisation.kind,
        "normalised_in_front": normalised,
        "missing": saved.missing,
    }
    print_figures(result, json, _show_written)


def _show_written(result: dict[str, Any]) -> None:
    for file in result["files"]:
        print(file)
    prepared = {
        "query": "normalised within each list",
        "fixed": "as they are, the normalisation is inside",
        "none": "as they are",
    }[result["normalize"]]
    front = " by you, in front" if result["normalised_in_front"] else ""
    print(
        f"{result['features']} features in their order, {prepared}{front}; a missing one counts as {result['missing']:g}."
    )
    print("Its scores of the test vectors are Quorank's; README.md has the calls that install it.")


@app.command("check")
def check(
    folder: Annotated[Path, Argument(metavar="DIR", help="Folder that quorank export has written.")],
    data: Annotated[
        str | None, Option(help="LETOR file, folder or name; without it, the stored vectors alone.")
    ] = None,
    fold: Fold = 1,
    json: FiguresJson = False,
) -> None:
    """Check that an export scores and ranks as the ranker in it does.

    Every file is as it was written, and the model, read from its files alone,
    gives the stored vectors and all lists of the data the same order and, but
    for 1e-5, the same scores; also with features missing. Exit 1 if not.
    """
    import dataclasses

    from quorank.export.comparison import RESOLUTION, TOLERANCE, compare_lists, normalised, with_gaps
    from quorank.export.directory import check_vectors, read_export

    export = read_export(folder)
    exported, model = export.exported, export.model()
    found = {"vectors": check_vectors(model, export.files, exported)}
    names: dict[str, list[str]] = {"vectors": []}
    for split, given in _splits(data, fold, export) if data is not None else ():
        features = given.features
        if exported.in_front:
            features = normalised(features, given.offsets)
        found[split] = compare_lists(exported, model, features, given.offsets)
        names[split] = list(given.query_ids)
        if not exported.in_front:
            found[f"{split}, with gaps"] = compare_lists(exported, model, with_gaps(features), given.offsets)
            names[f"{split}, with gaps"] = names[split]
    failed = next((name for name, compared in found.items() if not compared.same), None)
    result = {
        "same": failed is None,
        "format": export.target.name,
        "folder": str(folder),
        "ranker": exported.saved.digest,
        "tolerance": TOLERANCE,
        "tie_resolution": RESOLUTION,
        "checked": {name: dataclasses.asdict(compared) for name, compared in found.items()},
        "difference": None,
    }
    if failed is not None:
        compared = found[failed]
        at = compared.differing or 0
        place = f"query {names[failed][at]}" if names[failed] else f"list {at} of vectors.json"
        result["difference"] = f"{failed}: {place}: {compared.why}"
    print_figures(result, json, _show_checked)
    if failed is not None:
        say(f"quorank: {folder}: not the same as its ranker: {result['difference']}")
        raise typer.Exit(1)


def _splits(data: str, fold: int, export: ExportDirectory) -> Iterator[tuple[str, RankingData]]:
    """The splits of a collection, or one file, with features as they are."""
    from quorank.data import DataSource, load
    from quorank.data.letor.reader import read_letor
    from quorank.data.normalisation import RawFeatures
    from quorank.data.ranking import widen
    from quorank.files.untrusted import home_expanded

    path = home_expanded(data)
    try:
        one_file = path.is_file()
    except OSError:  # a name that is too long for one
        one_file = False
    splits: dict[str, RankingData] = {}
    if one_file:
        splits[path.name] = read_letor(path)
    else:
        splits = load(DataSource(data, fold=fold, normalize=RawFeatures())).splits
    width = export.exported.saved.n_features
    for name, given in splits.items():
        differs = f"the ranker has {width} features, but {data} has {given.n_features}"
        require(given.n_features <= width, "ranker.features-differ", differs, "--data")
        yield name, widen(given, width)


def _show_checked(result: dict[str, Any]) -> None:
    rows = []
    for name, compared in result["checked"].items():
        verdict = "same" if compared["differing"] is None else "DIFFERS"
        told = f"{compared['lists']:,} lists, {compared['documents']:,} documents, within {compared['largest']:.0e}"
        if compared["swapped_ties"]:
            told += f", {compared['swapped_ties']} ties swapped"
        rows.append((name, verdict, told))
    print_rows(*rows)

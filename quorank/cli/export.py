"""`quorank export RANKER --to FORMAT`: write a ranker in the format of another system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from quorank.cli.display import print_figures
from quorank.cli.options import FiguresJson


def export(
    ranker: Annotated[Path, Argument(help="ranker.json, or the directory of a run.")],
    to: Annotated[str, Option(help="lightgbm (text model) or xgboost (JSON model), for rankers of trees.")],
    out: Annotated[Path, Option(help="Folder that the files are written to.")] = Path("exported"),
    json: FiguresJson = False,
) -> None:
    """Write a ranker's files for another system.

    Features keep their order and must be prepared as the ranker's were: it
    says whether they are normalised within a query.
    """
    from quorank.experiments.run_directory import make_folder
    from quorank.export import target_of
    from quorank.files import write_whole
    from quorank.rankers.ranker_file import read_ranker

    target = target_of(to)
    saved = read_ranker(ranker)
    target.check(saved, str(ranker))
    make_folder(out)
    written = [str(write_whole(out / name, content)) for name, content in target.files(saved).items()]
    result = {
        "format": to,
        "files": written,
        "ranker": saved.ranker.kind,
        "features": saved.n_features,
        "normalize": saved.normalize,
    }
    print_figures(result, json, _show)


def _show(result: dict[str, object]) -> None:
    for file in result["files"]:  # type: ignore[attr-defined]
        print(file)
    prepared = "normalised within each query" if result["normalize"] == "query" else "as they are"
    print(f"{result['features']} features in their order, {prepared}; a missing one counts as 0.")

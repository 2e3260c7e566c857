"""quorank data: list, describe, generate, import and fetch collections."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

app = typer.Typer(help="Ranking data: list, describe, generate, import and fetch collections.", no_args_is_help=True)

Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the collections that can be used, and those that can be had."""
    from dataclasses import asdict

    from quorank.data.collections import PUBLIC
    from quorank.data.library import imported_collections
    from quorank.data.synthetic import SHAPES

    generated = [
        {
            "name": f"synthetic:{name}",
            "features": shape.n_features,
            "grades": len(shape.cuts) + 1,
            "training_queries": shape.queries,
            "most_training_queries": shape.most,
        }
        for name, shape in SHAPES.items()
    ]
    known, public = list(imported_collections().values()), list(PUBLIC.values())
    if as_json:
        tables = {"imported": [asdict(entry) for entry in known], "public": [asdict(entry) for entry in public]}
        _print_json({"generated": generated, **tables})
        return
    _table(
        "Generated, ready to use",
        {
            "source": [g["name"] for g in generated],
            "features": [g["features"] for g in generated],
            "grades": [g["grades"] for g in generated],
            "training queries": [f"{g['training_queries']:,}, up to {g['most_training_queries']:,}" for g in generated],
        },
    )
    _table(
        "Imported, ready to use" if known else "Imported: none yet",
        {
            "source": [k.name for k in known],
            "folds": [k.folds for k in known],
            "features": [k.features for k in known],
            "queries": [f"{k.queries:,}" for k in known],
            "rows": [f"{k.rows:,}" for k in known],
            "folder": [k.path for k in known],
        },
    )
    _table(
        "Public collections",
        {
            "name": [p.name for p in public],
            "features": [p.features for p in public],
            "grades": [p.grades for p in public],
            "queries": [p.queries for p in public],
            "archive": [p.size for p in public],
            "command": ["fetch" if p.address else "import" for p in public],
        },
    )
    _say("Pages:\n" + "\n".join(dict.fromkeys(f"  {p.page}" for p in public)))


@app.command()
def stats(
    source: Annotated[str, Argument(help="synthetic:mq2007, synthetic:mslr, a folder, or an imported name.")],
    fold: Annotated[int, Option(help="Fold, for a collection in five folds.")] = 1,
    normalize: Annotated[Literal["query", "none"], Option(help="Describe normalised or raw features.")] = "none",
    queries: Annotated[int | None, Option(help="Training queries of generated data.")] = None,
    seed: Annotated[int, Option(help="Seed of generated data.")] = 1,
    as_json: Json = False,
) -> None:
    """Describe a collection: queries, documents, labels and features of each split."""
    from quorank.data import DataSource, load
    from quorank.data.ranking import describe_collection

    chosen = DataSource(source, fold=fold, normalize=normalize, queries=queries, seed=seed)
    found = describe_collection(load(chosen)) | {"fold": fold, "normalize": normalize}
    if as_json:
        _print_json(found)
        return
    splits: dict[str, dict[str, Any]] = found["splits"]
    grades = sorted({grade for split in splits.values() for grade in split["labels"]}, key=int)
    header = ["queries", "rows", "documents per query", *(f"label {grade}" for grade in grades)]
    columns = {"": [*header, "queries without relevant", "constant features"]}
    for name, split in splits.items():
        documents = split["documents_per_query"]
        columns[name] = [
            f"{split['queries']:,}",
            f"{split['rows']:,}",
            f"{documents['min']} / {documents['mean']:.1f} / {documents['max']}",
            *(_share(split["labels"].get(grade, 0), split["rows"]) for grade in grades),
            _share(split["queries_without_relevant"], split["queries"]),
            str(len(split["constant_features"])),
        ]
    _table(f"{found['name']}, fold {fold}, {found['features']} features", columns)


@app.command()
def synthesize(
    name: Annotated[str, Argument(help="mq2007 or mslr.")],
    out: Annotated[Path, Option(help="Folder to write train, vali and test into.")],
    queries: Annotated[int | None, Option(help="Training queries; validation and test have a third.")] = None,
    seed: Annotated[int, Option(help="Seed of the generator.")] = 1,
    gz: Annotated[bool, Option("--gz", help="Write .txt.gz files.")] = False,
) -> None:
    """Write generated data as LETOR text, which `source = DIR` then reads."""
    from quorank.data.letor.writer import write_letor
    from quorank.data.synthetic import generate

    made = generate(name.removeprefix("synthetic:"), queries, seed)
    for split, data in (("train", made.train), ("vali", made.validation), ("test", made.test)):
        assert data is not None
        path = out / f"{split}.txt{'.gz' if gz else ''}"
        _say(f"writing {path}: {data.n_queries:,} queries, {data.n_rows:,} rows")
        write_letor(data, path)
    typer.echo(out)


@app.command("import")
def import_(
    path: Annotated[Path, Argument(help="Folder or archive (.zip, .tar.gz) with a collection.")],
    name: Annotated[str | None, Option(help="Name to use as source; the folder's name by default.")] = None,
) -> None:
    """Give a collection that you already have a name, after reading all of it into the cache."""
    from quorank.data.importing import import_collection

    _imported(import_collection(path, name, _say))


@app.command()
def fetch(name: Annotated[str, Argument(help="A public collection; see `quorank data list`.")]) -> None:
    """Download a public collection, check it, unpack it and import it under its name."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from quorank.data.collections import public_collection
    from quorank.data.fetch import fetch_collection

    entry = public_collection(name)
    if not entry.address:
        fetch_collection(entry.name)  # refuses, and says what to do instead
    _say(f"{entry.name}: {entry.size}; licence: {entry.licence} ({entry.page})")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(entry.archive, total=entry.bytes)
        found = fetch_collection(
            entry.name, lambda have, total: progress.update(task, completed=have, total=total), _say
        )
    _imported(found)


def _imported(entry: Any) -> None:
    typer.echo(
        f"{entry.name}: {entry.queries:,} queries, {entry.rows:,} rows, {entry.features} features; "
        f'source = "{entry.name}"'
    )


def _share(count: int, total: int) -> str:
    return f"{count:,} ({100 * count / total:.1f} %)"


def _table(title: str, columns: Mapping[str, Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    rows = list(zip(*columns.values(), strict=True))
    table = Table(title=title, title_justify="left", title_style="bold", show_header=bool(rows))
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", justify="left" if number == 0 else "default")
    for row in rows:
        table.add_row(*map(str, row))
    Console().print(table if rows else title, "", sep="\n" if rows else "")


def _say(message: str) -> None:
    typer.echo(message, err=True)


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, indent=2))

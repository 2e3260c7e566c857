"""`quorank data`: list, describe, generate, import and fetch collections."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from quorank.cli.display import (
    print_lines,
    print_result,
    print_rows,
    print_text,
    progress_lines,
    rows_of,
    say,
    table_of,
)
from quorank.cli.options import Fold, Json
from quorank.cli.text_collections import find_text, report_skipped, skipped_table
from quorank.errors import require
from quorank.text.collection import NAMED_FORMATS

if TYPE_CHECKING:
    from quorank.data.library import ImportedCollection
    from quorank.text import SkipRecord, TextCollection

LogFormat = Literal["aol4foltr", "baidu-ultr", "ubi", "csv"]
LogFeatures = Literal["all", "lexical", "embedding"]

app = typer.Typer(help="Ranking data: list, describe, generate, import and fetch collections.", no_args_is_help=True)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List available collections and public ones to fetch or import."""
    from dataclasses import asdict

    from quorank.data.library import PUBLIC, imported_collections
    from quorank.data.logs.generated import LOG_SHAPES
    from quorank.data.synthetic import SHAPES

    names = ("name", "features", "grades", "training_queries", "most_training_queries")
    shapes = [(n, s.n_features, len(s.cuts) + 1, s.queries, s.most) for n, s in SHAPES.items()]
    shapes += [(n, len(log.features), 2, log.queries, log.most) for n, log in LOG_SHAPES.items()]
    tables = {
        "generated": [dict(zip(names, (f"synthetic:{shape[0]}", *shape[1:]), strict=True)) for shape in shapes],
        "imported": [asdict(entry) for entry in imported_collections().values()],
        "public": [asdict(entry) for entry in PUBLIC.values()],
    }
    print_result(tables, as_json, _show_list)


LISTED = {
    "Generated, ready to use": (
        "source | features | grades | training queries",
        "{name} | {features} | {grades} | {training_queries:,}, up to {most_training_queries:,}",
    ),
    "Imported, ready to use": (
        "source | folds | features | queries | rows | folder",
        "{name} | {folds} | {features} | {queries:,} | {rows:,} | {path}",
    ),
    "Public collections": (
        "name | features | grades | queries | archive | command",
        "{name} | {features} | {grades} | {queries} | {size} | {command}",
    ),
}
"""Heads and rows of the tables of `data list`."""


def _show_list(tables: dict[str, list[dict[str, Any]]]) -> None:
    for entry in tables["public"]:
        entry["command"] = "fetch" if entry["address"] else "import"
    for (title, (heads, row)), entries in zip(LISTED.items(), tables.values(), strict=True):
        rows = [cells for entry in entries for cells in rows_of(row, entry)]
        _table(title if rows else f"{title}: none yet", heads.split(" | "), rows)
    say("Pages:\n" + "\n".join(dict.fromkeys(f"  {entry['page']}" for entry in tables["public"])))


@app.command()
def stats(
    source: Annotated[
        str,
        Argument(
            help="synthetic:mq2007, synthetic:mslr, a folder of LETOR files, an imported name, or a text collection "
            f"({NAMED_FORMATS})."
        ),
    ],
    fold: Fold = 1,
    normalize: Annotated[Literal["query", "none"], Option(help="Describe normalised or raw features.")] = "none",
    queries: Annotated[int | None, Option(help="Training queries of generated data.")] = None,
    seed: Annotated[int, Option(help="Seed of generated data.")] = 1,
    as_json: Json = False,
) -> None:
    """Describe a collection: queries, documents, labels and features of each split."""
    from quorank.data import DataSource, load
    from quorank.data.normalisation import NORMALISATIONS
    from quorank.data.ranking import describe_collection
    from quorank.data.source import feature_names

    if (texts := find_text(source)) is not None:
        _describe_texts(texts.without_empty(), source, as_json)
        return
    chosen = DataSource(
        source, fold=fold, normalize=NORMALISATIONS.read(normalize, "--normalize"), queries=queries, seed=seed
    )
    collection = load(chosen)
    names = feature_names(chosen, collection.train.n_features)
    found = describe_collection(collection) | {"fold": fold, "normalize": normalize, "feature_names": [*names]}
    print_result(found, as_json, _show_stats)


def _describe_texts(texts: TextCollection, source: str, as_json: bool) -> None:
    from quorank.text.languages import describe_text

    path = shlex.quote(source)
    learning = {
        f"quorank silo demo --collection {path}": "parties that learn together on it",
        f"quorank data import {path}": "LETOR files of it, as a source of experiments",
    }
    uses = (learning if texts.judgements else {}) | {"quorank silo search --help": "search in its documents"}
    report_skipped(texts.skipped, texts.name)
    print_result(describe_text(texts) | {"use": [*uses]}, as_json, lambda found: _show_texts(found, uses))


TEXTS = """
format | | {format}, a text collection
documents | {documents:,} | {title} words in a title, {body} in a body
queries | {queries:,} | {query} words each; {judged_queries:,} are judged
judgements | {judgements:,} | {shares}
language | | {language[told]}
"""


def _show_texts(found: dict[str, Any], uses: dict[str, str]) -> None:
    mean = {part: "none" if words is None else f"{words:.1f}" for part, words in found["mean_words"].items()}
    shares = ", ".join(f"{grade}: {_share(count, found['judgements'])}" for grade, count in found["grades"].items())
    print_rows(*rows_of(TEXTS, found | mean | {"shares": f"grades {shares}" if shares else "none"}))
    print_text("", "Use it with", *(f"  {command}\n      {what}" for command, what in uses.items()))


def _show_stats(found: dict[str, Any]) -> None:
    splits: dict[str, dict[str, Any]] = found["splits"]
    grades = sorted({grade for split in splits.values() for grade in split["labels"]}, key=int)
    names = ["queries", "rows", "documents per query", *(f"label {grade}" for grade in grades)]
    columns = [[*names, "queries without relevant", "constant features"]]
    for split in splits.values():
        documents = split["documents_per_query"]
        columns.append(
            [
                f"{split['queries']:,}",
                f"{split['rows']:,}",
                f"{documents['min']} / {documents['mean']:.1f} / {documents['max']}",
                *(_share(split["labels"].get(grade, 0), split["rows"]) for grade in grades),
                _share(split["queries_without_relevant"], split["queries"]),
                str(len(split["constant_features"])),
            ]
        )
    if "log" in found:
        _show_log(found["log"])
    title = f"{found['name']}, fold {found['fold']}, {found['features']} features"
    _table(title, ["", *splits], list(zip(*columns, strict=True)))
    named = [(str(number), name) for number, name in enumerate(found["feature_names"], 1) if name]
    if named:
        from quorank.data.source import typed_name

        rows = [[number, name, typed_name(name)] for number, name in named]
        _table("Features, and their names in a ranker's start", ["number", "name", "typed"], rows)


LOG = """
click log | | labels are clicks; the last fifth in time is the test split
users | {users:,} | {activity}
times | | {times}
ranks | | {shown}
"""


def _show_log(log: dict[str, Any]) -> None:
    median, most = log["median_searches_of_a_user"], log["most_searches_of_a_user"]
    words = {
        "activity": f"{median:g} training searches in the median, {most:,} at most" if log["users"] else "unknown",
        "times": f"from {log['from']} to {log['to']}" if log["from"] else "unknown; searches are in the log's order",
        "shown": "known: documents are in the order in which they were shown" if log["ranks"] else "unknown",
    }
    print_rows(*rows_of(LOG, log | words))


@app.command()
def synthesize(
    name: Annotated[str, Argument(help="mq2007 or mslr, or a click log: aol or clicks.")],
    out: Annotated[Path, Option(help="Output folder.")],
    queries: Annotated[
        int | None, Option(help="Training queries; validation and test have a third. For a log, all searches.")
    ] = None,
    seed: Annotated[int, Option(help="Random seed.")] = 1,
) -> None:
    """Write generated data as LETOR files for `source = DIR`, or a click log."""
    from quorank.data.logs.generated import LOG_SHAPES

    name = name.removeprefix("synthetic:")
    if name in LOG_SHAPES:
        from quorank.data.logs.csv_table import write_csv_log
        from quorank.data.logs.generated import generated_log

        count = queries or LOG_SHAPES[name].queries
        say(f"writing {out}: {count:,} searches; import it with --format csv")
        write_csv_log(generated_log(name, count, seed), out / "clicks.csv")
    else:
        from quorank.data.letor.writer import write_letor
        from quorank.data.synthetic import generate

        made = generate(name, queries, seed)
        for split, data in (("train", made.train), ("vali", made.validation), ("test", made.test)):
            assert data is not None
            say(f"writing {out / split}.txt: {data.n_queries:,} queries, {data.n_rows:,} rows")
            write_letor(data, out / f"{split}.txt")
    print(out)


@app.command("import")
def import_(
    path: Annotated[
        Path,
        Argument(help=f"Folder or archive (.zip, .tar.gz) with LETOR files or a text collection ({NAMED_FORMATS})."),
    ],
    name: Annotated[str | None, Option(help="Name of the collection.", show_default="the folder's name")] = None,
    text: Annotated[
        bool,
        Option(
            "--text",
            help="Read documents, queries and judgements, even if the files look like LETOR, and compute sixteen features.",
        ),
    ] = False,
    depth: Annotated[int, Option(min=2, help="For texts: candidates of a query, by BM25.")] = 100,
    format_: Annotated[
        LogFormat | None, Option("--format", help="Read a log of real clicks in this format (docs/clicks.md).")
    ] = None,
    features: Annotated[
        LogFeatures, Option(help="For baidu-ultr: the lexical columns, the embedding, or all.")
    ] = "all",
    as_json: Json = False,
) -> None:
    """Import a collection or a click log that you already have, under a name."""
    if format_ is not None:
        from quorank.data.logs.importing import import_log

        require(not text, "option.conflict", "--text is for documents, and --format for a click log", "--text")
        entry, left_out = import_log(path, format_, name, say, features)
        for reason, count in left_out.items():
            say(f"left out: {count:,} {reason}")
        _imported(entry, as_json, left_out)
        return
    from quorank.data.importing import collection_name, import_collection
    from quorank.text import read_collection

    skipped: SkipRecord = {}
    texts = read_collection(path) if text else find_text(path)
    if texts is not None:
        from quorank.data.library import library_folder
        from quorank.text.ranking_rows import write_letor_folder

        name, texts = collection_name(path, name), texts.without_empty()
        path = library_folder("collections") / name
        say(f"writing {path}: features of {len(texts.queries):,} queries in {len(texts.documents):,} documents")
        skipped = write_letor_folder(texts, path, depth)
        report_skipped(skipped, name)
    _imported(import_collection(path, name, say), as_json, skipped_table(skipped))


@app.command()
def fetch(name: Annotated[str, Argument(help="Public collection; see `quorank data list`.")]) -> None:
    """Download a public collection, check it, unpack it and import it under its name."""
    from quorank.data.importing import fetch_collection
    from quorank.data.library import public_collection

    entry = public_collection(name)
    if not entry.address:
        fetch_collection(entry.name)  # raises with instructions for a manual download
    say(f"{entry.name}: {entry.size}; licence: {entry.licence} ({entry.page})")
    line = progress_lines(f"{entry.archive}: MB")

    def show(have: int, total: int | None) -> None:
        line(have >> 20, (total or entry.bytes or 0) >> 20)

    _imported(fetch_collection(entry.name, show, say))


@app.command()
def export(
    log: Annotated[str, Argument(help="Name or folder of an imported click log.")],
    out: Annotated[Path, Option(help="Output folder for clicks.csv.")],
) -> None:
    """Write an imported click log as CSV, which `import --format csv` reads back."""
    from quorank.data.logs.importing import export_log

    print(export_log(log, out, say))


def _imported(entry: ImportedCollection, as_json: bool = False, skipped: dict[str, Any] | None = None) -> None:
    from dataclasses import asdict

    told = '{name}: {queries:,} queries, {rows:,} rows, {features} features; source = "{name}"'
    print_result(asdict(entry) | {"skipped": skipped or {}}, as_json, lambda found: print_lines(told.format(**found)))


def _share(count: int, total: int) -> str:
    return f"{count:,} ({100 * count / total:.1f} %)"


def _table(title: str, heads: Iterable[str], rows: Sequence[Sequence[str]]) -> None:
    table = table_of(heads, rows, title=title, title_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    print_text(*([table, ""] if rows else [title]))

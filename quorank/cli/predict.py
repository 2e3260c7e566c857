"""`quorank predict RANKER FILE`: scores of the documents in a file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from quorank.cli.display import say
from quorank.cli.options import Quiet, Tag
from quorank.errors import require


def predict(
    ranker: Annotated[Path, Argument(help="ranker.json, or the directory of a run.")],
    file: Annotated[Path, Argument(help="Documents: .csv, .parquet, or LETOR text; .gz too.")],
    out: Annotated[Path | None, Option(help="Output file for the scores.", show_default="stdout")] = None,
    trec_run: Annotated[Path | None, Option(help="Write a TREC run to a file instead of scores.")] = None,
    tag: Tag = "quorank",
    quiet: Quiet = False,
) -> None:
    """Score documents by their raw features: one score per line, in the file's order.

    Missing features are filled, and features normalised, by the constants of
    the ranker file. CSV and Parquet columns are found by the names of the features;
    qid, docid and label are optional columns.
    """
    from quorank.data.feature_tables import read_feature_table
    from quorank.files.atomic import write_whole
    from quorank.rankers.ranker_file import read_ranker

    saved = read_ranker(ranker)
    began = time.perf_counter()
    table = read_feature_table(file, saved.feature_names, saved.missing)
    sentence = "has no column qid, by which a TREC run lists documents"
    require(trec_run is None or table.queries is not None, "features.no-queries", sentence, f"{file}")
    within = saved.normalisation.kind == "query"
    sentence = "has no column qid, and the ranker's features are normalised within each query's list"
    require(not within or table.queries is not None, "features.no-group", sentence, f"{file}")
    read = time.perf_counter()
    scores = saved.score(table.features, table.queries if within else None)
    done = time.perf_counter()
    if trec_run is not None and table.queries is not None:
        from quorank.metrics.trec_files import grouped
        from quorank.metrics.trec_files import trec_run as run_of

        write_whole(trec_run, run_of(*grouped(table.queries, table.documents, scores), tag))
    if trec_run is None or out is not None:
        text = "".join(f"{score!r}\n" for score in scores.tolist())
        if out is None:
            sys.stdout.write(text)
        else:
            write_whole(out, text)
    if not quiet:
        say(f"quorank: {len(scores):,} rows read in {read - began:.2f} s and scored in {done - read:.2f} s")

"""Cover, memory and speed of RTK-Sketches, beside NAIVE and beside the published reading.

    python benchmarks/silo_sketches.py main [COLLECTION...]      cover, memory and speed, one line a party
    python benchmarks/silo_sketches.py causes [COLLECTION...]    why the literal reading fails, cause by cause
    python benchmarks/silo_sketches.py curves [COLLECTION...]    cover over α, β, K, w, z for both readings
    python benchmarks/silo_sketches.py rows [COLLECTION...]      proportions of the recommended reading; z1 of z rows
    python benchmarks/silo_sketches.py flat                      time of a query from 10,000 to 1,000,000 documents

COLLECTION is a path that `quorank.text.read_collection` knows, several joined by + for one party that holds them all;
without one, documents are generated (--documents, --length). Prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from quorank.silos.count_sketch import Naive
from quorank.silos.sketch.cover import (
    KEY,
    generated_index,
    mean_cover,
    naive_bytes,
    query_milliseconds,
    sampled_terms,
    timed_build,
)
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape, rank
from quorank.text import Index

VARIED = (
    ("alpha", (1, 2, 3, 5, 8)),
    ("k", (30, 75, 150, 300)),
    ("columns", (50, 100, 200, 400)),
    ("rows", (10, 20, 30, 50)),
)
PROPORTIONS = (
    (2, 12_288, (2, 1)),
    (3, 8_192, (3, 2, 1)),
    (4, 6_144, (4, 2)),
    (6, 4_096, (6, 3)),
    (10, 2_400, (10, 5)),
    (30, 800, (30, 15)),
)  # z, w, and some z1


def parties(arguments: argparse.Namespace) -> Iterator[tuple[str, Index, np.ndarray]]:
    """Name, counts and query terms of each party."""
    from quorank.text import Document, Tokeniser, read_collection

    for given in arguments.collections:
        collections = [read_collection(path) for path in given.split("+")]
        documents = [
            Document(f"{i} {d.id}", d.title, f"{d.title} {d.body}")
            for i, c in enumerate(collections)
            for d in c.documents
        ]
        index = Index.build(documents, Tokeniser(), "body")
        words = {t for c in collections for q in c.queries for t in index.tokeniser.tokenise(q.text)}
        ids = np.array(sorted(index.ids[word] for word in words if word in index.ids), dtype=np.int64)
        yield "+".join(Path(path).name for path in given.split("+")), index, ids
    if not arguments.collections:
        yield (
            f"generated, {arguments.documents:,} × {arguments.length:,}",
            *generated_index(arguments.documents, arguments.length),
        )


def line(*cells: object) -> None:
    print("| " + " | ".join(f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells) + " |", flush=True)


def head(*names: str) -> None:
    line(*names)
    line(*["---"] * len(names))


def main_table(arguments: argparse.Namespace) -> None:
    head("party", "documents", "NAIVE", "recommended", "of NAIVE", "literal", "entries", "memory share",
         "query ms", "NAIVE ms", "million terms/s")  # fmt: skip
    for name, index, queries in parties(arguments):
        groups, old = sampled_terms(index, arguments.terms, 1, queries), Shape.published()
        asked = [index.vocabulary[t] for group in groups.values() for t in group.tolist()]
        sketch, seconds = timed_build(index, Shape.recommended())
        naive = Naive(old.hashing(KEY), index)
        cover = [mean_cover(each.top, index, groups, 150) for each in (naive, sketch, timed_build(index, old)[0])]
        times = [query_milliseconds(each.top, asked[::4], 150) for each in (sketch, naive)]
        for group in ("all", *groups):
            of = [each[group] for each in cover]
            whole = (f"{sketch.stored:,}", sketch.memory_bytes / naive_bytes(index, old), *times,
                     index.collection_length / seconds / 1e6) if group == "all" else [""] * 5  # fmt: skip
            line(
                name if group == "all" else f"… {group}",
                f"{index.n_documents:,}",
                *of[:2],
                of[1] / of[0],
                of[2],
                *whole,
            )


def mean_cover_of(arguments: argparse.Namespace, index: Index, queries: np.ndarray, k: int = 150):  # type: ignore[no-untyped-def]
    """Return a function from a query method `top(term, k)` to its mean cover."""
    groups = sampled_terms(index, arguments.terms, 1, queries)
    return lambda top: mean_cover(top, index, groups, k)["all"]


def with_ranking(sketch: ReverseTopK, shape: Shape, real: int | None = None):  # type: ignore[no-untyped-def]
    """Return a query method of a sketch that ranks cells as another shape does, from its first `real` rows."""

    def top(term: str, k: int):  # type: ignore[no-untyped-def]
        columns, signs = sketch.hashing.places([term])
        return rank(sketch.cells(columns[0]), signs[0], np.arange(real or shape.rows), k, shape)

    return top


def causes(arguments: argparse.Namespace) -> None:
    """Vary which tail a cell keeps, and how absence is counted, one at a time; then the proportions."""
    head("party", "published z, w, αK", "keeps", "ranks by", "cover")
    for name, index, queries in parties(arguments):
        cover = mean_cover_of(arguments, index, queries)
        literal = Shape.published()
        both = replace(literal, reading="recommended")
        minimum = replace(literal, sketch="count-min")
        for kept, ranked, keeps, ranks in (
            (literal, literal, "largest values", "median where present"),
            (literal, both, "largest values", "quartile, absence bounded"),
            (both, literal, "largest sizes", "median where present"),
            (both, both, "largest sizes", "quartile, absence bounded"),
            (minimum, minimum, "largest values, Count-Min", "minimum where present"),
            (replace(minimum, reading="recommended"),) * 2 + ("largest values, Count-Min", "minimum, absence bounded"),
        ):
            sketch, _ = timed_build(index, kept)
            line(name, "yes", keeps, ranks, cover(with_ranking(sketch, ranked)))
        for shape in (Shape(), replace(Shape(), sketch="count-min")):
            sketch, _ = timed_build(index, shape)
            line(
                name,
                f"no: {shape.rows} × {shape.columns:,}",
                f"largest sizes, {shape.sketch}",
                "quartile, absence bounded",
                cover(sketch.top),
            )
        naive = Naive(literal.hashing(KEY), index)
        line(name, "yes", "all (NAIVE)", "median", cover(naive.top))


def curves(arguments: argparse.Namespace) -> None:
    """As figure 4 of the paper; the recommended reading has as many entries as the literal one beside it."""
    for name, index, queries in parties(arguments):
        head(f"{name}: varied", "value", "entries", "literal", "recommended")
        for what, values in VARIED:
            for value in values:
                settings = {"k": 150, "alpha": 5, "rows": 30, "columns": 200} | {what: value}
                old = Shape.published(**settings)
                entries = old.entries
                new = Shape(capacity=max(16, 2_000 * settings["k"] // 150), entries=max(entries, 8 * 12_288))
                cover = mean_cover_of(arguments, index, queries, settings["k"])
                line(
                    what,
                    value,
                    f"{entries:,}",
                    cover(timed_build(index, old)[0].top),
                    cover(timed_build(index, new)[0].top),
                )
        sketch, _ = timed_build(index, Shape.published())
        cover = mean_cover_of(arguments, index, queries)
        for beta in (0.0, 0.05, 0.1, 0.2, 0.4, 0.6):
            line(
                "beta",
                beta,
                f"{sketch.shape.entries:,}",
                cover(with_ranking(sketch, replace(sketch.shape, beta=beta))),
                "not used",
            )


def rows(arguments: argparse.Namespace) -> None:
    """z × w of the recommended reading at 4.5 million entries, and how many vocabulary terms one question fits."""
    for name, index, queries in parties(arguments):
        cover = mean_cover_of(arguments, index, queries)
        head(f"{name}: z", "w", "z1", "cover", "terms that fit the z1 rows")
        for z, w, reals in PROPORTIONS:
            shape = Shape(rows=z, columns=w)
            sketch, _ = timed_build(index, shape)
            places, _ = shape.hashing(bytes(range(32))).places(index.vocabulary)
            for real in reals:
                sample = np.arange(0, len(places), max(1, len(places) // 200))
                fits = np.mean([(places[:, :real] == places[t, :real]).all(axis=1).sum() for t in sample])
                line(z, w, real, cover(with_ranking(sketch, shape, real)), f"{fits:.1f}")


def flat(arguments: argparse.Namespace) -> None:
    """Short documents, so that a million of them fit; cells are full from the first line on."""
    head("documents", "entries", "cell limit", "query ms", "million terms/s", "MB")
    for documents in (10_000, 100_000, 1_000_000):
        index, queries = generated_index(documents, arguments.length if arguments.length < 1000 else 100)
        sketch, seconds = timed_build(index, Shape())
        words = [index.vocabulary[int(t)] for t in queries]
        line(f"{documents:,}", f"{sketch.stored:,}", sketch.limit, query_milliseconds(sketch.top, words, 150),
             index.collection_length / seconds / 1e6, sketch.memory_bytes / 1e6)  # fmt: skip


TABLES = {"main": main_table, "causes": causes, "curves": curves, "rows": rows, "flat": flat}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("collections", nargs="*")
    parser.add_argument("--documents", type=int, default=36_400)
    parser.add_argument("--length", type=int, default=1_000)
    parser.add_argument("--terms", type=int, default=60)
    given = parser.parse_args()
    TABLES[given.table](given)

"""Costs of the search index on generated documents: indexing, searching, forgetting, memory, beside bare FTS5.

    python benchmarks/search_index.py --documents 100000

Documents have 30 to 2,000 words (about 1.7 KB) by Zipf's law, with English stop words as the most frequent ones. Queries
are one to four words of a document, the same while the last word is typed, phrases, file names, names with a wrong
letter. Bare FTS5 is a table of titles and bodies with the Porter stemmer that is asked for the 200 best documents by BM25
with the same words joined by OR. Indexing is measured in seconds of the processor without the generation of the text,
searching by the clock. Each phase is a process of its own, whose largest memory is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quorank.search.index import SearchIndex, parse_query
from quorank.search.sources.source import FoundDocument, UnchangedDocument
from quorank.text.tokens import ENGLISH_STOP_WORDS

KINDS = ("words", "typing", "phrase", "name", "typo")
ENDINGS = ("", "", "", "s", "ed", "ing", "er", "ly", "ation")


class MadeUp:
    """Documents by their number: the same in every process."""

    def __init__(self, documents: int, words: int = 200_000) -> None:
        self.documents, self.n_words = documents, words
        self.seconds = 0.0  # of the processor, for making them

    @cached_property
    def words(self) -> list[str]:
        random = np.random.default_rng(1)
        made: dict[str, None] = dict.fromkeys(sorted(ENGLISH_STOP_WORDS))
        while len(made) < self.n_words:
            letters = random.integers(0, (18, 5) * 4 + (18,), size=(10_000, 9)).tolist()
            sizes, endings = random.integers(1, 5, size=10_000).tolist(), random.integers(9, size=10_000).tolist()
            for row, size, ending in zip(letters, sizes, endings, strict=True):
                pairs = ("bcdfghjklmnprstvwz"[row[2 * n]] + "aeiou"[row[2 * n + 1]] for n in range(size))
                made[f"{''.join(pairs)}{'bcdfghjklmnprstvwz'[row[8]]}{ENDINGS[ending]}"] = None
        return [*made]

    @cached_property
    def shares(self) -> Any:
        share = 1.0 / (np.arange(len(self.words)) + 2.7) ** 1.05
        return np.cumsum(share / share.sum())

    def text(self, number: int) -> list[str]:
        random = np.random.default_rng((2, number))
        size = int(np.clip(random.lognormal(5.3, 0.6), 30, 2000))
        return [self.words[place] for place in np.searchsorted(self.shares, random.random(size)).tolist()]

    def name(self, number: int) -> str:
        random = np.random.default_rng((3, number))
        one, two = (self.words[200 + int(place)] for place in random.integers(0, 20_000, size=2))
        return f"{one}-{two}.txt"

    def scan(self) -> Iterator[FoundDocument]:
        for number in range(self.documents):
            began = time.process_time()
            words, name = self.text(number), self.name(number)
            title = " ".join(words[5:9])
            found = FoundDocument(
                f"{number}", "1", f"/people/person/{number}/{name}", title, name, " ".join(words), 1e9 + number
            )
            self.seconds += time.process_time() - began
            yield found

    def queries(self, kind: str, count: int) -> Iterator[str]:
        for number in range(count):
            random = np.random.default_rng((4, KINDS.index(kind), number))
            chosen = int(random.integers(self.documents))
            words = self.text(chosen)
            telling = [word for word in dict.fromkeys(words) if word not in ENGLISH_STOP_WORDS] or words
            some = random.permutation(telling)[: int(random.integers(1, 5))].tolist()
            name = self.name(chosen).removesuffix(".txt").replace("-", " ")
            place = int(random.integers(len(words) - 3))
            if kind == "typing":
                some[-1] = some[-1][: int(random.integers(1, len(some[-1]) + 1))]
            texts = {
                "phrase": f'"{" ".join(words[place : place + 3])}"',
                "name": name,
                "typo": f"{name[:2]}x{name[3:]}",
            }
            yield texts.get(kind, " ".join(some))


def memory() -> float:
    """The largest memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def percentiles(seconds: list[float]) -> dict[str, float]:
    return {f"p{p}_ms": round(1e3 * float(np.percentile(seconds, p)), 2) for p in (50, 95, 99)}


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def index_phase(made: MadeUp, folder: Path, _: int) -> dict[str, Any]:
    with SearchIndex.open(folder / "home") as index:
        source = index.add_source({"kind": "folder", "path": "/people/person"})
        began, wall = time.process_time(), time.perf_counter()
        index.update(source, made.scan())
        used = time.process_time() - began - made.seconds
        figures = {
            "documents_per_second_and_core": round(made.documents / used),
            "documents_per_second_by_the_clock": round(made.documents / (time.perf_counter() - wall)),
            "index_memory_mb": round(memory()),
        }
        began = time.process_time()
        index.update(source, (UnchangedDocument(f"{number}") for number in range(made.documents)))
        figures["unchanged_per_second"] = round(made.documents / (time.process_time() - began))
    figures["index_mb"] = round(sum(path.stat().st_size for path in (folder / "home").iterdir()) / 1e6)
    return figures


def bare_phase(made: MadeUp, folder: Path, count: int) -> dict[str, Any]:
    database = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("CREATE VIRTUAL TABLE bare USING fts5 (title, body, tokenize = 'porter unicode61')")
    began = time.process_time()
    database.execute("BEGIN")
    rows = ((int(found.key) + 1, found.title, found.body) for found in made.scan())
    database.executemany("INSERT INTO bare (rowid, title, body) VALUES (?, ?, ?)", rows)
    database.execute("COMMIT")
    used = time.process_time() - began - made.seconds
    seconds = []
    for query in made.queries("words", count):
        words = " OR ".join(f'"{word}"' for word in query.split())
        best = "SELECT rowid FROM bare WHERE bare MATCH ? ORDER BY rank LIMIT 200"
        seconds.append(timed(lambda best=best, words=words: database.execute(best, (words,)).fetchall()))
    return {"bare_documents_per_second_and_core": round(made.documents / used), "seconds": seconds}


def find_phase(made: MadeUp, folder: Path, count: int) -> dict[str, Any]:
    queries = {kind: [*made.queries(kind, count)] for kind in KINDS}
    began = time.perf_counter()
    with SearchIndex.open(folder / "home") as index:
        index.find(parse_query("first"))
        figures: dict[str, Any] = {"first_query_ms": round(1e3 * (time.perf_counter() - began), 1)}
        for kind in KINDS:
            read = [parse_query(query, typing=kind == "typing") for query in queries[kind]]
            seconds = [timed(lambda query=query: index.find(query)) for query in read]
            figures[kind] = percentiles(seconds)
            if kind == "words":
                figures["seconds"] = seconds
        best = index.find(parse_query(queries["words"][0]))
        figures["snippets_of_20_ms"] = round(
            1e3 * timed(lambda: [index.snippet(int(i), parse_query(queries["words"][0])) for i in best.ids[:20]]), 1
        )
        figures["find_memory_mb"] = round(memory())
        figures["numba_was_loaded"] = "numba" in sys.modules
    return figures


def change_phase(made: MadeUp, folder: Path, _: int) -> dict[str, Any]:
    with SearchIndex.open(folder / "home") as index:
        new = FoundDocument("new", "1", "/people/person/new", "new", "new.txt", " ".join(made.text(5)), 2e9)
        source = index.sources()[0].id
        seconds = timed(lambda: index.update(source, [new], stop=lambda: True))
        document = index.label(source, "7")
        assert document is not None
        return {
            "one_document_ms": round(1e3 * seconds, 1),
            "forget_seconds": round(timed(lambda: index.forget([document[0]])), 1),
        }


PHASES = {"index": index_phase, "bare": bare_phase, "find": find_phase, "change": change_phase}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=300, help="of each kind")
    parser.add_argument("--folder", type=Path, help="where the index is made; default: a temporary folder")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        print(json.dumps(PHASES[options.phase](MadeUp(options.documents), options.folder, options.queries)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        figures: dict[str, Any] = {"documents": options.documents, "cores": os.cpu_count()}
        seconds = {}
        for phase in PHASES:
            command = [
                sys.executable,
                __file__,
                "--documents",
                f"{options.documents}",
                "--queries",
                f"{options.queries}",
            ]
            done = subprocess.run([*command, "--folder", folder, "--phase", phase], stdout=subprocess.PIPE, check=True)
            found = json.loads(done.stdout)
            if "seconds" in found:
                seconds[phase] = found.pop("seconds")
            figures[phase] = found
            print(json.dumps({phase: found}), file=sys.stderr, flush=True)
    figures["bare"] |= percentiles(seconds["bare"])
    figures["find_to_bare"] = {
        "mean": round(float(np.mean(seconds["find"]) / np.mean(seconds["bare"])), 2),
        "p95": round(float(np.percentile(seconds["find"], 95) / np.percentile(seconds["bare"], 95)), 2),
        "p50": round(float(np.percentile(seconds["find"], 50) / np.percentile(seconds["bare"], 50)), 2),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()

"""Speed of scanning sources on this machine: `python benchmarks/search_sources.py [--documents N] [--folder DIR]`.

Generates small text files, a mailbox and a browser's history, and scans each for the first time and again. Prints one JSON
object: documents per second of processor time and of the clock, and the peak of memory that Python allocated in a scan of
the mailbox.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import tempfile
import time
import tracemalloc
from contextlib import closing
from pathlib import Path

from quorank.search.sources import FilesSource, FirefoxSource, FoundDocument, MailSource, Source

WORDS = 200
"""Words of a document."""


def generate(folder: Path, documents: int) -> dict[str, Source]:
    """Write the files, and return a source for each kind."""
    draw = random.Random(1)
    vocabulary = ["".join(draw.choices("abcdefghijklmnoprstuvw", k=draw.randrange(3, 10))) for _ in range(5000)]

    def text() -> str:
        return " ".join(draw.choices(vocabulary, k=WORDS))

    for number in range(documents):
        path = folder / "files" / f"folder {number % 200}" / f"note {number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text())
    with (folder / "mailbox").open("w") as file:
        for number in range(documents):
            head = (
                f"From a\nSubject: {vocabulary[number % 5000]}\nMessage-ID: <{number}@example.org>\nFrom: Ann <a@x>\n"
            )
            file.write(f"{head}Date: Mon, 1 Jan 2024 10:00:00 +0000\n\n{text()}\n\n")
    with closing(sqlite3.connect(folder / "places.sqlite")) as connection:
        connection.executescript(
            "CREATE TABLE moz_places (id INTEGER PRIMARY KEY, url, title, hidden, visit_count);"
            "CREATE TABLE moz_historyvisits (id INTEGER PRIMARY KEY, place_id, visit_date, visit_type);"
            "CREATE TABLE moz_bookmarks (id INTEGER PRIMARY KEY, type, fk)"
        )
        pages = [(n, f"https://site{n % 99}.example/{n}", vocabulary[n % 5000], 0, 3) for n in range(documents)]
        visits = [(n % documents, 1_700_000_000_000_000 + n * 10**6, 1) for n in range(3 * documents)]
        connection.executemany("INSERT INTO moz_places VALUES (?, ?, ?, ?, ?)", pages)
        connection.executemany(
            "INSERT INTO moz_historyvisits (place_id, visit_date, visit_type) VALUES (?, ?, ?)", visits
        )
        connection.commit()
    return {
        "files": FilesSource(str(folder / "files")),
        "mailbox": MailSource(str(folder / "mailbox")),
        "firefox": FirefoxSource(str(folder / "places.sqlite")),
    }


def measure(source: Source) -> dict[str, float]:
    """Scan a source twice: documents per second of the processor and of the clock."""
    found: dict[str, float] = {}
    known: dict[str, str] = {}
    for scan in ("first", "again"):
        clock, processor, count = time.perf_counter(), time.process_time(), 0
        for item in source.scan(known if scan == "again" else {}):
            count += 1
            if isinstance(item, FoundDocument):
                known[item.key] = item.fingerprint
        found[f"{scan}_documents"] = count
        found[f"{scan}_per_processor_second"] = round(count / (time.process_time() - processor))
        found[f"{scan}_per_second"] = round(count / (time.perf_counter() - clock))
    return found


def peak_megabytes(source: Source) -> float:
    """Scan a source, and return the most memory that Python held for it."""
    tracemalloc.start()
    for _ in source.scan({}):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return round(peak / 1e6, 1)


def main() -> None:
    """Measure, and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--documents", type=int, default=20_000)
    options.add_argument("--folder", type=Path, help="where the files are written; a temporary folder otherwise")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        sources = generate(Path(folder), chosen.documents)
        figures: dict[str, object] = {name: measure(source) for name, source in sources.items()}
        figures["mailbox_peak_megabytes"] = peak_megabytes(sources["mailbox"])
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

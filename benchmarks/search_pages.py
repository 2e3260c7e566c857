"""Costs of a search's pages over generated documents: milliseconds of a page as a browser waits for it, and memory.

    python benchmarks/search_pages.py --documents 100000

The documents and queries are those of benchmarks/search_index.py. The pages are served by a process of their own
(`quorank search serve`), which reads its source once and has 300 choices to learn from; a client asks over one
connection, one request after another. Every page holds ten results with snippets and reasons. Memory is the largest of the
serving process.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from search_index import KINDS, MadeUp, index_phase, percentiles

from quorank.search.personal_search import PersonalSearch

CHOICES = 300


def learn_phase(made: MadeUp, folder: Path, count: int) -> dict[str, Any]:
    """Choose the third result of each of many queries."""
    chosen = 0
    with PersonalSearch.open(folder / "home") as search:
        for query in made.queries("words", count):
            found = search.find(query)
            if found.results:
                search.choose(found.token, found.results[min(2, len(found.results) - 1)].document)
                chosen += 1
    return {"choices": chosen}


PHASES = {"index": index_phase, "learn": learn_phase}


class Served:
    """The pages of a folder in a process of their own, and one connection to them."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "quorank.cli.main", "search", "--home", str(folder / "home"), "serve", "--no-open"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        address = urlsplit(self.process.stderr.readline().split()[-1])
        self.connection = http.client.HTTPConnection(address.hostname or "", address.port)
        self.headers = {"Authorization": f"Bearer {address.query.partition('=')[2]}", "Accept": "text/html"}

    def ask(self, target: str) -> tuple[float, bytes]:
        began = time.perf_counter()
        self.connection.request("GET", target, headers=self.headers)
        answer = self.connection.getresponse()
        content = answer.read()
        assert answer.status == 200, (target, answer.status)
        return time.perf_counter() - began, content

    def timed(self, targets: Iterable[str]) -> dict[str, float]:
        """Milliseconds by the clock, and of the processor on average, which does not grow with what else runs."""
        asked, began = [*targets], self.processor_seconds()
        seconds = [self.ask(target)[0] for target in asked]
        used = (self.processor_seconds() - began) / len(asked)
        return percentiles(seconds) | {"mean_processor_ms": round(1e3 * used, 2)}

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024)

    def close(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait(20)


def measure(made: MadeUp, folder: Path, count: int) -> dict[str, Any]:
    """Milliseconds of each kind of page, and memory after each step."""
    served, figures = Served(folder), dict[str, Any]()
    try:
        figures["first_page_ms"] = round(1e3 * served.ask("/?q=first")[0], 1)
        while True:
            status = json.loads(served.ask("/api/status")[1])
            if status["reading"] is None and not status["waiting"]:
                break
            time.sleep(0.2)
        figures["choices"] = status["choices"]
        for kind in KINDS:
            target = "/list?q=" if kind == "typing" else "/?q="
            figures[kind] = served.timed(f"{target}{quote(query)}" for query in made.queries(kind, count))
        words = [quote(query) for query in made.queries("words", count)]
        figures["by date, of a year"] = served.timed(f"/?q={query}&order=date&since=year" for query in words)
        figures["api"] = served.timed(f"/api/find?q={query}" for query in words)
        figures["empty"] = served.timed(["/"] * 50)
        figures["learned"] = served.timed(["/learned"] * 50)
        figures["sources"] = served.timed(["/sources"] * 50)
        figures["bytes_of_a_page"] = len(served.ask(f"/?q={words[0]}")[1])
        figures["memory_mb"] = served.memory()
    finally:
        served.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=300, help="of each kind")
    parser.add_argument("--folder", type=Path, help="where the index is made, or found; default: a temporary folder")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    made = MadeUp(options.documents)
    if options.phase:
        print(json.dumps(PHASES[options.phase](made, options.folder, CHOICES)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        if not (folder / "home").exists():
            for phase in PHASES:
                words = ["--documents", f"{options.documents}", "--folder", str(folder), "--phase", phase]
                subprocess.run([sys.executable, __file__, *words], stdout=sys.stderr, check=True)
        print(
            json.dumps(
                {"documents": options.documents, "cores": os.cpu_count()} | measure(made, folder, options.queries),
                indent=2,
            )
        )


if __name__ == "__main__":
    main()

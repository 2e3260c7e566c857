"""Import of a large click log: memory and speed on a generated file of AOL4FOLTR's shape.

    python benchmarks/import_log.py                  a file of 0.25 GB, then one of 0.5 GB: the peak stays where it is
    python benchmarks/import_log.py --gigabytes 5
    python benchmarks/import_log.py --gigabytes 0.1 --described 2600000    a metadata.csv as long as the released one

The file is written to a temporary folder (`--folder`), imported by `quorank data import --format aol4foltr` in a process of
its own, and removed. Features repeat after 1,024 searches; query ids, users and times do not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import numpy as np

from quorank.data.letor.writer import shortest_texts
from quorank.data.logs.click_log import open_log, write_time
from quorank.data.logs.generated import generated_log

MEASURED = """
import json, resource, sys
from quorank.cli.main import main
sys.argv = ["quorank", *sys.argv[1:]]
try:
    main()
finally:
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"peak": 1024 * max(peak, children)}), file=sys.stderr)
"""


def write_log(folder: Path, size: int, described: int) -> int:
    """Write `letor.txt` of about `size` bytes and its `metadata.csv` of at least so many lines; return the searches."""
    folder.mkdir(parents=True)
    log = generated_log("aol", 1024, 1)
    numbers = shortest_texts(log.features[:, : len(log.feature_names)]).reshape(log.n_rows, -1).tolist()
    template = [
        f"{click} qid:%d {' '.join(f'{f}:{number}' for f, number in enumerate(row, 1))}\n"
        for click, row in zip(log.clicks.tolist(), numbers, strict=True)
    ]
    lists = ["".join(template[20 * n : 20 * n + 20]).encode() for n in range(1024)]
    users = np.random.default_rng(1).zipf(1.3, 1 << 16) % 10_000
    written = searches = 0
    with (folder / "letor.txt").open("wb") as letor, (folder / "metadata.csv").open("w", encoding="utf-8") as table:
        table.write("qid,user_id,timestamp,query,target_doc_id,candidate_doc_ids\n")
        for number in count():
            if written < size:
                written += letor.write(lists[number % 1024].replace(b"%d", b"%d" % number))
                searches = number + 1
            elif number >= described:
                break
            when = write_time(1_141_171_200_000_000 + 3_000_000 * number).replace("T", " ").removesuffix("Z")
            ids = ", ".join(f"'d{number}x{place}'" for place in range(20))
            who = users[number % len(users)]
            table.write(f'{number},{who},{when},query {number},d{number}x0,"{{{ids}}}"\n')
    return searches


def measure(folder: Path, gigabytes: float, described: int) -> dict[str, float]:
    """Write and import one file; return what it took."""
    source, home = folder / "aol", folder / "home"
    started = time.perf_counter()
    searches = write_log(source, int(gigabytes * 1e9), described)
    made = time.perf_counter() - started
    environment = dict(os.environ, QUORANK_HOME=str(home))
    command = [sys.executable, "-c", MEASURED, "data", "import", str(source), "--format", "aol4foltr", "--json"]
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(done.stderr)
    entry = json.loads(done.stdout)
    assert entry["queries"] == searches and entry["rows"] == 20 * searches, entry
    log = open_log(Path(entry["path"]))
    assert int(log.clicks.sum()) == searches and log.searches[searches - 1] == str(searches - 1)
    peak = json.loads(done.stderr.strip().splitlines()[-1])["peak"]
    size = (source / "letor.txt").stat().st_size
    kept = sum(file.stat().st_size for file in Path(entry["path"]).iterdir())
    shutil.rmtree(source)
    shutil.rmtree(home)
    return {
        "gigabytes": size / 1e9,
        "searches": searches,
        "rows": 20 * searches,
        "written_in_seconds": made,
        "imported_in_seconds": seconds,
        "rows_per_second": 20 * searches / seconds,
        "megabytes_per_second": size / 1e6 / seconds,
        "peak_megabytes": peak / 1e6,
        "kept_gigabytes": kept / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, nargs="*", default=[0.25, 0.5])
    parser.add_argument("--described", type=int, default=0, help="lines of metadata.csv, at least")
    parser.add_argument("--folder", type=Path, help="where the files are written; a temporary folder by default")
    chosen = parser.parse_args()
    for gigabytes in chosen.gigabytes:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            found = measure(Path(folder), gigabytes, chosen.described)
        print(
            f"{found['gigabytes']:.2f} GB, {found['rows']:,} rows: {found['imported_in_seconds']:.1f} s, "
            f"{found['rows_per_second']:,.0f} rows/s, {found['megabytes_per_second']:.0f} MB/s, "
            f"peak {found['peak_megabytes']:.0f} MB, kept {found['kept_gigabytes']:.2f} GB",
            flush=True,
        )


if __name__ == "__main__":
    main()

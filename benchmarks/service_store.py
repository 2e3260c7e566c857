"""Costs of a service's store: calls in groups of 200, replies read back, the end of a round.

    python benchmarks/service_store.py --members 10000
    python benchmarks/service_store.py --members 100000 --database postgresql://user@host/empty

Milliseconds of this process per call (on SQLite that is all there is; PostgreSQL's own are not in it), and seconds by the
clock. The database must be empty, and is not afterwards.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quorank.protocol.messages import Publication
from quorank.service.store.group_commit import Call
from quorank.service.store.sql_store import Finished, SqlStore, open_store


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(work: Callable[[], object], count: int = 1) -> dict[str, float]:
    """Milliseconds of this process and of the clock for each of `count`."""
    began, used = time.perf_counter(), processor()
    work()
    return {
        "cpu_ms": round(1e3 * (processor() - used) / count, 4),
        "wall_ms": round(1e3 * (time.perf_counter() - began) / count, 4),
    }


def add_members(store: SqlStore, count: int) -> None:
    """Members with keys, as if they had enrolled."""
    columns = {"number": "bigint", "name": "text", "key": "bytea", "at": "double precision"}
    rows = [(m, f"device-{m}", hashlib.sha256(b"%d" % m).digest(), store.now()) for m in range(count)]
    new = (
        "INSERT INTO members (number, name, kind, key, invited, enrolled)"
        " SELECT number, name, 'device', key, at, at FROM {given}"
    )
    with store.database.transaction():
        store.database.each(new, columns, rows)


def measure(store: SqlStore, members: int, length: int, group: int) -> dict[str, Any]:
    add_members(store, members)
    assert store.hold() is not None
    asked = np.arange(members, dtype="<u4").tobytes()
    task = Publication(
        "round", "0123456789abcdef", 1, os.urandom(length), bytes(64), 5.0, most=9, asked=asked, limits=b"limits"
    )
    task = store.publish(task)
    order = np.random.default_rng(1).permutation(members).tolist()

    def take(*rest: Any) -> None:
        for start in range(0, members, group):
            calls = [Call(member, os.urandom(16), *rest) for member in order[start : start + group]]
            assert not any(outcome.code for outcome in store.take(calls))

    last, read = 0, 0

    def read_back() -> None:
        nonlocal last, read
        while batch := store.replies(task.run, 1, last):
            last, read = batch[-1].id, read + len(batch)

    found: dict[str, Any] = {"members": members, "bytes": length, "group": group}
    found["look"] = measured(take, members)
    found["reply"] = measured(lambda: take("reply", task.number, os.urandom(length)), members)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["read_back"] = measured(read_back, members)
    assert read == members
    found["read_back_memory_mb"] = round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024, 1)
    found["admitted"] = measured(store.admitted)
    found["counts"] = measured(lambda: store.counts(0.0))
    after = replace(task, round=2)
    found["end_of_round"] = measured(lambda: store.publish(after, {"c": b"x"}, Finished(task.run, 1, last)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=1200, help="of a reply")
    parser.add_argument("--group", type=int, default=200, help="calls of a transaction")
    parser.add_argument("--database", default="", help="postgresql://…; SQLite in a temporary folder unless given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorank-store-") as folder:
        store = open_store(Path(folder), options.database)
        try:
            json.dump(measure(store, options.members, options.bytes, options.group), sys.stdout, indent=1)
        finally:
            store.close()
    print()


if __name__ == "__main__":
    main()

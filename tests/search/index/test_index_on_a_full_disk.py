"""An index on a disk that is really full: a plain error, nothing lost, and it goes on when there is room."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest
from full_disks import fill as fill_disk
from full_disks import run_on_small_disk
from indexed_things import faults, fill, indexed, made_up_things, thing

from quorank.search.index import SearchIndex, parse_query, search_index

pytestmark = pytest.mark.slow


def test_nothing_is_lost_on_a_full_disk(tmp_path: Path) -> None:
    run_on_small_disk(Path(__file__).resolve(), tmp_path, "24m")


def play(disk: Path, folder: Path) -> None:
    """The test, where the disk is small."""
    search_index.BATCH_DOCUMENTS = 100
    few = made_up_things(100)
    more = [*few, *(thing(f"long/{n}", f"unique{n} " * 4000) for n in range(40)), *made_up_things(900, seed=2)]
    with indexed(disk / "home", few) as index:
        before = index.find(parse_query("wa0a")).keys
        ballast = fill_disk(disk)
        for work in (lambda: fill(index, more), lambda: index.forget([1]), lambda: index.add_source({"kind": "mail"})):
            with pytest.raises(OSError, match=r".") as told:
                work()
            assert told.value.errno == errno.ENOSPC
            assert index.find(parse_query("wa0a")).keys == before
    ballast.unlink()
    with SearchIndex.open(disk / "home") as index:
        assert faults(index) == []
        assert index.find(parse_query("wa0a")).keys == before
        fill(index, more)
        assert faults(index) == []
        with indexed(folder / "other", more) as other:
            for query in ("wa0a", "wb1b wc2c", "unique7"):
                assert index.find(parse_query(query)).keys == other.find(parse_query(query)).keys


if __name__ == "__main__":
    play(*map(Path, sys.argv[1:]))

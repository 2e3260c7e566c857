"""An index whose process is killed at any moment: it opens sound, and the next update ends as an unbroken one does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from indexed_things import faults, fill, ids_of, made_up_things, thing

from quorank.search.index import SearchIndex, parse_query, search_index

pytestmark = pytest.mark.slow
KILLS = 16
QUERIES = ("wa0a", "wb1bing wc2c", '"wa0a and wb1b"', "wd3*", "changed", "type:pdf")
BEFORE = made_up_things(300)
AFTER = [thing(one.key, f"{one.body} changed") if number % 4 == 0 else one for number, one in enumerate(BEFORE[60:])]
AFTER += made_up_things(150, seed=2)


def changes(folder: Path) -> None:
    """Index, change, remove and forget, in many small transactions; from whatever was reached before."""
    with SearchIndex.open(folder) as index:
        index.admit_forgotten()
        fill(index, BEFORE)
        fill(index, AFTER)
        index.forget(ids_of(index, [one.key for one in AFTER[:30]]))


def in_a_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def test_killed_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "BATCH_DOCUMENTS", 16)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    began = time.monotonic()
    assert os.waitpid(in_a_child(lambda: changes(whole)), 0)[1] == 0
    seconds = time.monotonic() - began
    random = np.random.default_rng(5)
    kills = 0
    while kills < KILLS:
        child = in_a_child(lambda: changes(broken))
        time.sleep(float(random.random()) * seconds)
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)[1]
        if ended == signal.SIGKILL:
            kills += 1
        else:  # it was faster than the first, which was timed on a busier machine
            assert ended == 0
            seconds *= 0.9
        with SearchIndex.open(broken) as index:
            assert faults(index) == []  # with FTS5's integrity-check
    changes(broken)
    with SearchIndex.open(whole) as one, SearchIndex.open(broken) as other:
        assert faults(other) == []
        assert contents(one) == contents(other)
        assert not [path.name for path in broken.iterdir() if "fresh" in path.name]


def contents(index: SearchIndex) -> list[object]:
    """Everything but ids, which an interrupted index may have given to others."""
    source = index.sources()[0].id
    documents = [index.document(id_) for id_ in ids_of(index, sorted(index.known(source)))]
    found: list[object] = []
    for query in QUERIES:
        candidates = index.find(parse_query(query), 1000)
        rows = zip(candidates.keys, candidates.bands.tolist(), candidates.features.tolist(), strict=True)
        found.append(sorted(rows))
    return [documents, found]

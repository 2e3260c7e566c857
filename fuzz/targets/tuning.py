"""Targets of `quorank.tuning`: histories and visits, studies, collected searches, weights, releases, terms and tasks."""

from __future__ import annotations

import json

from fuzz.target import as_file, target
from quorank.data.logs import browser_history
from quorank.errors import BadInput
from quorank.service.holders.tuning import TuningHome
from quorank.tuning.field import TuningTerms, read_task
from quorank.tuning.heuristics.constraints import violations
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.histories.visits import find_searches, read_histories, read_visits
from quorank.tuning.models import checksum, read_model
from quorank.tuning.studies.study import Study, read_collected, read_pilot, read_study

browser_history.WAIT = 0.0  # nobody writes to the file meanwhile


@target("browser-history", "sqlite")
def browser_database(data: bytes) -> None:
    """A browser's database: read, counted, and its searches taken out."""
    _, (found,) = read_histories(as_file(data, "places.sqlite"))
    json.dumps(found.counts())
    find_searches(found).suggestions(found)


@target("bookmarks", "json")
def bookmarks(data: bytes) -> None:
    """Chromium's file of bookmarks."""
    browser_history.read_bookmarks(as_file(data, "Bookmarks"))


@target("study", "toml", (b"[arms]", b"[largest]", b"name = ", b"metrics = "))
def study(data: bytes) -> None:
    """The file of a study."""
    read_study(as_file(data, "study.toml"))


@target(
    "collected",
    made=lambda: {"a long field": b"client,characters,rank\n" + b"x" * 140_000 + b",1,1\n"},
    words=(b"client,arm,characters,rank\n", b"person-1,", b'"', b",", b"\r", b"\x00"),
)
def collected(data: bytes) -> None:
    """Collected searches as CSV."""
    path = as_file(data, "collected.csv")
    try:
        read_collected(path, Study("spring"))
    except BadInput:
        read_pilot(path)


@target("weights", "json")
def weights(data: bytes) -> None:
    """A file of weights, whose checksum fits."""
    try:
        content = json.loads(data)
        content["checksum"] = checksum(content)
        data = json.dumps(content).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    read_model(as_file(data, "weights.json"))


@target(
    "visits",
    words=(b"person,time,url,type,title,bookmarked\n", b"ann,1,https://x,typed,,0\n", b'"', b",", b"2026-03-01T"),
)
def visits(data: bytes) -> None:
    """Visits as CSV, and the searches in them."""
    for history in read_visits(as_file(data, "visits.csv")):
        find_searches(history).suggestions(history)


@target("tuning-terms", "json")
def tuning_terms(data: bytes) -> None:
    """Terms of a tuning as an invitation brings them: read back as they are written."""
    try:
        table = json.loads(data)
    except (ValueError, RecursionError):
        return
    terms = TuningTerms.read(table)
    assert TuningTerms.read(json.loads(json.dumps(terms.table()))) == terms


@target("tuning-task")
def tuning_task(data: bytes) -> None:
    """A version as a service sends it: nothing that the heuristic does not allow is taken."""
    task = read_task(data, "run", FRECENCY)
    for weights_ in (task.published, task.trial, task.reference):
        assert not violations(FRECENCY, weights_)


@target("tuning-folder", "json")
def tuning_folder(data: bytes) -> None:
    """File of a tuning in the folder of a service."""
    folder = as_file(data, "tuning.json").parent
    (folder / "coordinator.json").write_bytes(b"{}")
    _ = TuningHome(folder).tuning

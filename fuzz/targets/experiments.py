"""Targets of `quorank.experiments`, `rankers` and `reports`: experiment files, grids, everything in a run's directory."""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path

from fuzz.target import CORPUS, as_file, scratch, sealed_archive, target
from quorank.errors import BadInput
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, read_experiment_file, set_values
from quorank.experiments.grid import Grid
from quorank.experiments.run_directory import load_run, load_runs
from quorank.experiments.runner import run_experiment
from quorank.experiments.unlearning.commit import finish_request, is_pending, left_before
from quorank.files.documents import json_bytes, parse_json
from quorank.privacy.ledger import read_ledger, recount
from quorank.rankers.ranker_file import parse_ranker, ranker_bytes, ranker_digest, read_ranker
from quorank.reports.comparison import compare_table, comparison_page, group_runs
from quorank.reports.report import report_page

SECTIONS = (
    b"[data]",
    b"[users]",
    b"[learner]",
    b"[federation]",
    b"[privacy]",
    b"[partition]",
    b"[attack]",
    b"[evaluation]",
    b"[ranker]",
    b"[grid]",
)
KINDS = (
    b"linear",
    b"mlp",
    b"cascade",
    b"position",
    b"pdgd",
    b"evolution",
    b"mean",
    b"krum",
    b"median",
    b"trimmed-mean",
    b"none",
    b"gaussian",
    b"secure-sum",
    b"signs",
    b"randomised-response",
    b"published",
    b"label-split",
    b"quantity",
    b"preferences",
    b"even",
    b"sampled",
    b"poisson",
    b"epsilon = 1e300",
    b"byzantine = -1",
    b"hidden = 100000000000",
    b"clients = 0",
    b"rounds = 99999999999",
    b'server = { kind = "adam" }',
    b'participation = { kind = "sampled", clients = 5 }',
    b"kind = ",
)
WORDS = (*SECTIONS, *KINDS)
RUN = CORPUS / "run"
"""A small finished run, and one that was stopped."""


def _large_grid() -> dict[str, bytes]:
    axes = "".join(f"a{i} = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n" for i in range(12))
    seeds = ", ".join(map(str, range(5_000)))
    return {
        "a million million combinations": f"[grid]\n{axes}".encode(),
        "of keys that there are": f"[grid]\nseed = [{seeds}]\nfederation.rounds = [{seeds}]\n".encode(),
    }


def _nested() -> dict[str, bytes]:
    return {
        "lists in lists": b"a = " + b"[" * 50_000,
        "tables in tables": b"a = " + b"{a=" * 20_000,
        "a dotted key": b"a" + b".a" * 5_000 + b" = 1",
        "a dotted header": b"[a" + b".a" * 5_000 + b"]",
        "quotes": b'a = "' + b"\\" * 30_000,
        "names in a header": b"[" + b'"a".' * 10_000 + b"x",
        "blanks in a header": b"[a" + b" " * 60_000 + b"x",
    }


@target("experiment", "toml", WORDS, made=_nested)
def experiment(data: bytes) -> None:
    """An experiment file."""
    file = read_experiment_file(as_file(data, "e.toml"))
    if Grid.read(file) is None:
        made = Experiment.read(file)
        again = Experiment.read(parse_experiment_file(storage.write_toml(made.tables()), "again"))
        assert again.tables() == made.tables(), "written and read back it is another experiment"


@target("grid", "toml", WORDS, made=_large_grid)
def grid(data: bytes) -> None:
    """An experiment file with a grid, written as a grid's folder has it and read back."""
    found = Grid.read(read_experiment_file(as_file(data, "g.toml")))
    if found is not None:
        Grid.read(read_experiment_file(as_file(found.toml(), "grid.toml")))


@target("set", words=(*KINDS, b"=", b".", b"federation.", b"privacy.kind=", b"[[", b"{a=", b"\n"))
def assignment(data: bytes) -> None:
    """--set KEY=VALUE, as it comes from a command line."""
    file = parse_experiment_file('[federation]\nserver = "momentum"\n', "e.toml")
    Experiment.read(set_values(file, data.decode("utf-8", "surrogateescape").split("\x1f")))


@target("ranker", "json")
def ranker(data: bytes) -> None:
    """ranker.json, with the digest of its content where it has one; what is read is written and read again."""
    with suppress(BadInput):
        content = parse_json(data)
        if "digest" in content:
            data = json_bytes(content | {"digest": ranker_digest(content)})
    saved = read_ranker(as_file(data, "ranker.json"))
    again = parse_ranker(ranker_bytes(saved), "again")
    assert again.content() == saved.content(), "written and read back it is another ranker"


@cache
def _run_files() -> dict[str, bytes]:
    return {file.relative_to(RUN).as_posix(): file.read_bytes() for file in sorted(RUN.rglob("*")) if file.is_file()}


def run_with(name: str, data: bytes, kind: str = "finished") -> Path:
    """Copy the small run with one of its files replaced by the input, whose digest the manifest has."""
    folder = scratch() / "run"
    for file, content in (_run_files() | {f"{kind}/{name}": data}).items():
        if file.startswith(f"{kind}/"):
            path = folder / file.removeprefix(f"{kind}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    if kind == "finished":
        kept = [storage.kept_name(client) for client in storage.clients_with_kept(folder)]
        storage.seal(folder, [*storage.SEALED, *kept], {})
    return folder


def _report(folder: Path) -> None:
    run = load_run(folder)
    report_page(run)
    groups = group_runs([run, run])
    compare_table(groups)
    comparison_page(groups)


@target("summary", "json")
def summary(data: bytes) -> None:
    """summary.json: loaded, reported and compared."""
    _report(run_with("summary.json", data))


@target("history", "parquet")
def history(data: bytes) -> None:
    """history.parquet: loaded, reported and compared."""
    _report(run_with("history.parquet", data))


@target("run-toml", "toml", WORDS)
def run_toml(data: bytes) -> None:
    """run.toml of a finished run: loaded, reported and compared."""
    _report(run_with("run.toml", data))


@target("ledger", "json", seconds=10)
def ledger(data: bytes) -> None:
    """ledger.json: read, counted again, and reported."""
    folder = run_with("ledger.json", data)
    recount(read_ledger(folder))
    _report(folder)


@target("grid-json", "json")
def grid_json(data: bytes) -> None:
    """grid.json of a folder of runs."""
    folder = run_with("summary.json", _run_files()["finished/summary.json"]).parent
    (folder / "grid.json").write_bytes(data)
    load_runs([folder])


@cache
def _stopped() -> Experiment:
    return Experiment.read(parse_experiment_file(_run_files()["stopped/run.toml"].decode(), "run.toml"))


def _resume(folder: Path) -> None:
    run_experiment(storage.read_experiment(folder), folder, threads=1, resume=True)


@target("checkpoint", "zip", seconds=20)
def checkpoint(data: bytes) -> None:
    """checkpoint.npz: the run goes on from it to its end."""
    _resume(run_with("checkpoint.npz", sealed_archive(data), "stopped"))


@target("kept-updates", "zip", seconds=20)
def kept_updates(data: bytes) -> None:
    """clients/0.npz: the run goes on with it, and does not believe what client 0 did not keep."""
    folder = run_with("clients/0.npz", sealed_archive(data), "stopped")
    _resume(folder)


@target("unlearned", "json")
def unlearned(data: bytes) -> None:
    """unlearned.json: the clients that have left."""
    left_before(run_with("unlearned.json", data))


@target("unlearning-note", "json")
def unlearning_note(data: bytes) -> None:
    """unlearned/unlearning.json: a request that was cut short is finished."""
    folder = run_with("unlearned/unlearning.json", data)
    try:
        pending = is_pending(folder, [1])
    except BadInput as error:
        assert error.code
        raise
    if pending:
        try:
            finish_request(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

"""Parts of another package: `examples/plugin` is installed beside Quorank and used like our own parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Outcome, command, python
from refusals import refused
from scanned_items import ScannedItems

from quorank.errors import BadInput
from quorank.learning import LEARNERS
from quorank.parts import Family
from quorank.search.sources import SOURCES, UnchangedDocument
from quorank.search.sources.source import GROUP

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"
POINTS = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]["entry-points"]
ENTRIES = POINTS["quorank.parts"]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which pip has installed the example package."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", target, PLUGIN], check=True, timeout=120)
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(target), str(ROOT)])}


def called(installed: dict[str, str], folder: Path, *words: object) -> Outcome:
    return python(folder, *command(*words)[1:], cwd=folder, variables=installed)


@pytest.mark.slow
def test_an_experiment_of_foreign_parts_runs_and_is_told_of(installed, tmp_path) -> None:
    """TOML, --set, run.toml, the ledger and the report know every part of the package."""
    run = tmp_path / "run"
    words = ("run", PLUGIN / "experiment.toml", "--set", "federation.server.beta=0.7")
    done = called(installed, tmp_path, *words, "--out", run, "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert summary["privacy"]["kind"] == "one-bit"
    tables = tomllib.loads((run / "run.toml").read_text())
    kinds = {tables[name]["kind"] for name in ("learner", "users", "ranker", "privacy")}
    kinds |= {tables["federation"][name]["kind"] for name in ("aggregation", "server")}
    assert kinds == {name.partition(".")[2] for name in ENTRIES}
    assert tables["federation"]["server"]["beta"] == 0.7
    assert len(json.loads((run / "ranker.json").read_text())["parameters"]) == 2 * 46
    page = (run / "report.html").read_text()
    assert all(kind in page for kind in kinds)
    assert called(installed, tmp_path, "run", run / "run.toml", "--out", tmp_path / "again", "--threads", 1).code == 0
    assert (tmp_path / "again" / "ranker.json").read_bytes() == (run / "ranker.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("key", "kind"), [("learner", "click-contrast"), ("privacy", "one-bit")])
def test_devices_cannot_be_asked_for_foreign_parts(installed, tmp_path, key: str, kind: str) -> None:
    (tmp_path / "foreign.toml").write_text(f'[{key}]\nkind = "{kind}"\n')
    words = ("coordinator", "start", "home", "--experiment", "foreign.toml", "--features", 5)
    sentence = called(installed, tmp_path, *words).refused()
    assert sentence.startswith(f"{key}: {kind} is another package's") and not (tmp_path / "home").exists()


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PLUGIN)


def family(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str], of: Family[Any] = LEARNERS) -> Family[Any]:
    """A family, by default of learners, with these entry points installed."""
    found = {of.group: [EntryPoint(name, value, of.group) for name, value in entries]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found.get(group, []))
    return Family(of.name, *of.members.values(), base=of.base, word=of.word, group=of.group)


def test_a_part_prints_and_reads_back(monkeypatch, sources) -> None:
    learners = family(monkeypatch, ("learner.click-contrast", ENTRIES["learner.click-contrast"]))
    part = learners.read({"kind": "click-contrast", "eta": 0.25}, "learner")
    assert str(part) == "ClickContrast(eta=0.25)"
    assert learners.parse(str(part)) == part
    ours = ["pdgd", "evolution", "counterfactual", "dbgd", "mgd", "pairrank", "lambdamart"]
    assert learners.kinds == [*ours, "click-contrast"]
    with refused("value.out-of-range", "learner.eta"):
        learners.read({"kind": "click-contrast", "eta": 0.0}, "learner")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("quorank_example.nowhere:Nothing", "plugin.not-importable"),
        ("quorank_example.click_contrast:Nothing", "plugin.not-importable"),
        ("quorank_example.nesterov:Nesterov", "plugin.wrong-base"),
        ("quorank_example.nesterov:np", "plugin.wrong-base"),
        ("quorank.learning:Learner", "plugin.incomplete"),
        ("quorank.learning:PDGD", "plugin.wrong-kind"),
    ],
)
def test_what_is_no_part_is_refused_when_it_is_asked_for(monkeypatch, sources, value, code) -> None:
    learners = family(monkeypatch, ("learner.mine", value))
    assert learners.read("pdgd", "learner").kind == "pdgd"
    with refused(code, f"plug-in learner.mine = {value}"):
        learners.read("mine", "learner")


def test_a_kind_that_two_packages_offer_is_refused(monkeypatch) -> None:
    learners = family(monkeypatch, ("learner.mine", "one:Mine"), ("learner.mine", "two:Mine"))
    with refused("plugin.ambiguous", "plug-in learner.mine"):
        learners.read("mine", "learner")


def test_our_own_parts_cannot_be_replaced(monkeypatch) -> None:
    learners = family(monkeypatch, ("learner.pdgd", "elsewhere:PDGD"))
    assert type(learners.read("pdgd", "learner")).__module__ == "quorank.learning.pdgd"


def test_the_private_bit_is_unbiased_and_has_two_values(sources) -> None:
    from quorank_example.one_bit import OneBit

    from quorank.privacy import Setting

    part = OneBit(epsilon=1.0, clip=0.5)
    mechanism = part.mechanism(Setting(20_000, 20_000, 1, "full", 4, 3), 1)
    rows = np.tile([0.25, -0.5, 3.0], (20_000, 1))
    mechanism.release(rows, np.zeros(3), 0, np.arange(20_000), {})
    size = 0.5 * (np.e + 1) / (np.e - 1)
    assert set(np.abs(rows).ravel().round(12)) == {round(size, 12)}
    error = 4 * size / np.sqrt(20_000)
    np.testing.assert_allclose(rows.mean(axis=0), [0.25, -0.5, 0.5], atol=error)
    odds = [np.mean(rows[:, j] > 0) for j in (1, 2)]
    assert odds[1] / odds[0] <= np.exp(1.0) * 1.1
    with pytest.raises(BadInput):
        OneBit(epsilon=0.0)


def test_a_source_of_another_package_is_stored_and_scanned(monkeypatch, sources, tmp_path: Path) -> None:
    known_sources = family(monkeypatch, *POINTS[GROUP].items(), of=SOURCES)
    assert known_sources.kinds == ["folder", "mail", "firefox", "chromium", "todo"]
    path = tmp_path / "todo.txt"
    path.write_text("call Ann\nx buy milk\nwrite +paper\ncall Ann\n")
    source = known_sources.read({"kind": "todo", "path": str(path)}, "source")
    assert known_sources.read(source.table(), "source") == source and known_sources.parse(str(source)) == source
    first = ScannedItems(source.scan({}))
    assert [one.title for one in first.found.values()] == ["call Ann", "write +paper", "call Ann"]
    assert source.watch_paths() == (path,)
    known = first.after()
    path.write_text("write +paper\n")
    assert list(source.scan(known)) == [UnchangedDocument("write +paper 1")]
    path.unlink()
    gone = ScannedItems(source.scan(known))
    assert gone.skipped and gone.unchanged == set(known)

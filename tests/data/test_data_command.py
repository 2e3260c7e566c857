"""`quorank data` as a person uses it."""

import json

import pytest
from command_line import invoke
from refusals import refused

from quorank.cli.data import app
from quorank.data import DataSource, load
from quorank.errors import BadInput

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def run(*arguments):
    return invoke(app, *arguments)


def narrow(text):
    return max(map(len, text.splitlines())) <= 80


def test_help_of_every_verb():
    for verb in ([], ["list"], ["stats"], ["synthesize"], ["import"], ["export"], ["fetch"]):
        found = run(*verb, "--help")
        assert narrow(found.stdout)


def test_synthesize_then_stats_then_import_then_list(tmp_path):
    out = tmp_path / "made"
    assert run("synthesize", "mq2007", "--out", out, "--queries", 30, "--seed", 3).stdout == f"{out}\n"
    assert sorted(p.name for p in out.iterdir()) == ["test.txt", "train.txt", "vali.txt"]
    text = load(DataSource(str(out), normalize="none"))
    made = load(DataSource("synthetic:mq2007", queries=30, seed=3, normalize="none"))
    for split in ("train", "validation", "test"):
        assert getattr(text, split).padded.tobytes() == getattr(made, split).padded.tobytes()

    found = json.loads(run("stats", out, "--json").stdout)
    assert found["features"] == 46 and list(found["splits"]) == ["train", "validation", "test"]
    train = found["splits"]["train"]
    assert train["queries"] == 30 and train["rows"] == sum(train["labels"].values()) == made.train.n_rows
    assert train["documents_per_query"]["max"] == made.train.longest
    table = run("stats", out, "--normalize", "query").stdout
    assert "queries without relevant" in table and narrow(table)

    imported = run("import", out, "--name", "mine")
    assert 'source = "mine"' in imported.stdout and "reading fold 1 of 1" in imported.stderr
    listed = run("list")
    assert "mine" in listed.stdout and "synthetic:mslr" in listed.stdout and "istella-s" in listed.stdout
    assert narrow(listed.stdout)
    everything = json.loads(run("list", "--json").stdout)
    assert [entry["name"] for entry in everything["imported"]] == ["mine"]
    assert len(everything["public"]) == 6 and len(everything["generated"]) == 4


@pytest.mark.parametrize(("shape", "format_"), [("clicks", "csv"), ("aol", "csv")])
def test_a_log_is_synthesized_imported_described_and_exported(tmp_path, shape, format_):
    out = tmp_path / "made"
    assert run("synthesize", shape, "--out", out, "--queries", 60).stdout == f"{out}\n"
    imported = json.loads(run("import", out, "--format", format_, "--name", shape, "--json").stdout)
    assert (imported["queries"], imported["skipped"]) == (60, {})
    table = run("stats", shape).stdout
    assert "click log" in table and narrow(table)
    found = json.loads(run("stats", shape, "--json").stdout)
    assert found["log"]["ranks"] == (shape == "clicks") and found["log"]["from"] < found["log"]["to"]
    assert found["splits"]["train"]["queries"] == 48 and found["splits"]["test"]["queries"] == 12
    assert run("export", shape, "--out", tmp_path / "again").stdout == f"{tmp_path / 'again' / 'clicks.csv'}\n"
    with refused("log.not-a-log"):
        run("export", str(tmp_path), "--out", out)


def test_json_is_alone_on_stdout():
    assert json.loads(run("stats", "synthetic:mq2007", "--queries", 9, "--json").stdout)["name"] == "synthetic:mq2007"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["stats", "nowhere"], "there is no folder and no imported collection 'nowhere'"),
        (["import", "nowhere"], "there is no nowhere"),
    ],
)
def test_bad_input_reaches_the_main_command(arguments, sentence):
    with pytest.raises(BadInput, match=sentence):
        run(*arguments)

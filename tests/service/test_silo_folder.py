"""Folder of a group's service: what its experiment file settles, its first and later starts, invitations, files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from silo_groups import KEYS, NAMES, SMALL, call, group, mode, refused, workplace

from quorank.cli import service
from quorank.errors import BadInput
from quorank.experiments.experiment_file import find_experiment_file
from quorank.experiments.silo_experiment import read_group
from quorank.protocol.invitation import Invitation
from quorank.service.holders.group import SiloHome
from quorank.silos.search.settings import SearchTerms
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.lists import OwnSearch
from quorank.silos.training.prior import FromPrior
from quorank.silos.training.setting import SiloSetting
from quorank.silos.training.trees import TreeTraining
from quorank.text import Tokeniser


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    return workplace(tmp_path, monkeypatch)


@pytest.fixture
def started(here, monkeypatch) -> list[SiloHome]:
    """Nothing is started: what would run is only written down."""
    calls: list[SiloHome] = []
    monkeypatch.setattr(service, "replace_by", lambda words: calls.append(SiloHome.open(Path(words[3]))))
    return calls


# ---------------------------------------------------------------- the experiment file


def test_an_experiment_file_says_what_the_group_agrees_on() -> None:
    found = group(SMALL)
    assert (found.run, found.parties, found.seed) == ("spring", NAMES, 3)
    assert found.setting == SiloSetting(labelled=(2,), training=FromPrior(turns=3, folds=2))
    plain = group('[silo]\nparties = ["a", "b"]\n')
    assert plain == SiloTerms("spring", ("a", "b"))
    other = group(
        '[silo]\nparties = ["a", "b"]\nrun = "x"\nstatistics_epsilon = 2\n[training]\nkind = "trees"\n'
        '[text]\nlanguage = "german"\n[ranking]\ndepth = 20\nevidence = []\n[search]\nk = 3\n'
    )
    assert other.setting.tokeniser == Tokeniser.for_language("german")
    assert other.setting.searched == OwnSearch(depth=20, evidence=()) and other.setting.training == TreeTraining()
    assert (other.run, other.statistics_epsilon) == ("x", 2.0)
    assert found.search is None and other.search == SearchTerms(k=3)
    assert type(found).read(json.loads(json.dumps(found.table()))) == found, "terms survive their table"


GROUP = '[silo]\nparties = ["a", "b"]\n'
MISTAKES = (
    ("", "silo.parties: is missing"),
    ('[silo]\nparties = "a, b"\n', "line 2: silo.parties: expected a list"),
    ('[silo]\nparties = ["a"]\n', "2 to 64 parties, got 1"),
    ('[silo]\nparties = ["a", "a"]\n', "occurs twice"),
    ('[silo]\nparties = ["a", "b c"]\n', "b c"),
    (GROUP + "labeled = 3\n", "line 3: silo.labeled: unknown key"),
    (GROUP + "labelled = 0\n", "line 3: silo.labelled: expected numbers"),
    (GROUP + '[training]\nkind = "round-robin"\n', "line 4: training.kind: unknown training"),
    (GROUP + "[protocol]\nquestions = 9\n", "line 3: protocol: unknown section"),
    (GROUP + "statistics_epsilon = 0\n", "line 3: silo.statistics_epsilon: must be"),
    (GROUP + '[text]\nlanguage = "germann"\n', "line 4: text.language: unknown language"),
    (GROUP + "[ranking]\ndepth = 0\n", "depth: must be at least 1"),
    (GROUP + '[ranking]\nevidence = ["luck"]\n', "line 4: ranking.evidence.0: expected one of"),
    (GROUP + '[data]\nsource = "x"\n', "line 3: data: unknown section"),
    ('seed = -1\n[silo]\nparties = ["a", "b"]\n', "line 1: seed: must be"),
    ('seed = "x"\n[silo]\nparties = ["a", "b"]\n', "line 1: seed: expected an integer"),
)


def test_mistakes_in_the_file_are_sentences_with_their_place() -> None:
    for text, words in MISTAKES:
        with pytest.raises(BadInput) as refusal:
            group(text)
        assert words in str(refusal.value) and str(refusal.value).startswith("group.toml")


def test_the_shipped_file_holds_the_defaults() -> None:
    found = read_group(find_experiment_file("silo-group"), "silo-group")
    assert found.parties == NAMES and found.seed is None
    assert found.statistics_epsilon == 8.0 and found.setting == SiloSetting()


# ---------------------------------------------------------------- the folder


def test_the_first_start_makes_the_folder_and_later_ones_open_it(started, here) -> None:
    assert "say who takes part" in refused("start", "home")
    assert "say who takes part" in refused("start", "home", "--experiment", "small.toml", "--parties", "a,b")
    assert "no such experiment file" in refused("start", "home", "--experiment", "absent.toml")
    assert "--parties a: a group has 2 to" in refused("start", "home", "--parties", "a")
    assert "with --address" in refused("start", "home", "--parties", "a,b", "--host", "0.0.0.0")
    assert not (here / "home").exists() and started == []
    call("start", "home", "--experiment", "small.toml", "--host", "0.0.0.0", "--address", "s.example.org:443")
    home = started[-1]
    assert (home.group.run, home.group.parties) == ("small", NAMES)
    settings = home.settings
    assert (settings.kind, settings.address, settings.host, settings.pause) == (
        "silo",
        "s.example.org:443",
        "0.0.0.0",
        5.0,
    )
    assert mode(home.path) == 0o700
    for name in ("ca.key", "server.key", "service.key", "operator.token", "coordinator.json", "terms.json"):
        assert mode(home.path / name) == 0o600, name
    call("start", "home", "--set", "pause=2", "--workers", 3)
    changed = started[-1].settings
    assert (changed.pause, changed.workers, changed.address) == (2.0, 3, "s.example.org:443")
    assert SiloHome.open(here / "home").settings == changed
    assert "fixed when the folder was created" in refused("start", "home", "--parties", "a,b")
    with (
        SiloHome.open(here / "home").running(),
        pytest.raises(BadInput, match=f"process {os.getpid()}.*quorank silo stop"),
        SiloHome.open(here / "home").running(),
    ):
        pass
    call("start", "second", "--parties", "a, b", "--run", "x", "--port", 7001)
    assert started[-1].group.parties == ("a", "b") and started[-1].group.run == "x"
    assert started[-1].group.seed is None, "in earnest unless a file gives a seed"
    call("start", "second", "--port", 7002)
    assert started[-1].settings.address == "127.0.0.1:7002"


def test_folders_that_are_refused(started, here) -> None:
    (here / "full").mkdir()
    (here / "full" / "thesis.txt").write_text("mine")
    assert "not empty" in refused("start", "full", "--parties", "a,b")
    assert "does not exist" in refused("start", "x/y", "--parties", "a,b")
    assert "no coordinator here" in refused("status", "full")
    assert sorted(path.name for path in here.iterdir()) == ["full", "small.toml"]
    call("start", "home", "--experiment", "small.toml")
    for name, texts in (
        ("coordinator.json", ("{", "[]", '{"format": 2, "surprise": 2}', '{"format": 99}')),
        ("terms.json", ("{", "[]", "{}")),
    ):
        whole = (here / "home" / name).read_text()
        for text in texts:
            (here / "home" / name).write_text(text)
            assert name in refused("invite", "home", "north"), text
        (here / "home" / name).write_text(whole)
    call("status", "home")
    (here / "home" / "coordinator.json").write_text(
        (here / "home" / "coordinator.json").read_text().replace('"silo"', '"coordinator"')
    )
    assert "no group here" in refused("invite", "home", "north"), "a coordinator of devices is no group"


def test_invitations_name_the_party_the_terms_and_who_is_pinned(started, here) -> None:
    call("start", "home", "--experiment", "small.toml")
    told = json.loads(call("invite", "home", "south", "--json"))
    assert told == {"name": "south", "number": 1, "file": "south.json", "pinned": []}
    assert mode(here / "south.json") == 0o600
    found, home = Invitation.read(here / "south.json"), SiloHome.open(here / "home")
    assert (found.kind, found.name, found.url) == ("party", "south", "https://127.0.0.1:9092")
    assert found.terms == home.group.table() and found.service == home.key.public
    assert found.certificate.encode() == home.authority and found.identities == {}
    assert home.key.secret.hex() not in found.text() and "PRIVATE" not in found.text()
    assert "is not a party of this group" in refused("invite", "home", "east")
    assert "revoke it" in refused("invite", "home", "south", "--out", "again.json")
    assert not (here / "again.json").exists()
    assert "exists already" in refused("invite", "home", "north", "--out", "south.json")
    pin = f"south={KEYS['south'].hex()}"
    call("invite", "home", "north", "--out", "n.json", "--pin", pin, "--pin", f"north={KEYS['north'].hex()}")
    assert Invitation.read(here / "n.json").identities == {"south": KEYS["south"]}
    call("invite", "home", "west")
    known = {name: KEYS[name] for name in ("north", "south")}
    assert Invitation.read(here / "west.json").identities == known, "identities are kept for later invitations"
    call("revoke", "home", "south")
    assert "had another identity before" in refused(
        "invite", "home", "south", "--out", "x.json", "--pin", f"south={'ab' * 32}"
    )
    assert "64 hexadecimal digits" in refused("invite", "home", "south", "--pin", "south=abcd")
    assert "expected NAME=HEX" in refused("invite", "home", "south", "--pin", f"east={'ab' * 32}")
    call("invite", "home", "south", "--out", "s2.json")
    assert Invitation.read(here / "s2.json").code != found.code
    store = home.store()
    assert [(m.number, m.name, m.kind, m.revoked) for m in store.members()] == [
        (number, name, "party", None) for number, name in enumerate(NAMES)
    ]
    with pytest.raises(BadInput) as refusal:
        store.enrol(bytes(32), found.code)
    assert refusal.value.code == "invitation.unknown", "the old code is worth nothing"
    assert store.enrol(bytes(32), Invitation.read(here / "s2.json").code).number == 1
    store.close()


def test_files_for_nginx_and_systemd(started, here) -> None:
    call("start", "home", "--experiment", "small.toml", "--port", 7001)
    written = [Path(line) for line in call("files", "home", "--out", "units").splitlines()]
    assert "quorank-silo.service" in [path.name for path in written]
    text = "".join(path.read_text() for path in written)
    assert f" silo start {here / 'home'}" in text and " silo join --data " in text


def test_a_ranker_is_handed_out_when_it_is_there(started, here) -> None:
    call("start", "home", "--experiment", "small.toml")
    assert "no ranker yet" in refused("ranker", "home")
    (here / "home" / "ranker.json").write_text("{}")
    call("ranker", "home", "--out", "mine.json")
    assert (here / "mine.json").read_text() == "{}"

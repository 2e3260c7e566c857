"""A party's folder: what it keeps, consent, pins, identity; and which invitations and terms it refuses."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import refusals
from real_services import until
from silo_groups import KEYS, SMALL, call, made, mode, refused, workplace, write_collection

from quorank.errors import BadInput
from quorank.member.party_folder import FolderSource, PartyFolder
from quorank.protocol.http_client import Enrolment, ServiceClient
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey
from quorank.rankers.ranker_file import ranker_bytes
from quorank.text import FEATURE_NAMES


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    return workplace(tmp_path, monkeypatch)


@pytest.fixture
def bundle(here) -> Path:
    made(here / "home")
    call("invite", "home", "north")
    return here / "north.json"


def test_a_folder_keeps_what_the_next_start_needs(bundle, here) -> None:
    folder = PartyFolder.accept(here / "data", Invitation.read(bundle))
    assert mode(folder.folder) == 0o700 and mode(folder.folder / "device.sqlite") == 0o600
    with pytest.raises(BadInput, match="--collection PATH"):
        folder.holding()
    folder.note_source(FolderSource(generated=1, documents=30))
    again = PartyFolder.open(here / "data")
    holding = again.holding()
    assert (holding.name, holding.n_documents) == ("north", 30)
    with pytest.raises(BadInput, match="documents are others"):
        again.note_source(FolderSource(generated=2, documents=30))
    with pytest.raises(BadInput, match="from 0 to 2"):
        FolderSource(generated=3).holding("north", again.terms)
    with pytest.raises(BadInput, match="give the party's documents"):
        FolderSource("somewhere", 1)
    PartyFolder.accept(here / "data", Invitation.read(bundle))
    other = json.loads(bundle.read_text()) | {"name": "south"}
    (here / "other.json").write_text(json.dumps(other))
    with pytest.raises(BadInput, match="belongs to north in the session spring"):
        PartyFolder.accept(here / "data", Invitation.read(here / "other.json"))
    with pytest.raises(BadInput, match="not empty"):
        PartyFolder.accept(here / "home", Invitation.read(bundle))
    with pytest.raises(BadInput, match="no invitation here"):
        PartyFolder.open(here)
    with folder.playing(), pytest.raises(BadInput, match="another process runs"), again.playing():
        pass


def test_a_party_searches_its_own_documents_by_the_ranker(bundle, here) -> None:
    folder = PartyFolder.accept(here / "data", Invitation.read(bundle))
    folder.note_source(FolderSource(str(write_collection(here / "texts", "own"))))
    assert "no ranker yet" in refused("search", "--own", "data", "rareword1")
    theta = np.zeros(18)
    theta[FEATURE_NAMES.index("length of title")], theta[FEATURE_NAMES.index("BM25 of body")] = 1e-3, -1.0
    (here / "data" / "ranker.json").write_bytes(ranker_bytes(folder.terms.saved_ranker(theta)))
    found = json.loads(call("search", "--own", "data", "rareword1 commonword3", "--top", 20, "--json"))
    assert len(found["found"]) == 20 and found["documents"] == 40 and folder.sent_log() == []
    scores = [each["score"] for each in found["found"]]
    assert scores == sorted(scores, reverse=True) and all(found["titles"].values())
    shown = call("search", "--own", "data", "rareword1 commonword3")
    assert "own-document-" in shown and "nothing" in shown and max(map(len, shown.splitlines())) <= 80
    assert "only stop words" in refused("search", "--own", "data", "the of and")
    assert "needs the folder of a party" in refused("search", "--own", "texts", "rareword1")


def test_pins_hold_the_others_and_never_change_by_themselves(bundle, here) -> None:
    folder = PartyFolder.accept(here / "data", Invitation.read(bundle))
    pin = f"south={KEYS['south'].hex()}"
    call("join", "--data", "data", "--status", "--pin", pin)
    assert folder.pins.known == {"south": KEYS["south"]}
    assert "another identity is pinned" in refused("join", "--data", "data", "--status", "--pin", f"south={'ab' * 32}")
    assert "pin the others" in refused("join", "--data", "data", "--status", "--pin", f"north={'ab' * 32}")
    assert "expected NAME=HEX" in refused("join", "--data", "data", "--status", "--pin", "south")
    both = refused("join", "--data", "data", "--status", "--pin", f"west={'ab' * 32}", "--pin", f"west={'cd' * 32}")
    assert "two different identities" in both
    assert folder.pins.known == {"south": KEYS["south"]}
    assert "choose one of them" in refused("join", "--data", "data", "--status", "--log")
    assert "there is nothing here" in refused("join", "--data", "data", "--status", "--collection", "absent")
    lines = call("join", "--data", "data", "--identity").splitlines()
    assert re.fullmatch(r"north=[0-9a-f]{64}", lines[0]), "what the others give to --pin"
    assert lines[1:] == ["fingerprint: not agreed on yet", "south: pinned", "west: not pinned"]
    assert call("join", "--data", "data", "--identity").splitlines() == lines, "it lasts"
    assert json.loads(call("join", "--data", "data", "--log", "--json"))["sent"] == []
    shown = call("join", "--data", "data", "--status")
    assert "not agreed on yet" in " ".join(shown.split()) and max(map(len, shown.splitlines())) <= 80


def secret_folder(here: Path, *pins: str) -> PartyFolder:
    """North's folder of a group that is no rehearsal and that searches."""
    made(here / "home", SMALL.replace("seed = 3\n", "") + "[search]\nrenew_days = 90\n")
    call("invite", "home", "north", *pins)
    return PartyFolder.accept(here / "data", Invitation.read(here / "north.json"))


def test_the_others_are_confirmed_by_their_owner(here) -> None:
    folder, fingerprint = secret_folder(here), "0012 3456 7890"
    others = {name: KEYS[name] for name in ("south", "west")}
    assert "not agreed yet" in refused("join", "--data", "data", "--confirm", fingerprint)
    folder.note_state(fingerprint=fingerprint)  # as the process that plays the party does
    assert "stands between" in refused("join", "--data", "data", "--confirm", "0012 3456 7891")
    assert "choose one of them" in refused("join", "--data", "data", "--confirm", fingerprint, "--trust-service")
    assert not folder.has_confirmed(fingerprint, others)
    call("join", "--data", "data", "--confirm", "001234567890")
    assert folder.has_confirmed(fingerprint, others) and not folder.has_confirmed("0012 3456 7891", others)
    call("join", "--data", "data", "--trust-service")
    assert folder.has_confirmed("0012 3456 7891", others)


def test_pins_confirm_the_others_and_those_of_the_service_do_not(here) -> None:
    others = {name: KEYS[name] for name in ("south", "west")}
    pins = [word for name, key in others.items() for word in ("--pin", f"{name}={key.hex()}")]
    folder = secret_folder(here, *pins)
    assert folder.pins.known == others and not folder.has_confirmed("1", others)
    call("join", "--data", "data", "--status", *pins[:2])
    assert not folder.has_confirmed("1", others) and not folder.has_confirmed("1", {"south": KEYS["south"]})
    call("join", "--data", "data", "--status", *pins[2:])
    assert folder.has_confirmed("1", others) and not folder.has_confirmed("1", others | {"west": KEYS["north"]})


def test_what_searches_cost_in_a_year_is_stated_before_consent(here) -> None:
    folder = secret_folder(here)
    words = ("silo", "join", "--data", "data", "--generated", "0", "--documents", "60")
    log = here / "said.log"
    with log.open("wb") as out:
        child = subprocess.Popen([sys.executable, "-m", "quorank.cli.main", *words], stdout=out, stderr=out)
    try:
        until(lambda: "consent is off" in log.read_text(), log.read_text)
    finally:
        child.terminate()
        child.wait(60)
    pairs = len(folder.holding().documents.body.terms)
    each = math.floor(0.025 * pairs)
    said = " ".join(log.read_text().split())
    assert f"may learn {each:,} of this party's {pairs:,} (document, term) pairs in every 90 days" in said
    assert f"all together {2 * 5 * each:,} (" in said and "ε = 8 for one occurrence" in said
    assert f"at least {each // (3 * 5 * 3):,} searches of 3 words in every 90 days" in said and folder.sent_log() == []


def test_invitations_that_are_refused(bundle, here) -> None:
    found = json.loads(bundle.read_text())
    for change, words in (
        ({"kind": "device"}, "accept it with quorank join"),
        ({"format": "x"}, "not an invitation"),
        ({"version": 1}, "version 1"),
        ({"service": None}, "damaged"),
        ({"name": "east"}, "not a party of the group"),
        ({"url": "nowhere"}, "not an address"),
        ({"url": "http://silo.example.org"}, "not an address"),
        ({"identities": {"east": "00"}}, "expected NAME=HEX"),
        ({"identities": {"north": "00"}}, "64 hexadecimal digits"),
        ({"terms": {}}, "terms"),
        ({"terms": found["terms"] | {"setting": {"training": "os.system"}}}, "unknown training"),
    ):
        (here / "bad.json").write_text(json.dumps(found | change))
        said = refused("join", "--data", "d", "--bundle", "bad.json")
        assert words in said and found["code"] not in said, change
    assert "no such file" in refused("join", "--data", "d", "--bundle", "absent.json")
    (here / "bad.json").write_text("[")
    assert "JSON" in refused("join", "--data", "d", "--bundle", "bad.json")
    assert not (here / "d").exists()


class Desk(ServiceClient):
    """A line whose service lets a member in with what it is told to."""

    told: Enrolment

    def enrol(self, invitation: Invitation, key: MemberKey, attestation: bytes = b"") -> Enrolment:
        self.member = self.told.member
        return self.told


def test_a_party_enrols_once_and_with_the_terms_that_its_owner_has_read(bundle, here) -> None:
    folder = PartyFolder.accept(here / "data", Invitation.read(bundle))
    own = folder.service()
    assert own.member is None and own.key is not None
    assert own.key.secret != folder.identity.private, "one secret on disk, another for each use"
    line, terms = Desk(own.url, own.service, key=own.key), folder.terms.table()
    for told in (
        Enrolment(1, "north", terms),
        Enrolment(0, "south", terms),
        Enrolment(0, "north", terms | {"run": "other"}),
        Enrolment(0, "north", terms | {"statistics_epsilon": 16.0}),
        Enrolment(0, "north", terms | {"seed": 4}),
    ):
        line.told, line.member = told, None
        with refusals.refused("terms.changed"):
            folder.enrol(line)
        assert folder.service().member is None
    line.told, line.member = Enrolment(0, "north", terms), None
    folder.enrol(line)
    again = PartyFolder.open(here / "data")
    assert again.service().member == 0
    PartyFolder.accept(here / "data", Invitation.read(bundle))
    assert again.service().member == 0, "the same invitation changes nothing"
    call("revoke", "home", "north")
    call("invite", "home", "north", "--out", "again.json")
    PartyFolder.accept(here / "data", Invitation.read(here / "again.json"))
    assert PartyFolder.open(here / "data").service().member is None, "with a new one it enrols anew"

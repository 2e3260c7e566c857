"""Targets of what members and services tell each other: invitations, terms, requests, and the files of all of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from fuzz.target import CORPUS, as_file, scratch, target
from quorank.errors import BadInput
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.silo_experiment import read_group
from quorank.member.membership import left_note
from quorank.member.party_folder import terms_of as party_terms
from quorank.member.private_store import PrivateStore
from quorank.protocol import requests
from quorank.protocol.certificates import Authority
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import check_leaving_request
from quorank.protocol.requests import read_enrolment
from quorank.protocol.terms import Terms
from quorank.service.holders.group import SiloHome
from quorank.service.home import Home
from quorank.service.store.backup import restore
from quorank.silos.session.streams import SiloStore
from quorank.silos.session.terms import SiloTerms, read_identities

FOLDERS = CORPUS / "folders"
"""A coordinator's folder and a group's, as they were made."""


@cache
def _files(kind: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((FOLDERS / kind).iterdir())}


def folder_with(kind: str, name: str, data: bytes) -> Path:
    """A coordinator's folder in which one file is the input."""
    folder = scratch() / kind
    folder.mkdir()
    for file, content in (_files(kind) | {name: data}).items():
        (folder / file).write_bytes(content)
    return folder


@target("invitation", "json")
def invitation(data: bytes) -> None:
    """A device's invitation, its terms, written again and read back."""
    found = Invitation.read(as_file(data, "invitation.json"))
    assert Invitation.parse(found.text().encode()) == found, "an invitation is written as another one"
    Terms.read(found.terms)


@target("silo-invitation", "json")
def silo_invitation(data: bytes) -> None:
    """A party's invitation, written again and read back."""
    found = Invitation.read(as_file(data, "invitation.json"))
    party_terms(found)
    assert Invitation.parse(found.text().encode()) == found, "an invitation is written as another one"


def _table(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise BadInput("input.not-json", "the input is not JSON") from None


@target("terms", "json", seconds=10)
def terms(data: bytes) -> None:
    """A device's terms, and the privacy that they promise."""
    found = Terms.read(_table(data))
    _ = found.parameters, found.mechanism, found.reports, found.split
    assert Terms.read(json.loads(json.dumps(found.table()))) == found, "terms are written as other ones"


@target("silo-terms", "json")
def silo_terms(data: bytes) -> None:
    """A group's terms."""
    found = SiloTerms.read(_table(data))
    _ = found.digest
    assert SiloTerms.read(json.loads(json.dumps(found.table()))) == found, "terms are written as other ones"


@target("silo-experiment", "toml")
def silo_experiment(data: bytes) -> None:
    """The file of a group."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadInput("input.not-text", "the input is not UTF-8") from None
    read_group(parse_experiment_file(text, "group.toml"), "run")


@target("identities-argument", words=(b"north=", b"=", b"00" * 32))
def identities_argument(data: bytes) -> None:
    """--identity NAME=HEX, as it comes from a command line."""
    group = SiloHome.open(folder_with("group", "x", b"")).group
    read_identities(data.decode("utf-8", "surrogateescape").split("\n"), group)


@target(
    "authority",
    words=(
        b"-----BEGIN CERTIFICATE-----\n",
        b"-----END CERTIFICATE-----\n",
        b"-----BEGIN PRIVATE KEY-----\n",
        b"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n",
        b"=== ",
    ),
)
def authority(data: bytes) -> None:
    """An authority's certificate and key, `=== ` between them."""
    certificate, _, key = data.partition(b"=== ")
    folder = scratch()
    (folder / "ca.pem").write_bytes(certificate)
    (folder / "ca.key").write_bytes(key)
    Authority.read(folder).server(["localhost"])


@target("server-certificate", words=(b"-----BEGIN CERTIFICATE-----\n",))
def server_certificate(data: bytes) -> None:
    """The certificate of a coordinator's server."""
    Home.open(folder_with("coordinator", "server.pem", data)).days_left()


@target("coordinator-settings", "json")
def coordinator_settings(data: bytes) -> None:
    """coordinator.json of a service, and what follows from it."""
    home = Home.open(folder_with("coordinator", "coordinator.json", data))
    _ = home.settings.url, home.tls


@target("request", words=(b"quorank-member: 0\n", b"quorank-nonce: " + b"0" * 32 + b"\n", b"quorank-protocol: 1\n"))
def request(data: bytes) -> None:
    """The head of a signed request, one header a line."""
    lines = [line.partition(": ") for line in data.decode("latin-1").split("\n")]
    head = requests.read_head({name.lower(): value for name, _, value in lines})
    assert 0 <= head.member < 10**10 and len(head.nonce) == requests.NONCE
    requests.check(head, MemberKey(bytes(range(32))).public, bytes(32), "GET", "/v1/task", float(head.time))


@target("enrolment", "json")
def enrolment(data: bytes) -> None:
    """The body of an enrolment, as a service takes it in."""
    read_enrolment(data, bytes(32))


@target("restored", words=(b"SQLite format 3\0",), seconds=10)
def restored(data: bytes) -> None:
    """A backup of a service, restored into a new folder."""
    file = as_file(data, "backup")
    restore(file, file.with_name("new"), skip=0, lost=True)


@target("coordinator-experiment", "toml")
def coordinator_experiment(data: bytes) -> None:
    """experiment.toml of a coordinator: the terms of its first client."""
    home = Home.open(folder_with("coordinator", "experiment.toml", data))
    home.terms(0)


@target("group-settings", "json")
def group_settings(data: bytes) -> None:
    """coordinator.json of a group's service."""
    _ = SiloHome.open(folder_with("group", "coordinator.json", data)).settings.url


@target("group-terms", "json")
def group_terms(data: bytes) -> None:
    """terms.json of a group's service."""
    _ = SiloHome.open(folder_with("group", "terms.json", data)).group


@target("group-identities", "json")
def group_identities(data: bytes) -> None:
    """identities.json of a group's coordinator."""
    _ = SiloHome.open(folder_with("group", "identities.json", data)).identities


@target("leaving", words=(b'{"format":', b'"client":', b'"run":', b"\n", b"9" * 4400))
def leaving(data: bytes) -> None:
    """A request to leave."""
    check_leaving_request(data, "run", {0: MemberKey(bytes(range(32))).public})


@target("left", "json")
def left_device(data: bytes) -> None:
    """Note of a client that has left."""
    left_note(as_file(data, "left.json").parent)


@target("device-store", "sqlite")
def device_store(data: bytes) -> None:
    """A device's private store: opened, and everything in it read."""
    folder = as_file(data, "device.sqlite").parent
    store = PrivateStore(folder)
    try:
        _ = store.ranker, store.personal, store.consent, store.waiting(), store.releases(), store.last_round("run")
        store.interactions(0, 10)
    finally:
        store.close()


@target("party-store", "sqlite")
def party_store(data: bytes) -> None:
    """A party's store: opened, and its facts and streams read."""
    folder = as_file(data, "party.sqlite").parent
    store = SiloStore(folder, "party")
    try:
        store.note("asks")
        store.places("server")
        store.message("server", 0, bytes(16)).to_bytes(to_party=False)
    finally:
        store.close()

"""A running service keeps nothing private: every file, page and log of it is searched for what its members know."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from devices import ANY
from postgresql_server import empty_database
from real_services import RealService, free_port, real_service, until
from signed_calls import reply_of
from silo_groups import NAMES as PARTIES
from silo_groups import SMALL, made, write_collection
from tuned_fleets import field_of

from quorank.federation.unlearning import rebuilding_name
from quorank.member import Client, Tuner
from quorank.member.membership import LEFT
from quorank.member.party import SiloParty
from quorank.member.party_folder import SESSION, FolderSource, PartyFolder
from quorank.member.party_run import take_part
from quorank.protocol.invitation import Invitation
from quorank.service.enrolment import invite
from quorank.service.holders.tuning import TuningHome, settings_of
from quorank.service.overview import Overview
from quorank.service.store.backup import backup
from quorank.service.store.database import TABLES
from quorank.service.store.sql_store import SqlStore
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.histories.scenarios import SCENARIOS
from quorank.tuning.rules import Count
from quorank.tuning.searches import slice_searches
from quorank.tuning.simulation import Tuning

BEGIN = 8


def forms_of_bytes(value: bytes) -> set[bytes]:
    """As they are, in hexadecimal, and in base64 behind nought, one or two bytes of something else."""
    found = {value, value.hex().encode(), value.hex().upper().encode()}
    for before in range(3):  # a digit has six bits: those that are of the value alone
        inside = base64.b64encode(bytes(before) + value)[-(-8 * before // 6) : 8 * (before + len(value)) // 6]
        found |= {inside, inside.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def forms_of_text(text: str) -> set[bytes]:
    """A text in UTF-8 and UTF-16, as JSON and addresses write it, in small letters, and all of that in other digits."""
    found: set[bytes] = set()
    for written in {text, text.lower(), json.dumps(text)[1:-1], quote(text), quote(text, safe="")}:
        for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
            found |= forms_of_bytes(written.encode(encoding))
    return found


def forms_of_row(row: np.ndarray) -> set[bytes]:
    """A row of features: single numbers and, where they are short, pairs of them, in either order of bytes; as decimals."""
    short = row.astype(np.float32)
    found: set[bytes] = set()
    for at in range(len(row) - 1):
        found |= {short[at : at + 2].astype(kind).tobytes() for kind in ("<f4", ">f4")}
    for value in (*row.tolist(), *short.astype(np.float64).tolist()):
        found |= {np.array(value, kind).tobytes() for kind in ("<f8", ">f8")}
        found.add(f"{value:.9f}".encode())
    return found | set().union(*(forms_of_bytes(row.astype(kind).tobytes()) for kind in ("<f4", "<f8")))


def forms_of_numbers(numbers: Iterable[int]) -> set[bytes]:
    """Small whole numbers, such as an order or clicks: as bytes of any width and as text."""
    given = [int(number) for number in numbers]
    found = {np.array(given, kind).tobytes() for kind in ("u1", "<u2", "<u4", "<u8", ">u4", ">u8", "<f4", "<f8")}
    texts = [json.dumps(given), json.dumps(given, separators=(",", ":")), "".join(map(str, given))]
    if set(given) <= {0, 1}:
        texts += [json.dumps([bool(one) for one in given], separators=(",", mark)) for mark in (":", ": ")]
        texts += [json.dumps([bool(one) for one in given])]
    return found | {text.encode() for text in texts}


def contents_of(*places: Path) -> dict[str, bytes]:
    """Every file there, by its path."""
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*")))]
    return {str(file): file.read_bytes() for file in files if file.is_file()}


def found_in(contents: Mapping[str, bytes], secrets: Mapping[str, set[bytes]]) -> dict[str, list[str]]:
    """Which secrets stand where: names of the contents by the secret's name. No form is shorter than eight bytes.

    Places are compared whose eight bytes begin one of the forms: one pass over the contents, however many forms there are.
    """
    forms: dict[int, list[tuple[str, bytes]]] = {}
    for name, written in secrets.items():
        for form in written:
            assert len(form) >= BEGIN, (name, form)
            forms.setdefault(int.from_bytes(form[:BEGIN], "little"), []).append((name, form))
    begins = np.array(sorted(forms), dtype="<u8")
    found: dict[str, list[str]] = {}
    for where, content in contents.items():
        for offset in range(min(BEGIN, max(0, len(content) - BEGIN + 1))):
            words = np.frombuffer(content, "<u8", (len(content) - offset) // BEGIN, offset)
            at = np.minimum(np.searchsorted(begins, words), len(begins) - 1)
            for place in np.flatnonzero(begins[at] == words).tolist():
                for name, form in forms[int(words[place])]:
                    if content.startswith(form, offset + BEGIN * place):
                        found.setdefault(name, []).append(where)
    return found


pytestmark = pytest.mark.slow
NAMES = ("anna", "ben", "cleo")
DOCUMENTS, SEARCHES = 14, 3
WORDS = ("Schilddrüse", "Kündigungsschutz", "Vaterschaftstest")


class Person:
    """A device and what its owner does there, with all of it written down by the test."""

    def __init__(self, service: RealService, folder: Path, name: str) -> None:
        self.name, self.folder, self.random = name, folder / name, np.random.default_rng(len(name))
        store = service.home.store()
        invite(service.home, store, name, folder / f"{name}.json")
        store.close()
        self.client = Client.open(self.folder, folder / f"{name}.json", policy=ANY)
        self.client.consent(True)
        self.secrets: dict[str, set[bytes]] = {}

    def search(self) -> None:
        for number in range(SEARCHES):
            query = f"{WORDS[number]} {self.name} /home/{self.name}/Dokumente/{WORDS[number]}-{len(self.secrets)}.pdf"
            rows = self.random.normal(size=(DOCUMENTS, 5))
            shown = self.client.rank(rows)
            clicks = self.random.integers(0, 2, len(shown.order)).astype(bool)
            clicks[:2] = True, False
            self.client.record(shown, clicks, query)
            mark = f"{self.name} {len(self.secrets)}"
            self.secrets |= {
                f"{mark} query": forms_of_text(query),
                f"{self.name} {WORDS[number]}": forms_of_text(WORDS[number]),
                f"{self.name} path of {WORDS[number]}": forms_of_text(f"{self.name}/Dokumente/{WORDS[number]}"),
                f"{mark} features": forms_of_row(rows[shown.order[0]]),
                f"{mark} list": forms_of_numbers(shown.order),
                f"{mark} clicks": forms_of_numbers(clicks),
            }

    def sync(self, outcome: str) -> None:
        end = time.monotonic() + 60.0
        while (report := self.client.sync(force=True)).outcome != outcome:
            assert time.monotonic() < end, report
            time.sleep(0.05)


def told(service: RealService, folder: Path) -> dict[str, bytes]:
    """All that a service keeps and shows: its folder, its log, its rows, a backup, its pages, its status."""
    settings = service.home.settings
    backup(service.home.path, settings.database, folder / "backup")
    found = contents_of(service.home.path, service.log, folder / "backup")
    token = {"Authorization": f"Bearer {service.home.token}"}
    for target in ("/", "/metrics", "/healthz"):
        got = service.call("GET", target, headers=token)
        assert got.status == 200, got
        found[target] = got.body
    found["status"] = json.dumps(Overview(service.home).read().table()).encode()
    store = service.home.store()
    found |= rows_of(store)
    store.close()
    return found


def rows_of(store: SqlStore) -> dict[str, bytes]:
    """Every value of every table, as bytes; of PostgreSQL too, whose files are not searched."""
    found = {}
    for table in TABLES:
        values = [value for row in store.database.execute(f"SELECT * FROM {table}") for value in row]
        raw = [bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode() for value in values]
        found[f"table {table}"] = b"\n".join(raw)
    return found


def check(kept: dict[str, bytes], people: list[Person], own: dict[str, bytes]) -> None:
    """Nothing of the people is in what is kept; the same search finds all of it where it may be."""
    secrets = {name: forms for person in people for name, forms in person.secrets.items()}
    assert len(secrets) >= 6 * SEARCHES * len(people) and all(len(forms) >= 8 for forms in secrets.values())
    assert set(found_in(own, secrets)) == set(secrets), "the search finds what is there"
    assert found_in(kept, secrets) == {}


def own_files(people: list[Person]) -> dict[str, bytes]:
    return contents_of(*(person.folder for person in people))


def test_plain_rounds_a_refused_reply_and_a_leaving(tmp_path: Path) -> None:
    with real_service(tmp_path / "home", clients=4, rounds=2, workers=1) as service:
        people = [Person(service, tmp_path, name) for name in NAMES]
        stranger = service.enrolled("dora", tmp_path)
        for person in people:
            person.search()
        until(lambda: service.signed(stranger, "GET", "/v1/task").status == 200, service.log)
        spoken = f"{WORDS[0]} anna"
        told_too_much = [
            reply_of(stranger.number, run=spoken),
            spoken.encode(),
            reply_of(stranger.number)[:-9] + b"x" * 9,
        ]
        for body in told_too_much:
            assert service.signed(stranger, "POST", "/v1/reply", body).status in (400, 409, 422), body
        assert service.signed(stranger, "GET", f"/v1/{WORDS[2].lower()}").status == 404
        store = service.home.store()
        store.revoke("dora")
        for person in people[:2]:
            person.sync("sent")
        kept = rows_of(store)
        assert len(kept["table replies"]) > 200  # they go when the round is over
        people[2].sync("sent")
        own = own_files(people)
        for person in people:
            person.search()
            person.sync("sent")
        own |= {f"{name} later": content for name, content in own_files(people).items()}
        for person in people:
            person.sync("over")
            assert person.client.status()["last_round"] == person.client.store.ranker.round == 2
        assert len({person.client.store.ranker.theta.tobytes() for person in people}) == 1
        kept |= contents_of(service.home.path)
        leave(people, service)
        kept |= {f"{where} later": content for where, content in told(service, tmp_path).items()}
        assert {"table events later", "/metrics later"} <= set(kept) and b"dora" in kept["table members later"]
        check(kept, people, own)
        store.close()
        for person in people[1:]:
            person.client.close()


def leave(people: list[Person], service: RealService) -> None:
    """The first leaves; the others learn again without it."""
    leaver, *others = people
    assert leaver.client.leave().outcome in ("leaving", "left")
    end, seen = time.monotonic() + 60.0, set()
    while not leaver.client.closed:
        seen |= {person.client.sync(force=True).outcome for person in others}
        leaver.client.sync(force=True)
        assert time.monotonic() < end, service.log.read_text()
        time.sleep(0.05)
    assert "sent" in seen and others[0].client.store.releases()[-1].run == rebuilding_name("run", 1, 10)
    assert [path.name for path in leaver.folder.iterdir()] == [LEFT]


def test_a_secure_sum(tmp_path: Path) -> None:
    """On PostgreSQL where there is one."""
    database = empty_database() if find_spec("pgserver") and find_spec("psycopg") else ""
    with real_service(
        tmp_path / "home", clients=3, rounds=1, privacy="secure-sum", workers=1, database=database
    ) as service:
        people = [Person(service, tmp_path, name) for name in NAMES]
        for person in people:
            person.search()
        own, kept = own_files(people), {}
        end = time.monotonic() + 60.0
        while {person.client.sync(force=True).outcome for person in people} != {"over"}:
            store = service.home.store()
            kept |= {f"{name} {hash(rows)}": rows for name, rows in rows_of(store).items()}  # letters go when answered
            store.close()
            assert time.monotonic() < end, service.log.read_text()
        check(kept | told(service, tmp_path), people, own)
        assert [person.client.status()["releases"] for person in people] == [1, 1, 1]
        assert people[0].client.store.ranker.theta.any()
        for person in people:
            person.client.close()


def test_a_group_of_parties(tmp_path: Path) -> None:
    short = SMALL.replace("seed = 3\n", "").replace("turns = 3", "turns = 1")
    service = RealService(made(tmp_path / "home", short, free_port()))
    secrets: dict[str, set[bytes]] = {}
    done: dict[str, bool] = {}

    def take_part_as(folder: PartyFolder) -> None:
        party = SiloParty(folder.folder / SESSION, folder.identity, folder.terms, folder.holding())
        line = folder.service()
        done[party.name] = take_part(party, line, lambda: False, enrol=folder.enrol)
        line.close()
        party.close()

    try:
        service.start()
        store, threads = service.home.store(), []
        for name in PARTIES:
            texts = write_collection(tmp_path / f"texts-{name}", name)
            service.home.invite(store, name, tmp_path / f"{name}.json")
            folder = PartyFolder.accept(tmp_path / f"data-{name}", Invitation.read(tmp_path / f"{name}.json"))
            folder.note_source(FolderSource(str(texts)))
            secrets |= {
                f"{name} {word}": forms_of_text(word) for word in (f"{name}word", f"{name}-document", f"{name}-query")
            }
            threads.append(threading.Thread(target=take_part_as, args=(folder,), daemon=True))
            threads[-1].start()
        for word in ("commonword", "rareword", f"/texts-{PARTIES[0]}", "-document-1\t1"):  # the last is a label
            secrets[word] = forms_of_text(word)
        kept: dict[str, bytes] = {}
        while any(thread.is_alive() for thread in threads):
            kept |= {f"{where} {hash(rows)}": rows for where, rows in rows_of(store).items()}
            time.sleep(0.5)
        store.close()
        assert done == dict.fromkeys(PARTIES, True), service.log.read_text()
        own = contents_of(*(tmp_path / f"{kind}-{name}" for name in PARTIES for kind in ("texts", "data")))
        assert set(found_in(own, secrets)) == set(secrets), "the search finds what is there"
        assert found_in(kept | told(service, tmp_path), secrets) == {}
        carried = {where.split()[1] for where, rows in kept.items() if rows}
        assert carried & {"letters", "sending", "coming"}  # their messages have been there
    finally:
        service.kill()


def test_a_tuning(tmp_path: Path) -> None:
    tuning, port = Tuning(closing=Count(len(NAMES)), iterations=1, held_out=50), free_port()
    chosen = settings_of("run", field_of(tuning), port=port, address=f"127.0.0.1:{port}", workers=1)
    service = RealService(TuningHome.make(tmp_path / "home", field_of(tuning), chosen))
    searches = SCENARIOS["frecency"].searches(tuning.seed, len(NAMES), 0, FRECENCY.shipped, tuning.sigma)
    items = {name: slice_searches(searches, number, number + 1) for number, name in enumerate(NAMES)}
    secrets = {f"{name} visits": forms_of_numbers(own.visits[:12]) for name, own in items.items()}
    secrets |= {
        f"{name} {column}": forms_of_numbers(getattr(own, column)[own.sampled == 10][0])
        for name, own in items.items()
        for column in ("recency", "type")
    }
    try:
        service.start()
        store = service.home.store()
        for name in NAMES:
            invite(service.home, store, name, tmp_path / f"{name}.json")
            with Tuner.open(tmp_path / name, FRECENCY, tmp_path / f"{name}.json") as tuner:
                tuner.consent(True)
                until(lambda tuner=tuner: tuner.sync(force=True).outcome == "nothing" and tuner.task is not None)
                tuner.record(items[name])
                report = tuner.sync(force=True)
                assert report.outcome == "sent", report
        until(lambda: store.publication().kind == "over", service.log)
        store.close()
        raw = {
            f"{name} {column}": getattr(own, column).tobytes() for name, own in items.items() for column in own._fields
        }
        assert set(found_in(raw, secrets)) == set(secrets), "the search finds what is there"
        assert found_in(told(service, tmp_path), secrets) == {}
        assert found_in(contents_of(*(tmp_path / name for name in NAMES)), secrets) == {}, "devices keep sums alone"
    finally:
        service.kill()

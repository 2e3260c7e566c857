"""A service's folder: made whole or not at all, certificates, who runs in it, invitations, files for the machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from refusals import refused
from signed_calls import NOISY, folder_of
from silo_groups import mode

from quorank.cli import machine_files
from quorank.experiments.deployment import setting_of
from quorank.federation.reply import Reply
from quorank.protocol.invitation import Invitation
from quorank.service import home as home_module
from quorank.service.enrolment import invite, open_enrolment
from quorank.service.holders.devices import coordinator_of
from quorank.service.holders.rounds import Holder
from quorank.service.home import Home, Settings
from quorank.service.overview import Overview


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return folder_of(tmp_path / "home", clients=3, address="search.example.org:9092")


def test_the_folder_is_its_owner_s_and_secrets_are_its_own(home: Home, tmp_path: Path) -> None:
    assert mode(home.path) == 0o700
    for name in ("seed", "service.key", "operator.token", "ca.key", "server.key", "coordinator.json"):
        assert mode(home.path / name) == 0o600, name
    again = Home.open(home.path)
    assert again.settings == home.settings and again.key.public == home.key.public and again.secret == home.secret
    other = folder_of(tmp_path / "other")
    assert other.key.public != home.key.public and other.token != home.token and other.secret != home.secret
    with refused("folder.not-empty"):
        folder_of(tmp_path)
    with refused("folder.missing"):
        folder_of(tmp_path / "no" / "home")
    (home.path / "service.key").write_bytes(b"short")
    with refused("file.damaged"):
        Home.open(home.path).key  # noqa: B018


@pytest.mark.parametrize(("settings", "fewest"), [({}, 10), ({"least": 0.8}, 16), ({"minimum_members": 3}, 3)])
def test_no_round_closes_with_fewer_replies_than_planned(settings, fewest, tmp_path) -> None:
    """The first device that comes could otherwise close rounds alone: fractions are of those who have enrolled."""
    home = folder_of(tmp_path / "home", clients=20, **settings)
    store, now = home.store(), [0.0]
    store.hold()
    coordinator = coordinator_of(home, Holder(store, home.key, clock=lambda: now[0]))
    task = coordinator.plan()
    coordinator.set_unavailable(range(fewest, 20))
    for client in range(fewest):
        now[0] += 1e6  # beyond any deadline
        assert not coordinator.is_complete()
        assert coordinator.receive(Reply("run", 0, client, np.zeros(len(task.theta)), 3)).accepted
    assert coordinator.is_complete()


def test_settings_that_make_no_sense() -> None:
    for changed, code in (
        ({"address": "search.example.org:x"}, "address.malformed"), ({"workers": 0}, "value.out-of-range"),
        ({"address": "http://search.example.org"}, "address.malformed"), ({"port": 0}, "value.out-of-range"),
        ({"least": 0.0}, "value.out-of-range"), ({"deadline": 0.0}, "value.out-of-range"),
        ({"certificate": "cert.pem"}, "option.conflict"), ({"workers": 3, "enrolments": 2}, "value.out-of-range"),
        ({"certificate": "c", "key": "k", "behind_proxy": True}, "option.conflict"),
        ({"run": "spring\x1b[2J"}, "run.name"), ({"run": ""}, "run.name"), ({"run": "x" * 201}, "run.name"),
    ):  # fmt: skip
        with refused(code):
            Settings(**{"run": "run", "n_features": 5, "address": "127.0.0.1:9092"} | changed)


def test_addresses() -> None:
    def url(address: str, **more: object) -> str:
        return Settings("run", 5, address, **more).url  # type: ignore[arg-type]

    assert url("127.0.0.1:9092") == "https://127.0.0.1:9092"
    assert url("127.0.0.1:9092", behind_proxy=True) == "http://127.0.0.1:9092"
    assert url("https://search.example.org", behind_proxy=True) == "https://search.example.org"
    assert url("search.example.org:443", behind_proxy=True) == "https://search.example.org:443"


def test_certificates_follow_the_address_and_are_renewed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> x509.Certificate:
        return x509.load_pem_x509_certificate((home.path / "server.pem").read_bytes())

    def names() -> list[str]:
        extension = found().extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return extension.value.get_values_for_type(x509.DNSName)

    first = found()
    assert names() == ["search.example.org", "localhost"] and home.days_left() > 300
    home.renew()
    assert found() == first
    home.change(Settings("run", 5, "other.example.org:9092"))
    assert names()[0] == "other.example.org" and found() != first
    second = found()
    monkeypatch.setattr(home_module, "RENEW_DAYS", 400)
    home.renew()
    assert found() != second
    found().verify_directly_issued_by(x509.load_pem_x509_certificate(home.authority))
    overview, good = Overview(home), (home.path / "server.pem").read_bytes()
    (home.path / "server.pem").write_bytes(b"garbage")
    health = overview.health()
    assert health["ok"] and [one["code"] for one in health["problems"]] == ["certificate.unreadable"]
    (home.path / "server.pem").write_bytes(good)
    monkeypatch.setattr(Home, "days_left", lambda self: 10.0)
    assert [(one.code, one.fatal) for one in Overview(home).problems()] == [("certificate.expires", False)]
    monkeypatch.setattr(Home, "days_left", lambda self: -1.0)
    assert Overview(home).health()["ok"] is False


def test_one_service_runs_in_a_folder(home: Home) -> None:
    assert home.process() is None
    with home.running():
        assert home.process() == os.getpid()
        with refused("coordinator.running"), home.running():
            pass
    assert home.process() is None


def test_invitations_hold_no_key_and_are_good_once(home: Home, tmp_path: Path) -> None:
    store = home.store()
    anna = invite(home, store, "anna", tmp_path / "anna.json")
    assert (anna.number, anna.key, mode(tmp_path / "anna.json")) == (0, None, 0o600)
    invitation = Invitation.read(tmp_path / "anna.json")
    assert (invitation.url, invitation.service) == ("https://search.example.org:9092", home.key.public)
    assert invitation.certificate == home.authority.decode() and invitation.terms == home.terms(0).table()
    for path in home.path.rglob("*"):
        assert not path.is_file() or invitation.code not in path.read_bytes(), "the folder has the code's digest only"
    with refused("invitation.repeated", "anna"):
        invite(home, store, "anna", tmp_path / "again.json")
    for name in ("../x", "", "a b", "a" * 65):
        with refused("device.name"):
            invite(home, store, name, tmp_path / "again.json")
    with refused("file.exists"):
        invite(home, store, "ben", tmp_path / "anna.json")
    assert not (tmp_path / "again.json").exists()
    for name in ("ben", "carl"):
        invite(home, store, name, tmp_path / f"{name}.json")
    with refused("invitation.none-left", "dora"):
        invite(home, store, "dora", tmp_path / "dora.json")
    assert [member.name for member in store.members()] == ["anna", "ben", "carl"]
    assert store.admitted() == [], "nobody is in a cohort before they have enrolled"
    with refused("invitation.none-left", "--quota"):
        open_enrolment(home, store, 1, 1.0, tmp_path / "none.json")
    with refused("value.out-of-range", "--quota"):
        open_enrolment(home, store, 0, 1.0, tmp_path / "none.json")
    store.close()
    larger = folder_of(tmp_path / "larger", clients=10)
    store = larger.store()
    open_enrolment(larger, store, 10, 1.0, tmp_path / "all.json")
    told = Invitation.read(tmp_path / "all.json")
    assert told.token and not told.code and told.name == "run"
    store.close()


def test_noise_and_cohorts_come_from_the_folder_s_secret(tmp_path: Path) -> None:
    homes = [folder_of(tmp_path / name, privacy=NOISY) for name in "ab"]

    def played(home: Home) -> tuple[bytes, int | bytes]:
        store = home.store()
        assert store.hold() is not None
        coordinator = coordinator_of(home, Holder(store, home.key))
        mechanism = coordinator.mechanism
        noised = mechanism.finish(np.zeros(5), 5.0, 5, 5, 0, mechanism.start()).total.tobytes()
        store.close()
        return noised, coordinator.seed

    first, second, again = (played(home) for home in (*homes, homes[0]))
    assert first == again and first[0] != second[0] and first[1] != second[1]
    public = homes[0].experiment.federation.privacy.mechanism(
        setting_of(homes[0].experiment, homes[0].settings.n_features), homes[0].experiment.seed
    )
    assert public.finish(np.zeros(5), 5.0, 5, 5, 0, public.start()).total.tobytes() != first[0]


def test_health_tells_before_anybody_complains(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = home.store()

    def codes() -> list[str]:
        return [one.code for one in Overview(home).problems()]

    assert codes() == []
    invite(home, store, "anna", tmp_path / "anna.json")
    code = Invitation.read(tmp_path / "anna.json").code
    store.enrol(bytes(range(32)), code)
    assert codes() == ["nobody.seen"]
    from quorank.service.store.group_commit import Call

    store.take([Call(0, bytes(16))])
    assert codes() == []
    store.note("identity_copied", client=0)
    assert codes() == ["identity.copied"]
    assert store.hold() is not None
    store.keep({"status.json": json.dumps({"at": store.now() - 1000.0}).encode()})
    assert codes() == ["identity.copied", "holder.gone"]
    assert "client" not in json.dumps(Overview(home).health())
    usage = shutil.disk_usage(home.path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    found = Overview(home).health()
    assert found["ok"] is False and found["problems"][0]["code"] == "disk.full"
    store.close()
    for name in ("service.sqlite-wal", "service.sqlite-shm"):
        (home.path / name).unlink(missing_ok=True)
    (home.path / "service.sqlite").write_bytes(b"no database" * 1000)
    assert "store.unreachable" in codes()


# files for the machine


def test_the_files_for_the_machine(home: Home, tmp_path: Path) -> None:
    out = tmp_path / "etc"
    assert sorted(path.name for path in machine_files.write(home, out)) == sorted(machine_files.DEVICES)
    for name in machine_files.DEVICES:
        text = (out / name).read_text()
        assert "{{" not in text and "{%" not in text, name
    nginx = (out / "nginx.conf").read_text()
    assert "server 127.0.0.1:9092;" in nginx and "X-Forwarded-For $remote_addr;" in nginx
    unit = (out / "quorank-coordinator.service").read_text()
    assert f"coordinator start {home.path}\n" in unit and f"ReadWritePaths={home.path}" in unit
    for word in ("NoNewPrivileges=yes", "ProtectSystem=strict", "PrivateTmp=yes", "UMask=0077"):
        assert word in unit and word in (out / "quorank-join.service").read_text()
    with refused("value.not-plain"):
        machine_files.write(folder_of(tmp_path / "my home"), tmp_path / "spaced")
    assert not (tmp_path / "spaced").exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_the_units(home: Home, tmp_path: Path) -> None:
    paths = [path for path in machine_files.write(home, tmp_path / "etc") if path.suffix == ".service"]
    words = ["systemd-analyze", "verify", "--man=no", *map(str, paths)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    told = [line for line in found.stderr.splitlines() if "quorank" in line and "not executable" not in line]
    assert told == [], found.stderr
    broken = paths[0].read_text().replace("NoNewPrivileges=yes", "NoNewPrivilege=yes\nProtectSystem=sometimes")
    paths[0].write_text(broken)
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "NoNewPrivilege" in found.stderr and "sometimes" in found.stderr, "the check can fail"

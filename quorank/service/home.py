"""Folder of a service: settings, secrets, certificates, what it runs, and its SQLite store.

The folder has mode 0700 (secrets 0600) and is created atomically. Its secrets: the authority's key, the service's key that
signs tasks, the operator's token, and the secret of the coordinator's noise and cohorts. The seed of the experiment file is
not used for those, since it would let its readers remove the noise from the rankers. Their key is the secret with a random
salt of the store: a restarted holder finds it there, and a restored backup has lost it and draws another one.

Heavy imports are lazy: the supervisor opens the folder too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlsplit

from quorank.errors import require, require_range
from quorank.files.atomic import ProcessLock, new_folder, write_whole
from quorank.files.documents import decode_document, read_json
from quorank.protocol.certificates import CERTIFICATE, Authority, days_left, write_private
from quorank.protocol.invitation import check_run_name, check_url
from quorank.protocol.keys import MemberKey

if TYPE_CHECKING:
    from quorank.experiments.experiment import Experiment
    from quorank.protocol.terms import Terms
    from quorank.service.store.sql_store import SqlStore

FORMAT = 2
SETTINGS, EXPERIMENT, TERMS = "coordinator.json", "experiment.toml", "terms.json"
SEED, SERVICE_KEY, TOKEN = "seed", "service.key", "operator.token"
SERVER_CERTIFICATE, SERVER_KEY = "server.pem", "server.key"
LOCK, STATUS, LOG, RANKER, LEDGER = "lock", "status.json", "coordinator.log", "ranker.json", "ledger.json"
SALT = "salt"  # document of the store, in no backup
SECRET_BYTES = 32
RENEW_DAYS = 30  # remaining days below which a certificate of the own authority is replaced
HOLDERS = {  # modules by kind of service
    "coordinator": "quorank.service.holders.devices",
    "silo": "quorank.service.holders.group",
    "tuning": "quorank.service.holders.tuning",
}


@dataclass(frozen=True)
class Settings:
    """Settings of a service; `run`, `n_features`, `report_epsilon` and `attester` are fixed when the folder is made."""

    run: str
    n_features: int
    address: str  # host:port at which members reach the service, or https://host behind a proxy
    host: str = "127.0.0.1"  # where it listens
    port: int = 9092
    workers: int = 2  # processes that take requests
    database: str = ""  # postgresql://…; empty: SQLite in the folder
    behind_proxy: bool = False  # a proxy ends TLS and sets X-Forwarded-For
    certificate: str = ""  # certificate file (PEM); empty: issued by the folder's authority
    key: str = ""  # file of its key
    enough: float = 1.0  # fraction of the cohort that closes a round
    least: float = 0.5  # minimum fraction of the cohort
    minimum_members: int = 0  # minimum replies of a round; 0: `least` of the planned cohort
    deadline: float = 3600.0  # seconds after which `least` are enough
    pause: float = 60.0  # polling interval without work, seconds
    total_epsilon: float = 0.0  # maximum ε of all releases at the run's δ; 0: that of run and reports
    leaving_pause: float = 3600.0  # minimum seconds between two rebuildings for members that leave
    may_reset: bool = False  # reset the ranker to its start where it cannot be rebuilt without the leavers
    report_epsilon: float = 0.0  # ε of the metric that devices report with each release; 0: none
    attester: str = ""  # hexadecimal public key that must sign each device's key; empty: none
    enrolments: int = 60  # enrolments per minute, address and host; 0: unlimited
    kind: str = "coordinator"  # coordinator of devices, tuning, or group of parties

    def __post_init__(self) -> None:
        check_url(self.url)
        check_run_name(self.run)
        require(self.kind in HOLDERS, "value.not-a-choice", f"expected {' or '.join(HOLDERS)}", "kind")
        require(0 < self.port < 65536, "value.out-of-range", f"a port is from 1 to 65535, got {self.port}")
        require(1 <= self.workers <= 64, "value.out-of-range", f"from 1 to 64, got {self.workers}", "--workers")
        require(self.n_features >= 1, "value.out-of-range", f"a ranker needs at least 1 feature, got {self.n_features}")
        require(0.0 < self.least <= self.enough <= 1.0, "value.out-of-range", "expected 0 < least ≤ enough ≤ 1")
        require_range("minimum_members", self.minimum_members, least=0)
        require_range("total_epsilon", self.total_epsilon, least=0.0)
        require_range("leaving_pause", self.leaving_pause, least=0.0)
        sentence = "expected the 64 hexadecimal digits of a public key"
        require(re.fullmatch(r"([0-9a-f]{64})?", self.attester), "value.malformed", sentence, "attester")
        require_range("enrolments", self.enrolments, least=self.workers if self.enrolments else 0)
        require(min(self.deadline, self.pause) > 0.0, "value.out-of-range", "deadline and pause must be above 0")
        both = bool(self.certificate) == bool(self.key)
        require(both, "option.conflict", "give both certificate and key, or neither")
        alone = not (self.behind_proxy and self.certificate)
        require(alone, "option.conflict", "a proxy ends TLS: set certificate or behind_proxy, not both")

    @property
    def url(self) -> str:
        """URL for members; plain HTTP only on this machine, behind a proxy."""
        if "://" in self.address:
            return self.address
        here = self.address.rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")
        return f"http{'' if self.behind_proxy and here else 's'}://{self.address}"


@dataclass(frozen=True)
class Home:
    """Folder of a service of any kind, or of one `kind` in a subclass."""

    kind: ClassVar[str] = ""
    missing: ClassVar[tuple[str, str]] = (
        "coordinator.missing",
        "coordinator here; make one with: quorank coordinator start {} --experiment FILE.toml",
    )
    path: Path

    @classmethod
    def create(cls, path: Path, experiment: Experiment, settings: Settings) -> Home:
        """Create the folder; an existing one must be empty."""
        from quorank.experiments.deployment import check_experiment, check_rounds, terms_of
        from quorank.experiments.experiment_file import write_toml
        from quorank.experiments.workload import started_experiment

        experiment = started_experiment(experiment, settings.n_features)
        check_experiment(experiment, settings.n_features)
        check_rounds(experiment, settings.least, settings.report_epsilon)
        terms = terms_of(
            experiment, settings.n_features, 0, settings.run,
            report_epsilon=settings.report_epsilon, total_epsilon=settings.total_epsilon,
            attester=bytes.fromhex(settings.attester),
        )  # fmt: skip
        files = {
            SEED: secrets.token_bytes(SECRET_BYTES),
            EXPERIMENT: write_toml(experiment.tables()).encode(),
            TERMS: json.dumps(terms.table(), indent=1).encode(),
        }
        return cls._made(path, settings, files, "coordinator's")

    @classmethod
    def _made(cls, path: Path, settings: Settings, files: Mapping[str, bytes], whose: str) -> Self:
        """Create a folder with an authority, a certificate, secrets and these files."""
        with new_folder(path, f"the folder is not empty, and not a {whose} folder; choose another one") as made:
            Authority.create().write(made)
            own = {SERVICE_KEY: secrets.token_bytes(SECRET_BYTES), TOKEN: secrets.token_urlsafe(24).encode()}
            for name, content in {**own, **files}.items():
                write_private(made / name, content)
            cls(made).write_settings(settings)
            cls(made).issue(settings)
        return cls(path.absolute())

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing folder."""
        home, (code, sentence) = cls(path.absolute()), cls.missing
        there = (home.path / SETTINGS).is_file() and cls.kind in ("", home.settings.kind)
        require(there, code, f"there is no {sentence.format(path)}", f"{path}")
        return home

    @cached_property
    def settings(self) -> Settings:
        path, advice = self.path / SETTINGS, "; restore it from a copy"
        content = read_json(path, advice=advice)
        version = content.pop("format", None)
        sentence = f"has format {version}, this Quorank reads {FORMAT}; install the version that made it"
        require(version == FORMAT, "file.version", sentence, f"{path}")
        settings: Settings = decode_document(Settings, content, f"{path}", advice=advice)
        return settings

    def write_settings(self, settings: Settings) -> None:
        text = json.dumps({"format": FORMAT, **asdict(settings)}, indent=1)
        write_private(self.path / SETTINGS, text.encode())

    @cached_property
    def experiment(self) -> Experiment:
        from quorank.experiments.experiment import Experiment
        from quorank.experiments.experiment_file import read_experiment_file

        return Experiment.read(read_experiment_file(self.path / EXPERIMENT))

    def _secret(self, name: str, least: int = SECRET_BYTES) -> bytes:
        try:
            content = (self.path / name).read_bytes()
        except OSError:
            content = b""
        sentence = "missing or damaged; restore it from a copy, or make a new folder"
        require(least <= len(content) <= SECRET_BYTES, "file.damaged", sentence, f"{self.path / name}")
        return content

    @property
    def secret(self) -> bytes:
        """Secret of the folder."""
        return self._secret(SEED)

    def run_secret(self, store: SqlStore) -> bytes:
        """Return the secret of noise and cohorts; a store without a salt gets one first, which only its holder may do."""
        salt = store.document(SALT)
        if salt is None:
            salt = secrets.token_bytes(SECRET_BYTES)
            store.keep({SALT: salt})
        return hashlib.blake2b(b"quorank run" + salt, key=self.secret, digest_size=SECRET_BYTES).digest()

    @cached_property
    def key(self) -> MemberKey:
        """Key that signs tasks; invitations hold its public half."""
        return MemberKey(self._secret(SERVICE_KEY))

    @property
    def token(self) -> str:
        """Token of the operator, for dashboard and metrics."""
        return self._secret(TOKEN, 20).decode("ascii", "replace")

    @property
    def authority(self) -> bytes:
        """Certificate (PEM) that members trust; empty: those of their system."""
        given = self.settings.certificate or self.settings.behind_proxy
        return b"" if given else (self.path / CERTIFICATE).read_bytes()

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """Files of certificate and key; None behind a proxy."""
        settings = self.settings
        if settings.behind_proxy:
            return None
        if settings.certificate:
            return Path(settings.certificate), Path(settings.key)
        return self.path / SERVER_CERTIFICATE, self.path / SERVER_KEY

    def store(self) -> SqlStore:
        """Open a connection to the service's store."""
        from quorank.service.store.sql_store import open_store

        return open_store(self.path, self.settings.database)

    def terms(self, client: int) -> Terms:
        """Return the terms of one client."""
        from quorank.protocol.terms import Terms

        return Terms.read(self.terms_table | {"client": client})

    @cached_property
    def terms_table(self) -> dict[str, Any]:
        """Terms of every client, without its number."""
        found: dict[str, Any] = read_json(self.path / TERMS, advice="; restore it from a copy")
        return found

    def issue(self, settings: Settings) -> None:
        """Issue a certificate of the own authority for the service's names."""
        name = urlsplit(settings.url).hostname or "localhost"
        names = list(dict.fromkeys([name, "localhost", "127.0.0.1"]))
        key, certificate = Authority.read(self.path).server(names)
        write_private(self.path / SERVER_KEY, key)
        write_whole(self.path / SERVER_CERTIFICATE, certificate)

    def change(self, settings: Settings) -> None:
        """Apply the settings of a later start, and renew the certificate if necessary."""
        from quorank.experiments.deployment import check_rounds

        if settings.kind == "coordinator":
            check_rounds(self.experiment, settings.least, settings.report_epsilon)
        if settings.url != self.settings.url:
            self.issue(settings)
        if settings != self.settings:
            self.write_settings(settings)
            self.__dict__["settings"] = settings
        self.renew()

    def renew(self) -> None:
        """Replace a certificate of the own authority that expires soon."""
        if not self.settings.certificate and self.days_left() < RENEW_DAYS:
            self.issue(self.settings)

    def days_left(self) -> float:
        """Return the remaining days of the service's certificate; -inf where it cannot be read."""
        return float("inf") if self.tls is None else days_left(self.tls[0])

    @property
    def _lock(self) -> ProcessLock:
        return ProcessLock(self.path / LOCK)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Hold the folder's lock while its service runs."""
        with self._lock.hold() as acquired:
            if not acquired:
                self.check_stopped(running=True)
            yield

    def check_stopped(self, *, running: bool = False) -> None:
        """Reject a folder whose service runs."""
        number, verb = self.process(), "silo" if self.settings.kind == "silo" else "coordinator"
        which = "" if number is None else f" (process {number})"
        sentence = f"its service runs already{which}; stop it with: quorank {verb} stop {self.path}"
        require(number is None and not running, "coordinator.running", sentence, f"{self.path}")

    def process(self) -> int | None:
        """Return the process that runs this folder's service; None where none does."""
        return self._lock.holder()

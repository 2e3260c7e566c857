"""A coordinator's home folder: its certificates, its secrets, what it runs, and who is invited.

The folder is its owner's alone (0700, secrets 0600) and appears whole or not at all. Two secrets never leave it: the
authority's key, and the one that the coordinator's noise is drawn from and the cohorts' seed is made of. The seed of the
experiment file is not used for those, because whoever knows it could take the noise off the rankers again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from quorank.certificates import CERTIFICATE, Authority, write_private
from quorank.documents import ANYTHING, Table, read_json, shape_of
from quorank.errors import BadInput, require, require_range
from quorank.experiments.client_terms import terms_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file, write_toml
from quorank.federation.asynchronous import check_asynchronous
from quorank.federation.invitation import check_address
from quorank.federation.terms import Terms
from quorank.files import write_whole
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.privacy.mechanisms.mechanism import INCOMPLETE
from quorank.privacy.streams import SECRET_BYTES

FORMAT = 1
SETTINGS, EXPERIMENT, SECRET, SEED = "coordinator.json", "experiment.toml", "executor.secret", "seed"
SERVER_CERTIFICATE, SERVER_KEY = "server.pem", "server.key"
LOCK, STATUS, LOG, RANKER, LEDGER = "lock", "status.json", "coordinator.log", "ranker.json", "ledger.json"
RENEW_DAYS = 30
"""A server certificate with fewer days left is replaced when the coordinator starts."""


@dataclass(frozen=True)
class Settings:
    """What is fixed when the folder is made, and what a later start may change (`address` to `total_epsilon`)."""

    run: str
    n_features: int
    address: str  # host:port under which devices reach the coordinator
    host: str = "127.0.0.1"  # where it listens for them
    port: int = 9092
    inside: int = 9093  # port of the loopback interface where the engine listens
    proxy: bool = True  # whether the proxy that is built in stands before the engine; else one of yours does
    enough: float = 1.0  # share of the cohort whose replies end a round
    least: float = 0.5  # share of the cohort without which a round does not end
    deadline: float = 3600.0  # seconds after which `least` are enough
    pause: float = 60.0  # seconds before a device that had nothing to give is asked again
    asynchronous: float = (
        0.0  # share of a cohort whose replies, however old, end a round; 0 where rounds are synchronous
    )
    total_epsilon: float = (
        0.0  # ε, at the run's δ, that run, reports and rebuildings may reach together; 0: the run's and reports' own
    )
    report_epsilon: float = 0.0  # ε of the figure that devices report with each release; 0: none; fixed with the folder

    def __post_init__(self) -> None:
        check_address(self.address)
        ports = (self.port, self.inside)
        require(
            all(0 < port < 65536 for port in ports), "value.out-of-range", f"a port is from 1 to 65535, got {ports}"
        )
        require(self.port != self.inside, "option.conflict", "the engine needs a port of its own", f"port {self.port}")
        require(self.n_features >= 1, "value.out-of-range", f"a ranker needs at least 1 feature, got {self.n_features}")
        require(0.0 < self.least <= self.enough <= 1.0, "value.out-of-range", "expected 0 < least ≤ enough ≤ 1")
        require_range("total_epsilon", self.total_epsilon, least=0.0)
        require(0.0 <= self.asynchronous <= 1.0, "value.out-of-range", "asynchronous is a share from 0 (off) to 1")
        require(
            self.deadline > 0.0 and self.pause > 0.0, "value.out-of-range", "deadline and pause must be above 0 seconds"
        )


_SETTINGS = Table({"format": ANYTHING}, shape_of(Settings).keys | shape_of(Settings).optional)


@dataclass(frozen=True)
class Home:
    """A coordinator's folder."""

    path: Path

    @classmethod
    def create(cls, path: Path, experiment: Experiment, settings: Settings) -> Home:
        """Make the folder; where it is there already it must be empty."""
        check_experiment(experiment, settings.n_features)
        check_rounds(experiment, settings)
        terms_of(experiment, settings.n_features, 0, settings.run, report_epsilon=settings.report_epsilon)
        files = {SEED: secrets.token_bytes(SECRET_BYTES), EXPERIMENT: write_toml(experiment.tables()).encode()}
        return cls._made(path, settings, files, "coordinator's")

    @classmethod
    def _made(cls, path: Path, settings: Settings, files: Mapping[str, bytes], whose: str) -> Self:
        """A new folder with an authority, a certificate, a secret and these files."""
        target = path.absolute()
        require(target.parent.is_dir(), "folder.missing", f"the directory {target.parent} does not exist", f"{path}")
        free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
        require(
            free, "folder.not-empty", f"this is no {whose} folder, and it is not empty; choose another one", f"{path}"
        )
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        temporary.mkdir(mode=0o700)
        try:
            made = cls(temporary)
            Authority.create().write(temporary)
            for name, content in {SECRET: secrets.token_bytes(32), **files}.items():
                write_private(temporary / name, content)
            made.write_settings(settings)
            made.issue(settings)
            temporary.replace(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return cls(target)

    @classmethod
    def open(cls, path: Path) -> Home:
        """The folder that an earlier start made."""
        home = cls(path.absolute())
        require(
            (home.path / SETTINGS).is_file(),
            "coordinator.missing",
            f"there is no coordinator here; make one with: quorank coordinator start {path} --experiment FILE.toml",
            f"{path}",
        )
        home.settings  # noqa: B018  refused now if it is damaged
        return home

    @cached_property
    def settings(self) -> Settings:
        path = self.path / SETTINGS
        try:
            found = read_json(path, _SETTINGS, advice="; restore it from a copy")
            version = found.pop("format")
            require(
                version == FORMAT,
                "file.version",
                f"of format {version}, and this Quorank reads {FORMAT}; install the newer",
                f"{path}",
            )
            return Settings(**found)
        except TypeError as error:
            raise BadInput(
                "file.damaged", f"damaged ({type(error).__name__}); restore it from a copy", f"{path}"
            ) from None

    def write_settings(self, settings: Settings) -> None:
        text = json.dumps({"format": FORMAT, **asdict(settings)}, indent=1)
        write_private(self.path / SETTINGS, text.encode())

    @cached_property
    def experiment(self) -> Experiment:
        return Experiment.read(read_experiment_file(self.path / EXPERIMENT))

    @property
    def secret(self) -> bytes:
        """Of the coordinator's noise; nobody else knows it."""
        content = (self.path / SEED).read_bytes()
        require(
            len(content) == SECRET_BYTES,
            "file.damaged",
            "damaged, or of an older Quorank; restore it from a copy, or make a new folder",
            f"{self.path / SEED}",
        )
        return content

    @property
    def seed(self) -> int:
        """Of the cohorts; made of the secret, and says nothing of it."""
        made = hashlib.blake2b(b"quorank cohorts", key=self.secret, digest_size=8)
        return int.from_bytes(made.digest(), "little")

    @property
    def authority(self) -> bytes:
        """The certificate (PEM) that devices trust."""
        return (self.path / CERTIFICATE).read_bytes()

    def terms(self, client: int) -> Terms:
        """What one client agrees to."""
        settings = self.settings
        return terms_of(
            self.experiment, settings.n_features, client, settings.run, report_epsilon=settings.report_epsilon
        )

    def issue(self, settings: Settings) -> None:
        """A certificate for the server, of the names under which it is reached from outside and on this machine."""
        name = settings.address.rpartition(":")[0].strip("[]")
        names = list(dict.fromkeys([name, "localhost", "127.0.0.1"]))
        key, certificate = Authority.read(self.path).server(names)
        write_private(self.path / SERVER_KEY, key)
        write_whole(self.path / SERVER_CERTIFICATE, certificate)

    def change(self, settings: Settings) -> None:
        """Take over what a later start asks for, and renew the certificate where it must be."""
        check_rounds(self.experiment, settings)
        if settings.address != self.settings.address or self.days_left() < RENEW_DAYS:
            self.issue(settings)
        if settings != self.settings:
            self.write_settings(settings)
            self.__dict__["settings"] = settings

    def days_left(self) -> float:
        """How long the server's certificate is still good."""
        from cryptography import x509

        try:
            found = x509.load_pem_x509_certificate((self.path / SERVER_CERTIFICATE).read_bytes())
            return (found.not_valid_after_utc.timestamp() - time.time()) / 86400.0
        except Exception:  # the library has errors of its own for what is no certificate
            return 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Held while the coordinator of this folder runs; the file says which process that is."""
        descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                number = self.process()
                raise BadInput(
                    "coordinator.running",
                    f"its coordinator runs already"
                    f"{'' if number is None else f' (process {number})'}; stop it with: "
                    f"quorank coordinator stop {self.path}",
                    f"{self.path}",
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def process(self) -> int | None:
        """The process that runs this folder's coordinator; None where none does."""
        try:
            descriptor = os.open(self.path / LOCK, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            return int(text) if text.isdecimal() else None
        else:
            return None
        finally:
            os.close(descriptor)

    def last_status(self) -> dict[str, Any]:
        """What the coordinator wrote down last; empty before its first start."""
        try:
            found: dict[str, Any] = read_json(self.path / STATUS)
        except BadInput:
            return {}
        return found


def check_experiment(experiment: Experiment, n_features: int = 46) -> None:
    """Refuse what real devices cannot do, and a budget within which nothing can be learned, before anything is made."""
    require(
        experiment.federation.attack is None,
        "option.conflict",
        "this experiment simulates attackers; leave out [attack] for real devices",
        "attack",
    )
    mechanism = terms_of(experiment, n_features, 0).mechanism
    require(
        not isinstance(mechanism, IntegerSums) or mechanism.variance == 0.0 or mechanism.noise_by == "clients",
        "option.conflict",
        'the noise of a secure sum is drawn by the devices here; set noise_by = "clients"',
        "privacy",
    )


def check_rounds(experiment: Experiment, settings: Settings) -> None:
    """Refuse asynchronous rounds where they cannot be, rounds that end before noise in shares is complete, and reports
    that would tell how many were in a round where that must stay unknown.
    """
    privacy, participation = experiment.federation.privacy, experiment.federation.participation
    told = "a mean of reports tells how many devices were in a round, and this ε counts on nobody knowing; use sampled"
    counts = experiment.federation.counts_on_secret_cohorts and not participation.fixed_size
    require(settings.report_epsilon == 0.0 or not counts, "option.conflict", f"{told}, or no reports", "report_epsilon")
    sentence = f"{INCOMPLETE.format(privacy.kind)}; let rounds wait for all of them with --enough 1 --least 1"
    require(settings.least == 1.0 or not privacy.needs_equal_shares, "option.conflict", sentence, "least")
    if settings.asynchronous > 0.0:
        check_asynchronous(experiment.federation, terms_of(experiment, settings.n_features, 0).mechanism)


def features_of(experiment: Experiment) -> int:
    """The features of the experiment's own data, where nobody says how many the devices have."""
    from quorank.experiments.runner import collection_of

    return collection_of(experiment.data).train.n_features

"""Noise of a service is never used twice: not after a restore, in a copy of the folder, or in a rebuilding."""

from __future__ import annotations

import io
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from devices import killed, shoot
from refusals import refused
from scipy.stats import chi2
from signed_calls import folder_of

from quorank.federation.coordinator import Coordinator
from quorank.federation.reply import Reply
from quorank.federation.unlearning.rebuilding import rebuilding_of
from quorank.kernels.arrays import Doubles
from quorank.privacy.ledger import read_ledger, recount
from quorank.service.dashboard.event_log import EventLog
from quorank.service.holders.devices import Service, coordinator_of
from quorank.service.holders.rounds import Holder
from quorank.service.home import Home
from quorank.service.store.backup import backup, restore

CLIENTS, FEATURES, CLIP, Z = 4, 100, 0.05, 0.5
GAUSSIAN = {"kind": "gaussian", "noise_multiplier": Z, "clip": CLIP}
STEP = {"kind": "add", "step": 1.0}


def home_of(path: Path, **federation: object) -> Home:
    return folder_of(path, CLIENTS, 20, GAUSSIAN, features=FEATURES, federation={"server": STEP, **federation})


def held(home: Home) -> Coordinator:
    """The coordinator of a folder, as its holder makes it."""
    with closing(home.store()) as store:
        assert store.hold() is not None
        return coordinator_of(home, Holder(store, home.key))


def published(home: Home, longest: int, *, dies: bool = False) -> Doubles:
    """The ranker after a round in which this client alone has learned anything; or a death before it is stored."""
    with closing(home.store()) as store:
        assert store.hold() is not None
        coordinator = coordinator_of(home, Holder(store, home.key))
        task = coordinator.plan()
        unit = coordinator.mechanism.unit_of(coordinator.state.private)
        for client in range(CLIENTS):
            value = CLIP / np.sqrt(FEATURES) if client == longest else 0.0
            release = np.full(FEATURES, np.floor(value * unit))
            verdict = coordinator.receive(Reply(coordinator.run, task.round, client, release, 3, True, (0.0, 0.0, 0.0)))
            assert verdict.accepted, verdict
        if dies:
            coordinator.storage.save = lambda saved: shoot()  # type: ignore[union-attr,method-assign]
        coordinator.advance()
        return coordinator.ranker * CLIENTS  # sums of updates, with their noise


def check_fresh(difference: Doubles) -> None:
    """Numbers of two noisy sums have independent noise: (n₁ − n₂)²/2σ² adds up to χ² of as many degrees of freedom."""
    sigma = Z * CLIP
    low, high = chi2.interval(1.0 - 1e-6, FEATURES)
    assert low < np.sum(difference**2) / (2.0 * sigma**2) < high


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A backup after the first round."""
    home = home_of(tmp_path / "home")
    published(home, 0)
    backup(home.path, "", tmp_path / "saved")
    return tmp_path / "saved"


def test_two_restores_of_one_backup_have_other_noise(saved: Path, tmp_path: Path) -> None:
    rankers = []
    for client, name in ((0, "one"), (0, "two"), (-1, "three")):
        restore(saved, tmp_path / name, skip=0)
        rankers.append(published(Home.open(tmp_path / name), client))
    check_fresh(rankers[0] - rankers[1])
    check_fresh(rankers[0] - rankers[2] - CLIP / np.sqrt(FEATURES))


def test_a_holder_that_is_killed_is_followed_with_the_same_noise(saved: Path, tmp_path: Path) -> None:
    restore(saved, tmp_path / "one", skip=0)
    one = Home.open(tmp_path / "one")
    held(one)
    shutil.copytree(one.path, tmp_path / "two")
    killed(lambda: published(one, 0, dies=True))
    assert published(one, 0).tobytes() == published(Home.open(tmp_path / "two"), 0).tobytes()


def test_copies_of_a_folder_have_other_noise_for_other_updates(saved: Path, tmp_path: Path) -> None:
    """A disk that is set back is no restore: its noise is the same for the same sum, and for no other."""
    restore(saved, tmp_path / "one", skip=0)
    held(Home.open(tmp_path / "one"))
    for name in ("two", "three"):
        shutil.copytree(tmp_path / "one", tmp_path / name)
    first, same, other = (
        published(Home.open(tmp_path / name), n) for name, n in (("one", 0), ("two", 1), ("three", -1))
    )
    assert first.tobytes() == same.tobytes(), "client 0 and client 1 have sent the same: so is the sum"
    check_fresh(first - other - CLIP / np.sqrt(FEATURES))


def test_a_rebuilding_after_a_restore_has_a_seed_of_its_own(saved: Path, tmp_path: Path) -> None:
    seeds = []
    for name in ("one", "two"):
        restore(saved, tmp_path / name, skip=0)
        coordinator = held(Home.open(tmp_path / name))
        rebuilding = rebuilding_of(coordinator, np.zeros(FEATURES), 5, "run 1/10", (2,), 10.0, None)
        seeds += [coordinator.seed, rebuilding.seed, rebuilding.mechanism.seed]  # type: ignore[attr-defined]
    assert all(isinstance(seed, bytes) and len(seed) == 32 for seed in seeds)
    assert seeds[1] == seeds[2] and len({*seeds}) == 4


def test_cohorts_depend_on_every_byte_of_the_secret_and_on_the_restore(tmp_path: Path) -> None:
    home = home_of(tmp_path / "home", participation={"kind": "sampled", "cohort": 2})
    first, again = held(home), held(home)
    cohorts = [[one.members(round_) for round_ in range(20)] for one in (first, again)]
    assert cohorts[0] == cohorts[1]
    backup(home.path, "", tmp_path / "saved")
    restore(tmp_path / "saved", tmp_path / "new", skip=0)
    assert [held(Home.open(tmp_path / "new")).members(round_) for round_ in range(20)] != cohorts[0]
    secret = home.path / "seed"
    content = secret.read_bytes()
    for place in (0, 31):
        changed = bytearray(content)
        changed[place] ^= 1
        secret.write_bytes(changed)
        assert [held(home).members(round_) for round_ in range(20)] != cohorts[0]


@pytest.mark.parametrize("done", [0, 1])
def test_repeated_rounds_are_counted(done: int, tmp_path: Path) -> None:
    """Two rounds were published after the backup: the restored ledger counts them, although it has not seen them."""
    home = home_of(tmp_path / "home")
    for _ in range(done):
        published(home, 0)
    backup(home.path, "", tmp_path / "saved")
    for client in (0, 1):
        published(home, client)
    with refused("restore.rounds-lost", "--skip"):
        restore(tmp_path / "saved", tmp_path / "new", skip=1)
    with refused("value.out-of-range", "--skip"):
        restore(tmp_path / "saved", tmp_path / "new", skip=21 - done)
    restore(tmp_path / "saved", tmp_path / "new", skip=2)
    new = Home.open(tmp_path / "new")
    assert held(new).state.round == done + 2
    published(new, 0)
    with closing(new.store()) as store:
        assert store.hold() is not None
        Service(new, store, EventLog(io.StringIO())).begin()
    book = read_ledger(new.path)
    mechanism = held(new).mechanism
    assert book["setting"]["rounds"] == done + 3 and [one["last_round"] for one in book["releases"]] == [done + 3]
    assert recount(book) == book["privacy"]["epsilon"] == pytest.approx(mechanism.statement(done + 3)["epsilon"])

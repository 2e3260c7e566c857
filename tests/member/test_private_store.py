"""The private file: on disk or never there, one process at work on it, nothing left after an erasure."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from command_line import python
from devices import device_of, killed, random_theta, search, shoot, simulator_of, task_of, user_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from quorank.errors import BadInput
from quorank.learning import OnlineRanker
from quorank.member.private_store import FILE, LOCK, Interaction, PrivateStore, StoredRanker, StoredRelease, shown_from
from quorank.rankers import MLP, Linear
from quorank.silos.session.streams import SiloStore


def filled(tiny_collection, folder, times=3):
    simulator = simulator_of(tiny_collection)
    device = device_of(simulator, folder)
    device.answer(task_of(simulator, 0, random_theta(simulator)))
    search(device, user_of(simulator), times)
    return simulator, device


@settings(max_examples=25)
@given(
    documents=st.integers(1, 30), features=st.integers(1, 20), hidden=st.sampled_from([0, 3]), seed=st.integers(0, 999)
)
def test_a_list_comes_back_to_the_bit(documents, features, hidden, seed) -> None:
    """Also where a score is an outlier and the list was drawn with rescaled weights."""
    random = np.random.default_rng(seed)
    ranker = MLP(hidden=hidden) if hidden else Linear()
    theta = random.normal(size=ranker.size(features)) * 10.0 ** random.integers(-2, 4)
    online, twin = (OnlineRanker(theta, features, ranker, seed=seed) for _ in range(2))
    shown = online.rank(random.normal(size=(documents, features)))
    twin.rank(np.zeros((1, features)))
    clicks = random.random(len(shown.order)) < 0.5
    interaction = Interaction(1.0, "run", 0, shown, clicks)
    n, rows, order, clicked, circumstances = interaction.blobs(features)
    again = shown_from(rows, n, order, circumstances, 0)
    assert np.array_equal(np.frombuffer(clicked, dtype=np.uint8), clicks)
    online.learn(shown, clicks)
    twin.learn(again, clicks)
    assert online.update.tobytes() == twin.update.tobytes()


def test_the_file_is_its_owner_s_alone_and_survives_a_kill(tiny_collection, tmp_path) -> None:
    before = os.umask(0)
    try:
        simulator, device = filled(tiny_collection, tmp_path / "device")
    finally:
        os.umask(before)
    for path in (tmp_path / "device").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((tmp_path / "device").stat().st_mode) == 0o700
    database = device.store.database
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("PRAGMA synchronous").fetchone() == (2,)
    device.store.close()

    def dies() -> None:
        mine = device_of(simulator, tmp_path / "device")
        user_of(simulator)(mine)
        with mine.store.transaction():
            mine.store.set_consent(False, 3.0)
            shoot()

    killed(dies)
    store = PrivateStore(tmp_path / "device")
    assert store.waiting() == 4  # what was recorded is there
    assert store.consent  # what was not committed never was


def test_facts_rankers_and_offsets_come_back(tmp_path) -> None:
    theta, offset = np.random.default_rng(0).normal(size=(2, 5))
    with PrivateStore(tmp_path) as store:
        assert store.ranker is store.personal is store.fact("x") is None
        assert store.releases() == store.consents() == []
        store.set_fact("x", b"1")
        store.set_fact("x", b"2")
        store.set_ranker(StoredRanker("née", 7, theta))
        store.set_personal(offset)
        with pytest.raises(KeyError), store.transaction():
            store.set_fact("x", b"3")
            raise KeyError
    with PrivateStore(tmp_path) as store:
        assert store.fact("x") == b"2"
        assert (store.ranker.run, store.ranker.round) == ("née", 7)
        assert store.ranker.theta.tobytes() == theta.tobytes()
        assert store.personal.tobytes() == offset.tobytes()


def test_a_second_release_of_a_round_cannot_be_stored(tmp_path) -> None:
    with PrivateStore(tmp_path) as store:
        entry = StoredRelease("run", 1, 0.0, 4, 9, {}, b"reply")
        store.add_release(entry)
        with pytest.raises(OSError):
            store.add_release(entry)
        assert len(store.releases()) == 1


def test_one_process_plays_a_device(tmp_path) -> None:
    with PrivateStore(tmp_path) as store:
        with pytest.raises(BadInput, match="another process runs this device"):
            PrivateStore(tmp_path)
        code = "import sys; from quorank.member.private_store import PrivateStore; PrivateStore(sys.argv[1])"
        done = python(tmp_path, "-c", code, tmp_path)
        assert done.code == 1 and "another process runs this device; stop it first" in done.err
        with PrivateStore(tmp_path, owner=False) as reader:
            reader.set_consent(True, 1.0)
        assert store.consent
    PrivateStore(tmp_path).close()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_in_which_others_may_have_planted_files_is_refused(mode, tmp_path) -> None:
    folder = tmp_path / "device"
    PrivateStore(folder).close()
    folder.chmod(mode)
    for owner in (True, False):
        with refused("folder.not-private", f"{folder}"):
            PrivateStore(folder, owner=owner)
    assert stat.S_IMODE(folder.stat().st_mode) == mode, "refused the second time too"
    for path in folder.iterdir():
        path.unlink()
    PrivateStore(folder).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", [FILE, LOCK, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal"])
def test_a_planted_link_or_pipe_is_refused_and_its_target_stays(name, tmp_path) -> None:
    def plant_link(path: Path) -> None:
        path.symlink_to(tmp_path / "victim")

    folder, victim = tmp_path / "device", tmp_path / "victim"
    folder.mkdir(mode=0o700)
    for plant, content in ((plant_link, None), (plant_link, b""), (plant_link, b"letter"), (os.mkfifo, b"letter")):
        if content is not None:
            victim.write_bytes(content)
        plant(folder / name)
        with refused("file.not-regular", f"{folder / name}"):
            PrivateStore(folder)
        assert (victim.read_bytes() if victim.exists() else None) == content
        (folder / name).unlink()
    PrivateStore(folder).close()


def test_a_file_that_is_damaged_or_foreign_is_refused(tiny_collection, tmp_path) -> None:
    _, device = filled(tiny_collection, tmp_path / "a")
    device.store.close()
    good = (tmp_path / "a" / FILE).read_bytes()
    for name, content, words in (
        ("text", b"hello" * 300, "is damaged"),
        ("short", good[: len(good) // 2 // 4096 * 4096], "is damaged"),
        ("zeros", good[:4096] + bytes(len(good) - 4096), "is damaged"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_bytes(content)
        with pytest.raises(BadInput, match=words) as refusal:
            PrivateStore(tmp_path / name)
        assert str(tmp_path / name / FILE) in str(refusal.value)
        assert (tmp_path / name / FILE).read_bytes() == content
    (tmp_path / "foreign").mkdir()
    database = sqlite3.connect(tmp_path / "foreign" / FILE)
    database.execute("CREATE TABLE recipes (name)")
    database.close()
    with pytest.raises(BadInput, match="not a device's file"):
        PrivateStore(tmp_path / "foreign")
    with pytest.raises(BadInput, match="no device here"):
        PrivateStore(tmp_path / "empty", owner=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be created"):
        PrivateStore(tmp_path / "file")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 3000))
def test_a_bit_that_fell_over_in_a_list_is_noticed(place, tiny_collection, tmp_path_factory) -> None:
    """SQLite's own check sees its pages, not what is in them."""
    store = _one_store(tiny_collection, tmp_path_factory)
    (name, features, clicks), *_ = store.rows("SELECT id, features, clicks FROM interactions")
    changed = bytearray(features)
    changed[place % len(changed)] ^= 1
    store.rows("UPDATE interactions SET features = ? WHERE id = ?", bytes(changed), name)
    with pytest.raises(BadInput, match=f"interaction {name} is damaged"):
        store.interactions(0, 4)
    store.rows("UPDATE interactions SET features = ? WHERE id = ?", features, name)
    assert len(store.interactions(0, 4)) == 3
    assert clicks


def _one_store(collection, factory, made=[]):  # noqa: B006  one file for all examples
    if not made:
        made.append(filled(collection, factory.mktemp("bits"))[1].store)
    return made[0]


def test_used_interactions_are_forgotten_beyond_a_number(tiny_collection, tmp_path) -> None:
    _, device = filled(tiny_collection, tmp_path, 8)
    store = device.store
    names = [name for name, _ in store.interactions(0, 8)]
    store.add_release(StoredRelease("run", 1, 0.0, 4, 9, {}), names[:6])
    store.trim(2)
    assert [row[0] for row in store.rows("SELECT id FROM interactions ORDER BY id")] == names[4:]
    assert store.waiting() == 2


def test_an_erasure_leaves_nothing(tiny_collection, tmp_path) -> None:
    simulator, device = filled(tiny_collection, tmp_path)
    device.answer(task_of(simulator, 0, random_theta(simulator)))
    store = device.store
    search(device, user_of(simulator), 2)
    rows = [bytes(row[0]) for row in store.rows("SELECT features FROM interactions")]
    assert any(piece[:40] in path.read_bytes() for piece in rows for path in tmp_path.iterdir())
    held = (tmp_path / FILE).open("rb")  # whoever still has the file open finds zeros in it
    logged = (tmp_path / f"{FILE}-wal").open("rb")
    (tmp_path / "other.txt").write_text("mine")
    erased = store.erase()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.txt"]
    assert set(erased.files) == {FILE, LOCK}
    assert erased.bytes > sum(map(len, rows))
    assert erased.traces == len({row[:44] for row in rows if any(row[:44])}) + 1  # first documents, and the reply
    assert erased.searched == 1
    with held, logged:
        assert not any(held.read())
        assert not any(logged.read())


def test_an_erasure_names_a_copy_that_it_finds(tiny_collection, tmp_path) -> None:
    _, device = filled(tiny_collection, tmp_path)
    content = device.store.rows("SELECT features FROM interactions")[0][0]
    (tmp_path / "copy.bin").write_bytes(b"x" + content)
    with pytest.raises(BadInput, match=r"copy\.bin: this file still holds private data"):
        device.store.erase()
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("value", [5, -1, 2**40, 1.5, "text"])
def test_a_fact_of_another_type_is_refused(value, tmp_path) -> None:
    """A number was taken for so many zero bytes."""
    for folder, make, name in (
        (tmp_path / "device", lambda folder: PrivateStore(folder), "device"),
        (tmp_path / "party", lambda folder: SiloStore(folder, "party"), "party"),
    ):
        folder.mkdir()
        make(folder).close()
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as database:
            database.execute("INSERT INTO facts VALUES ('personal', ?)", (value,))
            database.commit()
        store = make(folder)
        try:
            with refused("file.damaged"):
                store.fact("personal")
        finally:
            store.close()


@pytest.mark.parametrize(
    ("mark", "code"), [("application_id = 7", "file.other-kind"), ("user_version = 2", "file.newer")]
)
def test_a_file_of_another_kind_or_a_newer_one_is_refused(mark, code, tmp_path) -> None:
    for make, name in ((lambda: PrivateStore(tmp_path), "device"), (lambda: SiloStore(tmp_path, "party"), "party")):
        make().close()
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as database:
            database.execute(f"PRAGMA {mark}")
        for _ in range(2):  # it was let go of
            with refused(code, str(tmp_path / f"{name}.sqlite")):
                make()

"""Files of a run in every state: readers give what was written, or one sentence; a resumed run the bits of a whole one."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from damaged_files import damaged_archives, damaged_bytes, damaged_json
from made_up_runs import reseal
from quick_runs import run_quickly, stopped_run
from refusals import refused
from small_runs import all_files_of, experiment

from quorank.errors import BadInput
from quorank.experiments import run_directory as storage
from quorank.experiments import runner
from quorank.experiments.kept_updates import KeptUpdates, read_kept
from quorank.experiments.progress import load_checkpoint
from quorank.experiments.run_directory import load_run
from quorank.experiments.unlearning.commit import is_pending, left_before
from quorank.experiments.unlearning.request import Unlearning
from quorank.federation.rounds import State
from quorank.privacy.ledger import read_ledger
from quorank.rankers.ranker_file import read_ranker
from quorank.reports.comparison import compare_table, comparison_page, group_runs
from quorank.reports.report import report_page

PARTS = ("federation.clients=3", "federation.rounds=5", "federation.keep_every=2", "evaluation.every=2")
PRIVATE = ('privacy={ kind = "gaussian", epsilon = 50.0 }',)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, an interrupted one, and a private one, to be copied."""
    folder = tmp_path_factory.mktemp("made")
    run_quickly(experiment(*PARTS), folder / "finished", threads=1)
    run_quickly(experiment(*PARTS, *PRIVATE), folder / "private", threads=1)
    stopped_run(experiment(*PARTS), folder / "interrupted", 3, threads=1)
    return folder


@pytest.fixture
def finished(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "finished", tmp_path / "run")


@pytest.fixture
def interrupted(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "interrupted", tmp_path / "run")


def report(folder: Path) -> None:
    page = report_page(load_run(folder))
    assert page.startswith("<!")


def compare(folder: Path) -> None:
    groups = group_runs([load_run(folder)])
    compare_table(groups).as_dict()
    comparison_page(groups)


def unlearned(folder: Path) -> None:
    is_pending(folder, [1])
    left_before(folder)


READERS: dict[str, tuple[Callable[[Path], object], ...]] = {
    "run.toml": (report, compare, storage.read_experiment),
    "summary.json": (report, compare),
    "ledger.json": (report, read_ledger),
    "history.parquet": (report, compare),
    "ranker.json": (read_ranker,),
    "manifest.json": (report, read_ranker, lambda folder: read_kept(folder, 0, 46)),
    "clients/1.npz": (lambda folder: read_kept(folder, 1, 46),),
}


def must_read(readers: tuple[Callable[[Path], object], ...], folder: Path, what: str) -> int:
    """Call all readers; return how many refused. Anything but a sentence of one line fails."""
    count = 0
    for reader in readers:
        try:
            reader(folder)
        except BadInput as error:
            count += 1
            text = str(error)
            assert text.splitlines() == [text] and len(text) < 700 and error.where, what
        except Exception as error:
            pytest.fail(f"{what}: {reader} raised {type(error).__name__}: {error}")
    return count


@pytest.mark.parametrize("name", READERS)
def test_a_changed_file_is_refused_or_read(finished: Path, name: str) -> None:
    path, readers = finished / name, READERS[name]
    assert must_read(readers, finished, "as written") == 0
    content = (finished / name).read_bytes()
    sealed = name != "manifest.json" and read_ledger not in readers
    for number, changed in enumerate(damaged_bytes(content)):
        path.write_bytes(changed)
        count = must_read(readers, finished, f"{name} {number}")
        checked = [reader for reader in readers if reader is not storage.read_experiment]
        assert not sealed or count >= len(checked), f"{name} {number} is not what was written"
    path.unlink()
    assert must_read(readers, finished, f"{name} missing") >= 1
    path.mkdir()
    assert must_read(readers, finished, f"{name} a directory") >= 1
    path.rmdir()
    for other in ("ranker.json", "history.parquet", "clients/0.npz", "run.toml"):
        if other != name:
            shutil.copy(finished / other, path)
            assert must_read(readers, finished, f"{name} is {other}") >= 1
    os.mkfifo(pipe := path.with_name("pipe"))
    pipe.replace(path)
    assert must_read(readers, finished, f"{name} a pipe") >= 1


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("finished", "summary.json"),
        ("finished", "ranker.json"),
        pytest.param("private", "ledger.json", marks=pytest.mark.nightly),
    ],
)
def test_json_of_other_types_is_refused_or_read(made: Path, tmp_path: Path, run: str, name: str) -> None:
    """With a manifest of the changed file."""
    folder = shutil.copytree(made / run, tmp_path / "run")
    path, readers = folder / name, (load_run, read_ledger) if name == "ledger.json" else READERS[name][:1]
    for changed in damaged_json(json.loads(path.read_text())):
        path.write_bytes(changed)
        reseal(folder)
        must_read(readers, folder, changed.decode()[:300])


def resumed(folder: Path) -> dict[str, bytes]:
    run_quickly(experiment(*PARTS), folder, threads=1, resume=True)
    return all_files_of(folder)


def test_exchanged_or_changed_kept_updates_are_not_resumed(interrupted: Path) -> None:
    """Once silently resumed to other bits."""
    one, two = (interrupted / "clients" / f"{client}.npz" for client in (1, 2))
    contents = one.read_bytes(), two.read_bytes()
    one.write_bytes(contents[1])
    with refused("kept-updates.damaged", str(one)):
        resumed(interrupted)
    one.write_bytes(contents[0])
    with np.load(two) as saved:
        arrays = dict(saved)
    arrays["updates"][0, 3] += 0.5
    np.savez(two, **arrays)
    with refused("kept-updates.damaged", str(two)):
        resumed(interrupted)


def test_exchanged_kept_updates_are_not_unlearned_by(finished: Path) -> None:
    one, two = (finished / "clients" / f"{client}.npz" for client in (1, 2))
    shutil.copy(one, two)
    with refused("kept-updates.damaged", str(two)):
        Unlearning(finished, (0,), interval=2, threads=1, method="published").metrics()


def test_no_archive_is_resumed_that_is_not_what_was_written(interrupted: Path) -> None:
    chosen = experiment(*PARTS)
    start: State = runner.Runner(chosen, threads=1).simulator.initial()
    path = interrupted / "checkpoint.npz"
    content = path.read_bytes()
    good = load_checkpoint(interrupted, chosen, start)
    assert good is not None
    for changed in (*damaged_bytes(content, 64), *damaged_archives(content)):
        path.write_bytes(changed)
        try:
            found = load_checkpoint(interrupted, chosen, start)
        except BadInput as error:
            assert len(str(error).splitlines()) == 1
        else:  # the words of an earlier version, say, in which nothing that counts has changed
            assert found is not None and found.state.theta.tobytes() == good.state.theta.tobytes()
            assert found.state.round == good.state.round and found.progress.interactions == good.progress.interactions
            for name, values in good.progress.values.items():
                np.testing.assert_array_equal(found.progress.values[name], values)
    path.unlink()
    path.mkdir()
    with refused("checkpoint.damaged", str(path)):
        load_checkpoint(interrupted, chosen, start)
    path.rmdir()
    path.write_bytes(content)
    file = interrupted / "clients" / "0.npz"
    for changed in (*damaged_bytes(file.read_bytes(), 32), *damaged_archives(file.read_bytes())):
        file.write_bytes(changed)
        with pytest.raises(BadInput):
            KeptUpdates(2, interrupted).restore(3, 3, 46, 5, good.kept)


def test_private_files_are_their_owners_alone(made: Path) -> None:
    old = os.umask(0)
    os.umask(old)
    for folder in (made / "interrupted", made / "finished"):
        assert stat.S_IMODE((folder / "clients").stat().st_mode) == 0o700
        for path in (folder / "clients").iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((made / "interrupted" / "checkpoint.npz").stat().st_mode) == 0o600
    assert stat.S_IMODE((made / "finished" / "ranker.json").stat().st_mode) == 0o666 & ~old


def test_what_a_killed_process_left_is_removed_at_the_next_start(made: Path, interrupted: Path, tmp_path: Path) -> None:
    left = [
        interrupted / ".checkpoint.npz.4194301.0123abcd.tmp",
        interrupted / "clients" / ".1.npz.4194301.0123abcd.tmp",
        interrupted / f".ranker.json.{os.getpid()}.0123abcd.tmp",  # of a process that had this one's number
    ]
    other = interrupted / ".mine.tmp"
    for path in (*left, other):
        path.write_bytes(b"half")
    assert resumed(interrupted) == all_files_of(made / "finished")
    assert not any(path.exists() for path in left) and other.exists()
    for path in left:
        path.write_bytes(b"half")
    run_quickly(experiment(*PARTS), interrupted, threads=1, overwrite=True)
    assert not any(path.exists() for path in left) and other.exists()

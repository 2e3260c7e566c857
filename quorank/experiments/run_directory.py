"""Directory of a run: names of its files, creation, cleaning and sealing.

Files are written atomically. `manifest.json` holds the digests of all files that are read back; `summary.json` comes last
and marks a finished run (`finished_run` reads it back). Leftovers of killed processes are removed when a run is started,
resumed or changed. Nothing here loads a federation or compiles anything, so that commands about finished
runs start at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quorank.errors import BadInput, require
from quorank.experiments.experiment_file import read_experiment_file, write_toml
from quorank.files.atomic import read_whole, remove_leftovers, sha256, write_whole
from quorank.files.manifest import MANIFEST, write_manifest

if TYPE_CHECKING:
    from quorank.experiments.experiment import Experiment

CHECKPOINT, CONFIG, SUMMARY, RANKER = "checkpoint.npz", "run.toml", "summary.json", "ranker.json"
HISTORY, LEDGER, REPORT = "history.parquet", "ledger.json", "report.html"
ROUNDS = "rounds.parquet"
"""Online metrics of every round; `history.parquet` has rows of evaluated rounds only."""
UNLEARNED = "unlearned.json"
CARRIED = "carried.bin"
"""Updates that clients on a network carry into the next round, while the run lasts (`engines.carried_updates`)."""
GRID_INDEX, GRID_FILE = "grid.json", "grid.toml"
OUTPUTS = (SUMMARY, MANIFEST, RANKER, HISTORY, ROUNDS, LEDGER, REPORT, CHECKPOINT, CONFIG, UNLEARNED)
REBUILT = ("unlearned/ranker.json", "unlearned/unlearning.json")
SEALED = (CONFIG, RANKER, HISTORY, ROUNDS, LEDGER, SUMMARY, UNLEARNED)
"""Files whose digests the manifest holds, beside those of kept updates; the report is made again from them."""
CLIENTS = "clients"
"""Directory of the updates that clients keep for unlearning, one file each (`kept_updates`)."""


def new_folder(stem: str) -> Path:
    """Return runs/STEM, or the first runs/STEM-2, -3 … that is free."""
    base = Path("runs")
    names = (stem if i == 1 else f"{stem}-{i}" for i in range(1, 1_000_000))
    return next(base / name for name in names if not (base / name).exists())


def is_finished(folder: Path) -> bool:
    """Return whether the directory holds a run that came to its end."""
    return (folder / SUMMARY).is_file()


def check_new(folder: Path, *, overwrite: bool = False) -> None:
    """Refuse a directory that already holds a run, unless it may be overwritten."""
    is_file = folder.exists() and not folder.is_dir()
    require(not is_file, "folder.is-file", "this is a file; expected a directory for the run", str(folder))
    found = [name for name in (*OUTPUTS, GRID_INDEX, GRID_FILE) if (folder / name).exists()]
    choices = f"choose another --out, continue it with --resume {folder}, or replace it with --overwrite"
    if found and not overwrite:
        raise BadInput("run.already-there", f"there is a run already ({found[0]}); {choices}", str(folder))


def open_new(folder: Path, experiment: Experiment) -> None:
    """Create the directory of a run, delete files of an earlier run, and write `run.toml`."""
    make_folder(folder)
    clear(folder)
    write_whole(folder / CONFIG, config_bytes(experiment))


def config_bytes(experiment: Experiment) -> bytes:
    """Encode `run.toml`."""
    return write_toml(experiment.tables()).encode()


def tidy(folder: Path) -> None:
    """Remove leftovers of killed processes."""
    remove_leftovers(folder, folder / CLIENTS, folder / Path(REBUILT[0]).parent)
    (folder / CARRIED).unlink(missing_ok=True)  # the checkpoint holds it too
    if is_finished(folder):
        (folder / CHECKPOINT).unlink(missing_ok=True)  # of a run that was killed behind its last file


def seal(folder: Path, changed: Iterable[str], known: Mapping[str, str]) -> None:
    """Write the manifest of a finished run again, with new digests of the changed files and `known` ones of the others."""
    names = [*(name for name in SEALED if (folder / name).is_file())]
    names += [kept_name(client) for client in clients_with_kept(folder)]
    added = set(changed) & set(names)
    old = {name: known[name] for name in names if name in known and name not in added}
    write_manifest(folder, old | {name: sha256(read_whole(folder / name, 1 << 31)) for name in added})


def make_folder(folder: Path) -> None:
    """Make a folder and its parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        why = getattr(error, "strerror", None) or error
        raise BadInput("folder.unwritable", f"cannot be created ({why})", str(folder)) from None


def clear(folder: Path) -> None:
    """Delete the files of an earlier run or grid, and nothing else."""
    tidy(folder)
    names = (*OUTPUTS, *REBUILT, GRID_INDEX, GRID_FILE)
    kept = [kept_file(folder, client) for client in clients_with_kept(folder)]
    for path in (*(folder / name for name in names), *kept):
        if path.is_dir() and not path.is_symlink():
            raise BadInput("file.is-a-directory", "this is a directory, and no file of a run; remove it", str(path))
        path.unlink(missing_ok=True)
    for below in (folder / Path(REBUILT[0]).parent, folder / CLIENTS):
        if below.is_dir() and not any(below.iterdir()):
            below.rmdir()


def remove(folder: Path) -> None:
    """Delete a failed run, and its directory if nothing else is in it."""
    clear(folder)
    if not any(folder.iterdir()):
        folder.rmdir()


def kept_file(folder: Path, client: int) -> Path:
    """Return the path of the updates that a client keeps for unlearning."""
    return folder / kept_name(client)


def kept_name(client: int) -> str:
    """Return the name of a client's kept updates in the directory of a run."""
    return f"{CLIENTS}/{client}.npz"


def clients_with_kept(folder: Path) -> list[int]:
    """Return the clients that have a file of kept updates in this run, in order."""
    found = (folder / CLIENTS).glob("*.npz") if (folder / CLIENTS).is_dir() else ()
    named = (path.stem for path in found)
    return sorted(int(stem) for stem in named if stem.isascii() and stem.isdecimal() and stem == str(int(stem[:20])))


def read_experiment(folder: Path) -> Experiment:
    """Read the experiment of an existing run."""
    from quorank.experiments.experiment import Experiment

    expected = f"no run to resume here; expected a directory with {CONFIG}"
    require((folder / CONFIG).is_file(), "run.missing", expected, str(folder))
    return Experiment.read(read_experiment_file(folder / CONFIG))


def damaged(path: Path, what: str) -> BadInput:
    """Return the error about a file that is not what Quorank wrote."""
    return BadInput("file.damaged", f"damaged: {what}", str(path))

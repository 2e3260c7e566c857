"""Kill test: commands are killed (SIGKILL) at random moments, started again, and must end as an unbroken one does.

    python benchmarks/pull_the_plug.py --kills 500
    python benchmarks/pull_the_plug.py --kills 50 --job unlearn --seed 7
    python benchmarks/pull_the_plug.py --kills 50 --full-disk

A journey is a command that is killed one to three times and then runs to its end. Half of the kills come at a moment of
the clock, half right before a file is opened, renamed, removed or a folder is made: those are the moments that matter, and
they are the same in every run with the same seed. What a person would type after a cut is tried: `run --resume DIR`, where
that is refused `run FILE --overwrite`, and the same command again for `unlearn` and `data import`.

In the end every result is compared byte by byte with the unbroken command's (ranker.json, history.parquet, ledger.json,
run.toml, kept updates, the library and the cache of an import; summary.json and unlearning.json without times), and every
file that the unbroken command does not leave is counted. With --full-disk the cut is a disk that takes no more bytes (a
limit on the size of files), and the command has to say so in one sentence.

A command runs in a process that is forked from one that has everything imported and compiled: a kill costs a tenth of a
second instead of the seconds of a start. Runs write a checkpoint after every round.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from quorank.cli import main as command_line
from quorank.data.logs.csv_table import write_csv_log
from quorank.data.logs.generated import generated_log
from quorank.experiments import runner

EXPERIMENT = """\
seed = 5

[data]
source = "synthetic:mq2007"
queries = 40

[federation]
clients = 6
rounds = 8
keep_every = {keep}

[evaluation]
every = 2
{more}
"""
PRIVATE = '\n[privacy]\nkind = "gaussian"\nepsilon = 100.0\n'
GRID = "\n[grid]\nseed = [1, 2]\nfederation.rounds = [3, 4]\n"
TIMES = ("seconds", "interactions_per_second", "erased", "files_checked")
"""What a command that was cut may say otherwise: times, and which files the last of several starts erased itself."""
FILE_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
LONGEST = 3
"""Kills of one journey, at most."""

Command = list[str]


@dataclass(frozen=True)
class Job:
    """A command that is cut, what is there before it, and what is typed after a cut."""

    name: str
    prepare: Callable[[Path], None]  # fills the folder before the command
    first: Command  # started in that folder
    again: tuple[Command, ...]  # tried one after the other until one is not refused


@dataclass
class Outcome:
    """What became of the journeys of a job."""

    kills: int = 0
    full: int = 0
    journeys: int = 0
    other_bits: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)


def jobs(template: Path) -> list[Job]:
    """All jobs; `template` holds what is made once: a finished run for `unlearn`, an archive for `data import`."""

    def written(text: str) -> Callable[[Path], None]:
        return lambda folder: (folder / "e.toml").write_text(text) and None  # type: ignore[func-returns-value]

    def finished(folder: Path) -> None:
        shutil.copytree(template / "run", folder / "run")

    def archive(folder: Path) -> None:
        shutil.copyfile(template / "c.zip", folder / "c.zip")

    def log_file(folder: Path) -> None:
        write_csv_log(generated_log("clicks", 400, 1), folder / "clicks.csv")

    start = ["run", "e.toml", "--out", "run", "--quiet", "--json", "--threads", "1"]
    resume = ["run", "--resume", "run", "--quiet", "--json", "--threads", "1"]
    overwrite = [*start, "--overwrite"]
    forget = ["unlearn", "run", "--client", "2", "--quiet", "--json", "--threads", "1"]
    bring = ["data", "import", "c.zip"]
    log = ["data", "import", "clicks.csv", "--format", "csv"]
    plain = EXPERIMENT.format(keep=0, more="")
    return [
        Job("run", written(plain), start, (resume, overwrite)),
        Job("run-again", written(plain), start, (overwrite,)),
        Job("kept", written(EXPERIMENT.format(keep=1, more="")), start, (resume, overwrite)),
        Job("private", written(EXPERIMENT.format(keep=0, more=PRIVATE)), start, (resume, overwrite)),
        Job("grid", written(EXPERIMENT.format(keep=0, more=GRID)), start, (resume, overwrite)),
        Job("unlearn", finished, forget, (forget,)),
        Job("import", archive, bring, (bring,)),
        Job("log", log_file, log, (log,)),
    ]


def make_archive(path: Path) -> None:
    """Write a collection for `data import`."""
    with zipfile.ZipFile(path, "w") as packed:
        for split in ("train", "vali", "test"):
            rows = (f"{i % 3} qid:{i // 5} 1:{i / 7:.4f} 2:{i % 11} 3:{(i * i) % 13}\n" for i in range(4_000))
            packed.writestr(zipfile.ZipInfo(f"c/{split}.txt"), "".join(rows))


def make_run(folder: Path) -> None:
    """Make what several jobs begin with, in this process: what that compiles and loads is there for all that it forks."""
    (folder / "e.toml").write_text(EXPERIMENT.format(keep=1, more=""))
    (folder / "private.toml").write_text(EXPERIMENT.format(keep=0, more=PRIVATE))
    run = ["run", "e.toml", "--out", "run", "--quiet", "--json", "--threads", "1"]
    for command in (
        ["run", "private.toml", "--out", "private", *run[4:]],
        run,
        ["unlearn", "run", "--client", "1", *run[4:]],
        [*run, "--overwrite"],
    ):
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            sys.argv = ["quorank", *command]
            command_line.main()


@dataclass(frozen=True)
class Cut:
    """When a command is cut: after so many seconds, before its n-th file event, or where a file grows beyond a size."""

    seconds: float | None = None
    event: int | None = None
    size: int | None = None


def started(folder: Path, command: Command, cut: Cut | None = None) -> tuple[int, str, float, int]:
    """Run a command in a forked process: (exit code, what it said, seconds, file events); a killed one has −9."""
    errors, counter = folder.parent / f"{folder.name}.stderr", folder.parent / f"{folder.name}.events"
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        _child(folder, command, errors, counter, cut)
    if cut is not None and cut.seconds is not None:
        time.sleep(cut.seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    took = time.perf_counter() - began
    events = int(counter.read_text() or 0) if counter.exists() else 0
    counter.unlink(missing_ok=True)
    return os.waitstatus_to_exitcode(status), errors.read_text(errors="replace"), took, events


def _child(folder: Path, command: Command, errors: Path, counter: Path, cut: Cut | None) -> None:
    """The forked process: the command line with this command, and the cut."""
    code = 70
    try:
        os.chdir(folder)
        runner.CHECKPOINT_SECONDS = 0.0  # a checkpoint after every round
        os.environ["QUORANK_HOME"] = str(folder / "home")
        os.environ.pop("QUORANK_CACHE", None)  # parsed data are kept beside the imported ones
        with Path(os.devnull).open("w") as nothing, errors.open("w") as told:
            os.dup2(nothing.fileno(), 1)
            os.dup2(told.fileno(), 2)
        seen = [0]

        def watch(event: str, arguments: Any) -> None:
            written = (
                event == "open"
                and isinstance(arguments[2], int)
                and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            )
            if written or event in FILE_EVENTS:
                seen[0] += 1
                if cut is not None and cut.event == seen[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

        if cut is not None and cut.size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (cut.size, cut.size))
        sys.addaudithook(watch)
        sys.argv = ["quorank", *command]
        try:
            command_line.main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        count = seen[0]
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2) if cut is None else None
        with contextlib.suppress(OSError):
            counter.write_text(str(count))
    except BaseException:
        import traceback

        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def results(folder: Path) -> dict[str, bytes]:
    """Every file that a command left, by name; times are taken out, and the names of folders are made the same."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name, content = path.relative_to(folder).as_posix(), b""
        if path.is_file():
            content = path.read_bytes()
            if path.name in ("summary.json", "unlearning.json"):
                content = _without_times(content)
            if path.name == "manifest.json":
                content = _checked_manifest(path)
            if path.name == "report.html" or ("/.quorank/" in name and path.suffix == ".json"):
                content = b""  # these tell times
        found[name] = content.replace(str(folder).encode(), b"FOLDER")
    return found


def _checked_manifest(path: Path) -> bytes:
    """The names in a manifest: digests are of files that tell times, so each is held against its file instead."""
    listed: dict[str, str] = json.loads(path.read_text())["files"]
    files = {name: path.parent / name for name in listed}
    wrong = [name for name, file in files.items() if not file.is_file() or _digest(file) != listed[name]]
    return f"{sorted(listed)}, wrong: {wrong}".encode()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _without_times(content: bytes) -> bytes:
    table = json.loads(content)
    return json.dumps({key: value for key, value in table.items() if key not in TIMES}, sort_keys=True).encode()


def journey(
    job: Job,
    place: Path,
    random: Random,
    usual: tuple[float, int, int],
    expected: dict[str, bytes],
    outcome: Outcome,
    *,
    full: bool,
) -> None:
    """Cut a command one to three times, let it end, and hold what it left against what was expected."""
    seconds, events, largest = usual
    folder = place / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    job.prepare(folder)
    story, command, done = [], job.first, False
    for _ in range(random.randint(1, LONGEST)):
        if full:
            cut = Cut(size=random.randrange(largest))
        elif random.random() < 0.5:
            cut = Cut(seconds=random.uniform(0.0, 1.1 * seconds))
        else:
            cut = Cut(event=random.randint(1, max(events, 1)))
        code, said, *_ = started(folder, command, cut)
        story.append(f"{' '.join(command)} ({cut}) → {code}")
        outcome.kills += code == -signal.SIGKILL
        outcome.full += full and code != 0
        _check_words(code, said, story, outcome)
        if code == 0:
            done = True
            break
        command = _next(job, folder, command)
    while not done:
        code, said, *_ = started(folder, command)
        story.append(f"{' '.join(command)} → {code}")
        _check_words(code, said, story, outcome)
        if code == 0:
            break
        if code == 2 and any(word in said for word in ("this run is finished", "unlearned this client already")):
            break  # the cut came behind the last result
        later = job.again.index(command) + 1 if command in job.again else 0
        if later >= len(job.again):
            outcome.refused.append(f"{said.strip().splitlines()[-1] if said.strip() else code}: {'; '.join(story)}")
            return
        command = job.again[later]
    outcome.journeys += 1
    found = results(folder)
    # a cache that a full disk left unwritten is made by the next reader
    wanted = [name for name in expected if not (full and "/.quorank/" in name and name not in found)]
    differing = [name for name in wanted if found.get(name) != expected[name]]
    if differing:
        outcome.other_bits.append(f"{', '.join(differing[:3])}: {'; '.join(story)}")
    strange = [name for name in found if name not in expected]
    if strange:
        outcome.leftovers.append(f"{', '.join(strange[:3])}: {'; '.join(story)}")


def _next(job: Job, folder: Path, command: Command) -> Command:
    """What a person types after a cut: to go on where there is something to go on with."""
    has_run = (folder / "run" / "run.toml").is_file() or (folder / "run" / "grid.toml").is_file()
    return job.again[0] if len(job.again) == 1 or has_run else job.again[-1]


def _check_words(code: int, said: str, story: list[str], outcome: Outcome) -> None:
    if "Traceback (most recent call last)" in said or code == 70:
        last = said.strip().splitlines()[-1] if said.strip() else "nothing"
        outcome.tracebacks.append(f"{last}: {'; '.join(story)}")


def measure(
    kills: int, chosen: list[str], seed: int, *, full: bool = False, watch: Callable[[str], None] = print
) -> dict[str, Outcome]:
    """Make journeys of each job until its share of the kills is reached."""
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="quorank-plug-") as name:
        place = Path(name)
        (place / "template").mkdir()
        make_archive(place / "template" / "c.zip")
        if not chosen or not {*chosen} <= {"import", "log"}:
            make_run(place / "template")
        known = [job for job in jobs(place / "template") if not chosen or job.name in chosen]
        for job in known:
            outcome = outcomes.setdefault(job.name, Outcome())
            folder = place / "work"
            usual, expected = (0.0, 1, 1), {}
            for _ in range(2):  # the second finds everything compiled and loaded
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                job.prepare(folder)
                code, said, seconds, events = started(folder, job.first)
                if code != 0:
                    raise SystemExit(f"{job.name}: the unbroken command ends with {code}: {said}")
                expected = results(folder)
                sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
                usual = seconds, events, max(sizes)
            wanted, number, began = -(-kills // len(known)), 0, time.perf_counter()
            while (outcome.full if full else outcome.kills) < wanted and number < 20 * wanted:
                journey(job, place, Random(f"{seed}/{job.name}/{number}"), usual, expected, outcome, full=full)
                number += 1
                if number % 10 == 0:
                    reached, took = outcome.full if full else outcome.kills, time.perf_counter() - began
                    watch(f"{job.name}: {reached} of {wanted}, {took:.0f} s")
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=70)
    parser.add_argument(
        "--job",
        action="append",
        default=[],
        help="run, run-again, kept, private, grid, unlearn, import, log; all unless given",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full-disk", action="store_true", help="disks without room in place of kills")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    outcomes = measure(
        options.kills,
        options.job,
        options.seed,
        full=options.full_disk,
        watch=lambda line: print(line, file=sys.stderr, flush=True),
    )
    bad = sum(len(o.other_bits) + len(o.leftovers) + len(o.refused) + len(o.tracebacks) for o in outcomes.values())
    if options.json:
        print(json.dumps({name: vars(outcome) for name, outcome in outcomes.items()}, indent=1))
        sys.exit(int(bad > 0))
    kinds = ("other_bits", "leftovers", "refused", "tracebacks")
    heads = ["full disks" if options.full_disk else "kills", "journeys", *(kind.replace("_", " ") for kind in kinds)]
    print(f"{'job':12}" + "".join(f"{head:>12}" for head in heads))
    for name, one in outcomes.items():
        counts = [
            one.full if options.full_disk else one.kills,
            one.journeys,
            *(len(getattr(one, kind)) for kind in kinds),
        ]
        print(f"{name:12}" + "".join(f"{count:>12}" for count in counts))
    for name, one in outcomes.items():
        for kind in kinds:
            for story in getattr(one, kind)[:3]:
                print(f"{name}: {kind.replace('_', ' ')}: {story}")
    sys.exit(int(bad > 0))


if __name__ == "__main__":
    main()

"""Builds the package and tries it in empty environments: `python -m package [build] [try] [--python NAME]...`.

`build` writes the wheel and the source archive into `dist/` and checks what is in them; it needs hatchling. `try` installs
the wheel that is there into a new virtual environment of each Python named (this one unless told) and runs `quorank demo`
in an empty folder with an empty cache; it needs nothing. Both, unless told.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 4 << 20
"""Bytes of a wheel; what is above that is data that came in by mistake."""
UNWANTED = re.compile(r"(^|/)(tests?|runs|data/cache|__pycache__|\.[^/]*)(/|$)|\.(pyc|nbi|nbc|npz|parquet|png)$")
RELATIVE = re.compile(r"\]\((?!https?://|#|mailto:)[^)]*\)|<img [^>]*src=[\"'](?!https?://)")


def main() -> None:
    """Do what the command line asks for; what is wrong ends it with one sentence."""
    parser = argparse.ArgumentParser(prog="python -m package", description=__doc__)
    parser.add_argument("jobs", nargs="*", choices=[[], "build", "try"], help="both unless told")
    parser.add_argument("--python", action="append", metavar="NAME", help="a Python to try it with; repeatable")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder of the built files")
    given = parser.parse_args()
    jobs = given.jobs or ["build", "try"]
    if "build" in jobs:
        wheel, archive = build(given.dist)
        faults = [*wheel_faults(wheel), *archive_faults(archive)]
        if faults:
            sys.exit("\n".join(faults))
        for path in (wheel, archive):
            print(f"{path.name:<40}{path.stat().st_size / 1e6:6.2f} MB", flush=True)
    if "try" in jobs:
        for python in given.python or [sys.executable]:
            try_wheel(only(given.dist, "*.whl"), python)


def build(dist: Path) -> tuple[Path, Path]:
    """Return a new wheel and source archive; the wheel is built from what the archive holds."""
    for old in [*dist.glob("quorank-*.whl"), *dist.glob("quorank-*.tar.gz")]:
        old.unlink()
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d", str(dist.resolve()), "-t"]
    run([*hatchling, "sdist"], ROOT)
    archive = only(dist, "*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        run([*hatchling, "wheel"], only(Path(folder), "quorank-*"))
    return only(dist, "*.whl"), archive


def wheel_faults(wheel: Path) -> list[str]:
    """Return what is wrong with the contents and the metadata of a wheel, a sentence each."""
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if not name.endswith("/")]
        metadata = message_from_bytes(packed.read(next(name for name in names if name.endswith(".dist-info/METADATA"))))
    version = source_version()
    wanted = {path.relative_to(ROOT).as_posix() for path in (ROOT / "quorank").rglob("*") if path.is_file()}
    wanted = {name for name in wanted if not UNWANTED.search(name)}
    found = {name for name in names if name.startswith("quorank/") and not name.startswith("quorank/benchmarks/")}
    faults = [f"{wheel.name} lacks {name}" for name in sorted(wanted - found)]
    faults += [f"{wheel.name} has {name}, which is not in the source" for name in sorted(found - wanted)]
    faults += [f"{wheel.name} has {name}" for name in names if UNWANTED.search(name)]
    inside = ("quorank/", f"quorank-{version}.dist-info/")
    faults += [f"{wheel.name} has {name} beside the package" for name in names if not name.startswith(inside)]
    if "quorank/py.typed" not in names:
        faults.append(f"{wheel.name} has no py.typed, so that type checkers pass it over")
    if wheel.stat().st_size > LARGEST:
        faults.append(f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {LARGEST:,}")
    return faults + metadata_faults(metadata, version)


def metadata_faults(metadata: Message, version: str) -> list[str]:
    """Return what is wrong with what an index shows of a package."""
    faults = []
    for name, expected in (
        ("Name", "quorank"),
        ("Version", version),
        ("Requires-Python", ">=3.11"),
        ("License-Expression", "Apache-2.0"),
        ("Description-Content-Type", "text/markdown"),
    ):
        if metadata[name] != expected:
            faults.append(f"metadata: {name} is {metadata[name]!r}, expected {expected!r}")
    if not metadata["Summary"] or len(metadata["Summary"]) > 512 or "\n" in metadata["Summary"]:
        faults.append("metadata: Summary must be one line of at most 512 characters")
    page = metadata.get_payload()
    faults += [
        f"the page on the index links to {found[0]}, which is not there" for found in RELATIVE.finditer(str(page))
    ]
    return faults


def archive_faults(archive: Path) -> list[str]:
    """Return what is missing from the source archive, and where a file tells of another version."""
    version = source_version()
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "package/page.md"}
    faults = [f"{archive.name} lacks {name}" for name in sorted(needed - names)]
    for file, line in (("CITATION.cff", f"version: {version}"), ("CHANGELOG.md", f"## {version}")):
        if not re.search(rf"^{re.escape(line)}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE):
            faults.append(f"{file} has no line {line!r}")
    return faults


def source_version() -> str:
    """Return the version that `quorank/__init__.py` states, the one place of it."""
    found = re.search(
        r'^__version__ = "(.+)"$', (ROOT / "quorank/__init__.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found is not None
    return found[1]


def try_wheel(wheel: Path, python: str) -> None:
    """Install a wheel into an empty environment of a Python and run the demo in an empty folder."""
    if shutil.which(python) is None:
        sys.exit(f"{python}: no such Python here")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        started = time.monotonic()
        run([python, "-m", "venv", str(home / "venv")], home)
        binaries = home / "venv" / ("Scripts" if os.name == "nt" else "bin")
        run([str(binaries / "python"), "-m", "pip", "install", "--quiet", str(wheel.resolve())], home)
        installed = time.monotonic()
        (home / "here").mkdir()
        shown = run([str(binaries / "quorank"), "--version"], home / "here").strip()
        run([str(binaries / "quorank"), "demo"], home / "here", cache=home / "cache")
        demo = time.monotonic()
        report = home / "here/runs/demo/report.html"
        if shown != wheel.name.split("-")[1] or not report.is_file():
            sys.exit(
                f"{python}: quorank --version said {shown!r}; the demo wrote {'a' if report.is_file() else 'no'} report"
            )
        told = run([str(binaries / "python"), "--version"], home).strip()
        print(f"{told}: installed in {installed - started:.0f} s, demo in {demo - installed:.0f} s", flush=True)


def run(command: list[str], folder: Path, cache: Path | None = None) -> str:
    """Run a command and return what it prints; one that fails ends the program with what it said."""
    removed = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    if cache is not None:
        environment["QUORANK_CACHE"] = str(cache)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def only(folder: Path, pattern: str) -> Path:
    """Return the one path in a folder that matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder}: expected one {pattern}, found {len(found)}")
    return found[0]


if __name__ == "__main__":
    main()

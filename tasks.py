"""Run one job in a virtual environment: `python3 tasks.py demo`, or test, check, nightly, fuzz, bench, format, docs,
results, package, or `quorank ARGS…`.

Needs nothing but Python 3.11 and pip: it creates the environment (.venv, or the folder in QUORANK_VENV), installs the
project into it when the project file has changed, and runs the job there.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from quorank.kernels.steady import steady_environment

ROOT = Path(__file__).resolve().parent
HOME = Path(os.environ.get("QUORANK_VENV") or ROOT / ".venv")
PYTHON = HOME / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
COMPILE = r"""
import compileall, re, sysconfig
hardly = "tests pip setuptools mypy mypyc onnxruntime onnx huggingface_hub Crypto wcwidth mpmath prompt_toolkit lexers dask"
unused = re.compile(rf"site-packages[/\\](.*[/\\])?({hardly.replace(' ', '|')})[/\\]")
compileall.compile_dir(sysconfig.get_path("purelib"), rx=unused, quiet=2, workers=0)
"""
"""Compile installed modules on all cores, where pip uses one; without modules that are hardly ever imported."""
SOURCES = ["quorank", "tests", "benchmarks", "examples", "fuzz", "docsite", "package", "tasks.py"]
PYTEST = ["pytest", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
"""Three workers keep two cores busy, since some tests wait; every further worker imports all tests once more (4 s)."""
COMPILE_TESTS = ["pytest", "--collect-only", "-qqq", "--disable-warnings"]
"""Compile the tests once (7 s), beside the type checker; otherwise every worker of a fresh clone does."""


def main() -> None:
    job, *rest = sys.argv[1:] or ["help"]
    if job not in JOBS:
        sys.exit(__doc__)
    if sys.version_info < (3, 11):  # noqa: UP036  pip has not been asked yet
        sys.exit(f"Quorank needs Python 3.11 or newer; this is {sys.version.split()[0]}")
    os.chdir(ROOT)
    extras = {"docs": "docs"} | dict.fromkeys(("test", "check", "nightly", "fuzz", "format", "bench", "package"), "dev")
    set_up(extras.get(job, ""))
    groups = JOBS[job](rest)
    if len(groups) == len(groups[0]) == 1 and os.name != "nt":
        become(groups[0][0])
    for commands in groups:
        running = [start(command) for command in commands]
        codes = [process.wait() for process in running]
        if any(codes):
            sys.exit(max(codes, key=abs))


def become(command: list[str]) -> NoReturn:
    """Replace this process by a module, which then receives signals itself.

    Ctrl-C is blocked until the command line handles it (`quorank.cli.start`): Python would print a traceback.
    """
    if command[0] == "quorank.cli.main":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execve(PYTHON, *prepared(command))


def start(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a module as a child process."""
    arguments, environment = prepared(command)
    return subprocess.Popen(arguments, env=environment)


def prepared(command: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment of a module, after printing the command.

    Compiled files are kept, since the tests start some hundred processes. Several tests run at a time, so that each has one
    thread for matrix products: more would wait for a core, spinning.
    """
    print("$", " ".join(command), file=sys.stderr, flush=True)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    single = {"OPENBLAS_NUM_THREADS": "1", **steady_environment()} if command[0] in ("pytest", "fuzz") else {}
    return [str(PYTHON), "-m", *command], inherited | single


def set_up(extra: str) -> None:
    """Create the environment and install the project, unless this version of the project file is installed."""
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    done = HOME / f"installed-{extra or 'plain'}"
    if PYTHON.exists() and done.exists() and done.read_text() == wanted:
        return
    pip = [str(PYTHON), "-m", "pip"]
    if not PYTHON.exists() or subprocess.run([*pip, "--version"], check=False, capture_output=True).returncode:
        print(f"creating a virtual environment in {HOME} …", file=sys.stderr)
        venv.EnvBuilder(with_pip=True).create(HOME)
        # the pip of Python 3.11 takes twice as long to resolve versions
        subprocess.run([*pip, "install", "--quiet", "--upgrade", "pip"], check=False, capture_output=True)
    print("installing Quorank and its dependencies …", file=sys.stderr, flush=True)
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    install = [*pip, "install", "-qq", "--disable-pip-version-check", "--no-compile", "--editable", target]
    if subprocess.run(install, check=False).returncode:
        sys.exit("the installation failed: pip's own message is above")
    subprocess.run([str(PYTHON), "-c", COMPILE], check=False)
    done.write_text(wanted)


def check(rest: list[str]) -> list[list[list[str]]]:
    """The one gate: format, lint, types, tests, and a replay of the fuzzing corpus."""
    style = [[["ruff", "format", "--check", *SOURCES]], [["ruff", "check", *SOURCES]]]
    replay = [] if rest else [["fuzz", "--corpus", "--jobs", "1"]]
    return [*style, [["mypy"], [*COMPILE_TESTS, *rest]], [[*PYTEST, *rest], *replay]]


def nightly(rest: list[str]) -> list[list[list[str]]]:
    """Tests with their long series and full products, then random fuzzing."""
    return [[[*PYTEST, "--nightly", *rest]], [["fuzz", "--minutes", "30", "--jobs", "2"]]]


def test(rest: list[str]) -> list[list[list[str]]]:
    """The fast tests: no process, no connection, about a minute. Folders without any are not even collected."""
    slow = [f"--ignore=tests/{folder}" for folder in ("engines", "service", "member", "cli", "reproduce", "fuzz")]
    return [[["pytest", "-n", "2", "--dist", "loadfile", "-m", "fast", *slow, *rest]]]


JOBS: dict[str, Callable[[list[str]], list[list[list[str]]]]] = {
    "demo": lambda rest: [[["quorank.cli.main", "demo", *rest]]],
    "test": test,
    "check": check,
    "nightly": nightly,
    "fuzz": lambda rest: [[["fuzz", *rest]]],
    "bench": lambda rest: [[["quorank.cli.main", "bench", *rest]]],
    "package": lambda rest: [[["package", *rest]]],
    "format": lambda rest: [[["ruff", "format", *SOURCES]], [["ruff", "check", "--fix", *SOURCES]]],
    "results": lambda rest: [
        [["quorank.cli.main", "reproduce", "--all", "--quick", "--record", "docs/results/figures", *rest]]
    ],
    "docs": lambda rest: [[["docsite", *rest]]],
    "quorank": lambda rest: [[["quorank.cli.main", *rest]]],
}
"""Commands of each job: groups run one after the other, the commands of a group side by side."""

if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)

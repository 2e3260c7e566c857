"""The start of the command line: signals before anything is imported, terminals without signs, machines without a cache."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import SMALL, Outcome, command, environment, python

from quorank.kernels.compiled import unsafe_reason
from quorank.rankers import Linear
from quorank.rankers.ranker_file import SavedRanker, ranker_bytes

LONG = SMALL.replace("rounds = 12", "rounds = 100000")


def started(folder: Path, *words: object, **more: str) -> subprocess.Popen[str]:
    # as from a terminal, also where this test was started in the background, which ignores Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        command(*words), env={**environment(folder), **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


BLOCKED = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
os.kill(os.getpid(), signal.SIGINT)
os.execv(sys.executable, [sys.executable, "-m", "quorank.cli.main", *sys.argv[1:]])
"""


def test_ctrl_c_before_anything_is_imported_is_one_line(tmp_path: Path) -> None:
    """It waits while Python starts, as below `tasks.py`, and is answered before the first large import."""
    begun = time.monotonic()
    assert python(tmp_path, "-c", BLOCKED, "data", "list") == Outcome(130, "", "quorank: stopped\n")
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("module", ["typer", "numba", "quorank.experiments.runner"])
def test_ctrl_c_during_an_import_is_one_line(tmp_path: Path, module: str) -> None:
    script = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from quorank.cli.start import main\n"
        "main()\n"
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Path("long.toml").write_text(LONG)
    done = python(tmp_path, "-c", script, "run", "long.toml", "--out", "made")
    assert (done.code, done.err) == (130, "quorank: stopped\n")


def test_ctrl_c_after_python_has_started(tmp_path: Path) -> None:
    """At one moment; benchmarks/interrupted_starts.py tries many."""
    Path("long.toml").write_text(LONG)
    process = started(tmp_path, "run", "long.toml", "--out", "made", "--quiet")
    time.sleep(0.8)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert [line.startswith("quorank: stopped") for line in said.splitlines()] == [True], said


def test_a_refusal_is_one_line_on_any_terminal(tmp_path: Path) -> None:
    process = started(tmp_path, "run", "ε…—\udcff.toml", PYTHONIOENCODING="ascii:strict")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2 and said.count("\n") == 1
    assert said.startswith("quorank: \\u03b5\\u2026\\u2014\\udcff.toml: no such experiment file; these are shipped: ")


NOWHERE = {"QUORANK_CACHE": "/proc/nowhere", "HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere"}


def kept_in(tmp_path: Path, script: str, **places: str) -> Outcome:
    plain = {name: value for name, value in environment(tmp_path).items() if name not in ("HOME", *NOWHERE)}
    return python(tmp_path, "-c", script, variables=plain | places)


COMPILE = """
from quorank.kernels.compiled import cache_folder, kernel
def double(x):
    return 2 * x
assert kernel(double)(21) == 42
print(cache_folder(""))
"""


def test_a_disabled_compiler_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    disabled = {**environment(tmp_path), "NUMBA_DISABLE_JIT": "1"}
    words = command("run", "small.toml", "-q")[1:]
    told = python(tmp_path, *words, cwd=tmp_path, variables=disabled).refused()
    assert told == "NUMBA_DISABLE_JIT: is set, and kernels are compiled; unset it"


def test_without_a_home_that_can_be_written_kernels_are_kept_below_the_temporary_folder(tmp_path: Path) -> None:
    """Once `cannot cache function`."""
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    done = kept_in(tmp_path, COMPILE, **NOWHERE, TMPDIR=str(temporary))
    assert done.code == 0, done.err
    own = temporary / f"quorank-{os.getuid()}"
    assert done.out.startswith(str(own)) and own.stat().st_mode & 0o777 == 0o700
    assert len(done.err.splitlines()) == 1 and done.err.startswith("quorank: /proc/nowhere")


def test_where_nothing_can_be_written_every_start_compiles(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "tmp").mkdir(mode=0o700)
    (tmp_path / "tmp" / f"quorank-{os.getuid()}").write_text("a file of somebody")
    done = kept_in(
        tmp_path, COMPILE, **NOWHERE | {"QUORANK_CACHE": str(tmp_path / "file")}, TMPDIR=str(tmp_path / "tmp")
    )
    assert done.code == 0 and done.out == "None\n", done.err
    assert len(done.err.splitlines()) == 1 and "every start compiles" in done.err


def test_compiled_code_of_others_is_not_loaded(tmp_path: Path) -> None:
    assert unsafe_reason(tmp_path / "own") == "" and (tmp_path / "own").stat().st_mode & 0o777 == 0o700
    assert unsafe_reason(Path("/proc/nowhere")) != ""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert "everybody" in unsafe_reason(tmp_path / "open") and "everybody" in unsafe_reason(tmp_path / "open" / "below")
    (tmp_path / "open").chmod(0o1777)
    assert unsafe_reason(tmp_path / "open" / "below") == ""
    if os.getuid() == 0:
        (tmp_path / "theirs").mkdir(mode=0o700)
        os.chown(tmp_path / "theirs", 12345, 12345)
        assert "another user" in unsafe_reason(tmp_path / "theirs") and "another user" in unsafe_reason(
            tmp_path / "theirs" / "below"
        )
        (tmp_path / "group").mkdir()
        (tmp_path / "group").chmod(0o770)
        os.chown(tmp_path / "group", 0, 12345)
        assert "group" in unsafe_reason(tmp_path / "group")


SCORING = """
import quorank
quorank.Ranker.load("ranker.json").score([[1.0, 2.0, 3.0]] * 2, [2])
"""
INTAKE = """
import numpy, quorank.service.intake.worker
from quorank.federation.reply import Reply, ReplyLimits, encode_reply
reply = encode_reply(Reply("run", 0, 1, numpy.ones(46), 3))
ReplyLimits("run", 0, 46, 3, 1e6, 10, unit=1e4, clip=0.05, integers=True).check_content(reply, 1)
"""
ROOMS = "quorank.learning quorank.federation quorank.privacy quorank.experiments quorank.metrics quorank.users"


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        ("import quorank.cli.data", "numba pyarrow numpy"),
        ("import quorank.cli.compare", "numba pyarrow scipy jinja2"),
        (SCORING, f"numba pyarrow scipy matplotlib pandas {ROOMS}"),
        (INTAKE, "numba scipy dp_accounting"),
    ],
)
def test_what_needs_no_simulator_and_no_compiler_loads_none(tmp_path: Path, program: str, heavy: str) -> None:
    (tmp_path / "ranker.json").write_bytes(ranker_bytes(SavedRanker(Linear(), 3, np.ones(3))))
    loaded = f"import sys\nprint([name for name in {heavy.split()} if name in sys.modules])"
    assert python(tmp_path, "-c", f"{program}\n{loaded}", cwd=tmp_path) == Outcome(0, "[]\n", "")

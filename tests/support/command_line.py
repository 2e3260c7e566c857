"""The command line called from a test: as a process of its own, or inside this one where that is all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from quorank.cli.main import main

ROOT = Path(__file__).parents[2]

SMALL = """\
[data]
source = "synthetic:mq2007"

[federation]
clients = 20
rounds = 12
"""
"""An experiment of an instant."""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def refused(self) -> str:
        """The one sentence of a refusal: exit 2, a single line on stderr, nothing on stdout."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("quorank: ") and "Traceback" not in self.err
        return lines[0].removeprefix("quorank: ")


Quorank = Callable[..., Outcome]
"""quorank("run", file, "--json") → how it ended and what it printed."""


def environment(folder: Path) -> dict[str, str]:
    """This process's own, so that compiled kernels are found again, but with names that are imported kept apart."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "QUORANK_HOME": str(folder), "COLUMNS": "80", "PYTHONPATH": os.pathsep.join(paths)}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "quorank.cli.main", *map(str, arguments)]


def invoke(app: typer.Typer, *arguments: object, code: int = 0) -> Result:
    """Call the commands of one application; what they raise is raised here."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def in_process(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *arguments: object) -> Outcome:
    """`main()` as the entry point calls it; an exception that it lets through fails the test."""
    monkeypatch.setattr(sys, "argv", ["quorank", *map(str, arguments)])
    capfd.readouterr()
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    out, err = capfd.readouterr()
    return Outcome(code, out, err)


def python(home: Path, *words: object, cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> Outcome:
    """Run Python in a process of its own, by default with the variables of `environment`."""
    line = [sys.executable, *map(str, words)]
    given = environment(home) if variables is None else variables
    done = subprocess.run(line, cwd=cwd, env=given, capture_output=True, text=True, timeout=300, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def as_process(folder: Path, home: Path, *arguments: object) -> Outcome:
    return python(home, *command(*arguments)[1:], cwd=folder)

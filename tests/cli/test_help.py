"""Help: every verb has it, every option is in it, and it fits a terminal of 80 columns."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from click.testing import CliRunner
from command_line import Quorank

import quorank as package
from quorank.cli.main import application


def verbs(command: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """All commands below a group, by what one types to reach them."""
    found = {path: command}
    for name, inner in getattr(command, "commands", {}).items():
        found |= verbs(inner, (*path, name))
    return found


COMMAND = typer.main.get_command(application())
VERBS = verbs(COMMAND)


@pytest.mark.parametrize("path", VERBS, ids=lambda path: " ".join(path) or "quorank")
def test_help_fits_and_is_complete(path: tuple[str, ...]) -> None:
    result = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).invoke(COMMAND, [*path, "-h"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in result.stdout
    command = VERBS[path]
    flat = " ".join(word for line in lines for word in line.replace("│", " ").split())
    for parameter in command.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            assert not name.startswith("-") or name in flat, name
    for name in getattr(command, "commands", {}):
        assert name in flat
    first = (command.help or "").strip().split("\n\n")[0]
    assert " ".join(first.split()) in flat  # nothing of the sentence is swallowed as markup


@pytest.mark.parametrize("path", VERBS, ids=lambda path: " ".join(path) or "quorank")
def test_every_option_is_explained(path: tuple[str, ...]) -> None:
    silent = [p.name for p in VERBS[path].params if not getattr(p, "help", None)]
    assert silent in ([], ["threads"] if path == ("evaluate",) else [])


def test_version(process: Quorank) -> None:
    outcome = process("--version")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"{package.__version__}\n", "")


def test_without_a_verb_there_is_help(quorank: Quorank) -> None:
    outcome = quorank()
    assert "demo" in outcome.out + outcome.err and "Traceback" not in outcome.err

"""Every code block of the documentation runs, or says why it does not (docsite/markdown.py has the marks)."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import command, environment, in_process
from quick_runs import leave_pages_out
from real_services import free_port

from docsite.markdown import Block, blocks
from quorank.cli.main import application
from quorank.experiments.experiment import SECTIONS, Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.grid import Grid

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "```" in path.read_text()
)
COMMAND: Any = typer.main.get_command(application())
RUN, SHOWN = ("python", "bash", "toml", "json"), ("text", "csv", "javascript", "math")
"""Languages of blocks that run, or are read, and of blocks that are only shown."""
PORT = "9470"
"""The port of services in the documentation; tests use one that is free."""


def page_blocks(page: str) -> list[Block]:
    return blocks((ROOT / page).read_text(encoding="utf-8"))


@dataclass
class Reader:
    """Somebody who does what a page says, in an empty folder."""

    page: str
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capfd: pytest.CaptureFixture[str]
    names: dict[str, Any] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    port: str = PORT

    def follow(self, block: Block) -> None:
        if block.before:
            self.execute(block.before, block.line)
        if block.file:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text + "\n", encoding="utf-8")
        if block.not_run:
            return
        if block.language == "python" and not block.file:
            self.execute(block.text, block.line)
        elif block.language == "toml":
            self.read_toml(block)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "bash":
            for line in command_lines(block.text):
                self.type_in(line, block.line)

    def execute(self, code: str, line: int) -> None:
        exec(compile("\n" * line + code, self.page, "exec"), self.names)

    def read_toml(self, block: Block) -> None:
        """A block with sections of experiment files is one, and says nothing that is refused."""
        tables = tomllib.loads(block.text)
        if {*tables} <= {*SECTIONS, "seed", "grid"}:
            document = parse_experiment_file(block.text, f"{self.page}:{block.line}")
            grid = Grid.read(document)
            assert grid.cells if grid else Experiment.read(document)

    def type_in(self, line: str, number: int) -> None:
        words = shlex.split(line.replace(PORT, self.port))
        if words == ["wait"]:
            self.finish()
            return
        if words[0] == "kill":  # kill %1: the first of the processes that were started with & since the last wait
            for job in words[1:]:
                self.started[int(job.removeprefix("%")) - 1].terminate()
            return
        waits = words[-1] != "&"
        words = words if waits else words[:-1]
        assert words[0] == "quorank", f"{self.page}:{number}: {line!r} is no command of ours: say why it is not run"
        if not waits:
            home = environment(Path(self.folder / "home"))
            process = subprocess.Popen(
                command(*words[1:]),
                cwd=self.folder,
                env=home,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self.started.append(process)
            return
        outcome = in_process(self.monkeypatch, self.capfd, *words[1:])
        assert outcome.code == 0, f"{self.page}:{number}: {line}\n{outcome.out}{outcome.err}"

    def finish(self) -> None:
        """What was started with & ends by itself, and well."""
        for process in self.started:
            said, _ = process.communicate(timeout=60)
            assert process.returncode == 0, said
        self.started.clear()


def command_lines(text: str) -> Iterator[str]:
    """Lines of a shell block: continued ones joined, without comments."""
    for line in re.sub(r"\\\n\s*", " ", text).split("\n"):
        lexer = shlex.shlex(line, posix=False, punctuation_chars=False)
        lexer.whitespace_split, lexer.commenters = True, "#"
        if words := " ".join(lexer):
            yield words


def nightly(page: str) -> bool:
    """Return whether the code of a page runs nightly only: its commands run in other tests, on other data."""
    return page in ("docs/simulation.md", "docs/clicks.md", "docs/privacy/README.md", "docs/deployment.md")


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.nightly] * nightly(page)) for page in PAGES])
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))  # HOME stays: compiled functions are kept below it
    monkeypatch.setenv("QUORANK_HOME", str(folder / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    leave_pages_out(monkeypatch)
    reader = Reader(page, folder, monkeypatch, capfd, port=str(free_port()))
    try:
        for block in page_blocks(page):
            reader.follow(block)
        reader.finish()
    finally:
        for process in reader.started:
            process.kill()
            process.wait()


@pytest.mark.parametrize("page", PAGES)
def test_blocks_say_what_they_are(page: str) -> None:
    for block in page_blocks(page):
        where = f"{page}:{block.line}"
        assert block.language in (*RUN, *SHOWN), f"{where}: a block needs a language ({', '.join((*RUN, *SHOWN))})"
        assert not block.not_run or len(block.not_run.split()) >= 2, f"{where}: say why it is not run"


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page: str) -> None:
    """Also those that are not run, and those of synopses."""
    for block in page_blocks(page):
        if block.language in ("bash", "text"):
            for line in re.split(r"\n|&& ", re.sub(r"\\\n\s*", " ", block.text)):
                if line.startswith("quorank ") and "⏎" not in line:
                    unknown = unknown_words(line)
                    assert not unknown, f"{page}:{block.line}: {unknown} in {line!r}"


def unknown_words(line: str) -> list[str]:
    """Return what a line names that the command line does not have: a verb, or options of it."""
    words, found = line.split("#")[0].split()[1:], COMMAND
    while hasattr(found, "commands"):
        unnamed = getattr(found, "default_command", "")  # what is meant where no command of the group is named
        if words and words[0] in found.commands:
            found = found.commands[words.pop(0)]
        elif words and unnamed:
            found = found.commands[unnamed]
        else:
            return words[:1]
    known = {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return [option for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words)) if option not in known]


def test_the_checks_can_fail() -> None:
    assert unknown_words("quorank fly") == ["fly"]
    assert unknown_words("quorank run x.toml --sett a=b --out DIR") == ["--sett"]
    assert list(command_lines("quorank run a \\\n   --out b  # c\n# d\nquorank data list &")) == [
        "quorank run a --out b",
        "quorank data list &",
    ]
    marked = blocks("<!-- not run: needs a second machine -->\n```bash\nquorank join\n```\n\n```toml\na = 1\n```\n")
    assert [block.not_run for block in marked] == ["needs a second machine", ""]

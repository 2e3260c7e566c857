"""Links of the documentation and paths of pages in code lead somewhere; every page begins with what it is for."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from docsite.__main__ import linked, site_pages
from docsite.links import broken_links
from docsite.markdown import first_heading, first_sentence, headings
from docsite.navigation import navigation
from docsite.reference import generated_pages

ROOT = Path(__file__).parents[2]
MADE_UP = ("tests/docsite/", "tests/examples/")
"""Tests that name pages which are not there."""
OTHERS = [
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("examples/**/README.md"), *ROOT.glob("fuzz/*.md")]
]


@cache
def site() -> dict[str, str]:
    return {f"docs/{path}": text for path, text in site_pages().items()}


def test_no_link_is_broken() -> None:
    others = {path: (ROOT / path).read_text(encoding="utf-8") for path in OTHERS}
    assert broken_links(ROOT, linked(site_pages()) | others) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](b.md)", "docs/a.md:1: b.md is not there"),
        ("# A b\n[a](#a-c)", "docs/a.md:2: docs/a.md has no heading #a-c"),
        ("![p](../docs/none.png)", "docs/a.md:1: ../docs/none.png is not there"),
        ("# A b, ε = 0.5\n[a](#a-b-ε--05) [b](../README.md) `[c](d)`\n```text\n[e](f)\n```", None),
    ],
)
def test_broken_links_are_found(text: str, wrong: str | None) -> None:
    assert broken_links(ROOT, {"docs/a.md": text}) == ([wrong] if wrong else [])


@pytest.mark.slow  # asks git
def test_pages_that_code_names_are_there() -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    missing = []
    for name in listing.stdout.decode().split("\0"):
        if name.endswith((".py", ".toml", ".js", ".md", ".yml")) and not name.startswith(MADE_UP):
            text = (ROOT / name).read_text(encoding="utf-8") if (ROOT / name).is_file() else ""
            for found in re.findall(r"(?<![\w/.-])docs/[\w./-]+\.(?:md|png|json)\b", text):
                if not (ROOT / found).exists() and found not in site():
                    missing.append(f"{name}: {found}")
    assert missing == []


def test_every_page_has_one_title_and_begins_with_what_it_is_for() -> None:
    for path, text in site().items():
        assert [level for level, _ in headings(text)].count(1) == 1, path
        assert not any(re.search(r"\bid=", title) for _, title in headings(text)), (
            f"{path}: Zensical breaks on id= in headings"
        )
        beginning = first_sentence(text)
        assert re.match(r"[\w`*“\"'θλ−\\∇]", beginning), f"{path}: begin with a sentence, not {beginning[:40]!r}"
        assert len(beginning.split()) >= 5, path


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {path.removeprefix("docs/"): text for path, text in site().items()}
    nav = navigation(pages, {path: first_heading(text) for path, text in pages.items()})
    listed = re.findall(r": '([^']+\.md)'", str(nav))
    assert sorted(listed) == sorted(pages)
    more = pages | {"new.md": "# New\n"}
    assert "new.md" in str(navigation(more, {path: first_heading(text) for path, text in more.items()}))


def test_generated_pages_hold_every_key_verb_and_option() -> None:
    import dataclasses

    import typer

    from docsite.reference import FAMILIES, PLAIN
    from quorank.cli.main import application
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import flatten
    from quorank.experiments.silo_experiment import OWN
    from quorank.experiments.silo_experiment import SECTIONS as GROUP_SECTIONS
    from quorank.silos.training.setting import TRAININGS

    pages = generated_pages()
    keys = pages["reference/experiment-file.md"]
    for place, family in FAMILIES.items():
        for kind in family.ours:
            section = keys.split(f"# {kind}\n")
            assert len(section) >= 2, (place, kind)
            for field in dataclasses.fields(family.members[kind]):
                assert any(f"| `{field.name}` |" in part.split("\n#")[0] for part in section[1:]), (kind, field.name)
    for section, cls in PLAIN.items():
        own = keys.split(f"## [{section}]\n")[1].split("\n## ")[0]
        assert all(f"| `{field.name}` |" in own for field in dataclasses.fields(cls))
    for dotted in flatten(Experiment().tables()):  # what run.toml of a run without any setting holds
        assert f"`{dotted.rpartition('.')[2]}`" in keys, dotted

    group = pages["reference/group-file.md"]
    for section in GROUP_SECTIONS:
        assert f"## [{section}]\n" in group
    for key in (*OWN, *(f.name for kind in TRAININGS.members.values() for f in dataclasses.fields(kind))):
        assert f"| `{key}` |" in group

    def walk(command: object, path: tuple[str, ...]) -> None:
        for name, below in getattr(command, "commands", {}).items():
            walk(below, (*path, name))
        if not hasattr(command, "commands"):
            text = pages[f"reference/commands/{path[0]}.md"].split(f"# quorank {' '.join(path)}\n")[1].split("\n#")[0]
            for parameter in command.params:  # type: ignore[attr-defined]
                for option in parameter.opts if parameter.param_type_name == "option" else ():
                    assert f"`{option}`" in text, (path, option)

    walk(typer.main.get_command(application()), ())


ELSEWHERE = {"parts/", "clients/", "utils/clicks.py"}
"""Paths that pages name in data sets, run directories and other people's code."""


def test_paths_that_a_page_names_exist() -> None:
    places = (ROOT / "quorank", ROOT / "tests", ROOT)
    for page, text in site().items():
        named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)(?:::[a-z_]+)?`", text)
        missing = {path for path in named if not any((place / path).exists() for place in places)}
        assert missing <= ELSEWHERE, page

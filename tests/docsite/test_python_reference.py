"""The Python API reference names every public name, with an example that runs as it is shown."""

from __future__ import annotations

import doctest
from functools import cache
from pathlib import Path

import pytest

from docsite.descriptions import FAMILIES, file_of
from docsite.markdown import blocks
from docsite.python_reference import MODULES, names_without_example, page_of, parse, part_page, public_names
from docsite.reference import generated_pages

EXAMPLES = [*map(page_of, MODULES), *(f"reference/parts/{file_of(place)}.md" for place in FAMILIES)]


@cache
def pages() -> dict[str, str]:
    return generated_pages()


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_the_page(module: str) -> None:
    page, overview = pages()[page_of(module)], pages()["reference/python/README.md"]
    for name, value in public_names(module).items():
        assert f"[`{name}`](" in overview
        assert f"\n## {name}\n" in page or (part_page(value) and f"[`{name}`](" in page)


def test_every_public_name_has_an_example() -> None:
    assert names_without_example() == []


@pytest.mark.nightly
@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_run_as_they_are_shown(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the imports that the page shows, and nothing else."""
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    for block in blocks(pages()[page]):
        if block.language == "pycon":
            runner.run(doctest.DocTestParser().get_doctest(block.text + "\n", {}, f"{page}:{block.line}", None, 0))
    assert runner.failures == 0


def test_a_docstring_is_parsed() -> None:
    found = parse(
        "Add.\n\nMore\nwords:\n\n    x = 1\n\n- one\n  line\n- two\n\nArgs:\n    a: First,\n        at length.\n\n"
        "    b: Second.\n\nRaises:\n    BadInput: `a.b` for c.\n\n>>> 1 + 1\n2\n\nAfter."
    )
    assert found.body == [
        "Add.", "", "More words:", "", "```text", "x = 1", "```", "", "- one line", "- two", "", "After.", ""
    ]  # fmt: skip
    assert found.entries("Args") == [("a", "First, at length."), ("b", "Second.")]
    assert found.entries("Raises") == [("BadInput", "`a.b` for c.")]
    assert found.examples == [">>> 1 + 1\n2"]


def test_overloads_are_all_shown() -> None:
    assert "history(frame: Literal['polars']) -> polars.DataFrame" in pages()["reference/python/quorank.md"]

"""Sources of other packages: `examples/plugin` has one, which is used like our own."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from scanned_items import ScannedItems

from quorank.parts import Family
from quorank.search.sources import SOURCES, Source, UnchangedDocument
from quorank.search.sources.source import GROUP

PLUGIN = Path(__file__).parents[3] / "examples" / "plugin"
ENTRIES = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]


def family(monkeypatch: pytest.MonkeyPatch, entries: dict[str, str]) -> Family[Source]:
    """The family of sources, with these entry points installed."""
    found = {GROUP: [EntryPoint(name, value, GROUP) for name, value in entries.items()]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found.get(group, []))
    monkeypatch.syspath_prepend(PLUGIN)
    return Family("source", *SOURCES.members.values(), base=Source, group=SOURCES.group)


def test_a_source_of_another_package_is_stored_and_scanned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources = family(monkeypatch, ENTRIES)
    assert sources.kinds == ["folder", "mail", "firefox", "chromium", "todo"]
    path = tmp_path / "todo.txt"
    path.write_text("call Ann\nx buy milk\nwrite +paper\ncall Ann\n")
    source = sources.read({"kind": "todo", "path": str(path)}, "source")
    assert sources.read(source.table(), "source") == source and sources.parse(str(source)) == source
    first = ScannedItems(source.scan({}))
    assert [one.title for one in first.found.values()] == ["call Ann", "write +paper", "call Ann"]
    assert source.watch_paths() == (path,)
    known = first.after()
    path.write_text("write +paper\n")
    assert list(source.scan(known)) == [UnchangedDocument("write +paper 1")]
    path.unlink()
    gone = ScannedItems(source.scan(known))
    assert gone.skipped and gone.unchanged == set(known)

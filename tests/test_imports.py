"""House rules (DESIGN.md): imports point upwards only, and no file wants scrolling past 300 lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import quorank

PACKAGE = Path(quorank.__file__).parent
ROOMS = [
    "data", "text", "rankers", "users", "evaluation", "learning", "privacy", "federation", "attacks", "silos",
    "heuristics",
]  # fmt: skip
ANYWHERE = {"experiments", "network", "device", "cli"}  # these may use all of the rooms
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def room_of(module: str) -> str | None:
    """The room of quorank.room.module, or None for what is not the package's, or stands at its top."""
    parts = module.split(".")
    if parts[0] != "quorank" or len(parts) == 1:
        return None
    return parts[1] if (PACKAGE / parts[1]).is_dir() else None


def imported(path: Path) -> set[str]:
    """Every module of the package that a file imports, also inside functions."""
    folder = ["quorank", *path.relative_to(PACKAGE).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def test_the_test_sees_imports() -> None:
    assert "quorank.learning.pairs" in imported(PACKAGE / "learning" / "pdgd.py")
    assert room_of("quorank.learning.pairs") == "learning"
    assert room_of("quorank.errors") is None
    assert room_of("numpy.random") is None


def test_every_folder_is_a_room_of_the_house() -> None:
    folders = {path.split("/")[0] for path in FILES if "/" in path}
    assert folders <= {*ROOMS, *ANYWHERE}, "name the room in DESIGN.md and give it its place in the order"


@pytest.mark.parametrize("file", FILES)
def test_imports_point_upwards(file) -> None:
    room = file.split("/")[0] if "/" in file else None
    if room in ANYWHERE:
        return
    used = {r for r in map(room_of, imported(PACKAGE / file)) if r is not None}
    allowed = set() if room is None else set(ROOMS[: ROOMS.index(room) + 1])
    assert used <= allowed, (
        f"{file} uses {sorted(used - allowed)}, which {room or 'a top-level module'} may not"
    )


@pytest.mark.parametrize("file", FILES)
def test_no_file_is_longer_than_300_lines(file) -> None:
    assert len((PACKAGE / file).read_text(encoding="utf-8").splitlines()) <= 300

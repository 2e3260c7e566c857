"""Rules of the house (docs/architecture.md), checked on the source: imports, cycles, names, parts, errors."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import quorank

PACKAGE = Path(quorank.__file__).parent
ROOMS = [
    "data", "text", "rankers", "users", "metrics", "learning", "privacy", "federation", "attacks", "silos", "tuning",
    "experiments", "reports", "reproduce", "network", "cli",
]  # fmt: skip
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def module_of(file: str) -> str:
    """`learning/pdgd.py` is quorank.learning.pdgd."""
    parts = ("quorank", *Path(file).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


@cache
def tree_of(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"))


def imported(tree: ast.Module, package: list[str]) -> set[str]:
    """Every module of Quorank that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                below = f"{module}.{alias.name}"
                found.add(below if below in MODULES else module)
    return {name for name in found if name in MODULES}


def imports_of(file: str) -> set[str]:
    module = module_of(file)
    package = module.split(".") if file.endswith("__init__.py") else module.split(".")[:-1]
    return imported(tree_of(file), package)


def room_of(module: str) -> str | None:
    """The room of quorank.room.module; None for what stands at the front door."""
    name = module.split(".")[1] if "." in module else ""
    return name if (PACKAGE / name).is_dir() and name else None


def test_imports_are_seen_also_inside_functions() -> None:
    source = "def f():\n    from quorank.learning import pdgd\n    import quorank.errors\n"
    assert imported(ast.parse(source), ["quorank"]) == {"quorank.learning.pdgd", "quorank.errors"}
    assert room_of("quorank.learning.pairs") == "learning"
    assert room_of("quorank.errors") is None


def test_every_folder_is_a_room() -> None:
    assert {file.split("/")[0] for file in FILES if "/" in file} <= set(ROOMS)


@pytest.mark.parametrize("file", FILES)
def test_imports_point_upwards(file: str) -> None:
    room = room_of(module_of(file))
    allowed = set() if room is None else set(ROOMS[: ROOMS.index(room) + 1])
    used = {found for module in imports_of(file) if (found := room_of(module)) is not None}
    assert used <= allowed


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or not (Tarjan 1972)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in edges[module]:
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in edges:
        if module not in number:
            visit(module)
    return found


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]


def test_no_modules_import_each_other() -> None:
    edges = defaultdict(set, {module: imports_of(file) - {module} for module, file in MODULES.items()})
    assert cycles(edges) == []


PUBLIC_UNDERSCORES = {"_replace", "_fields", "_asdict", "_exit"}  # of namedtuple and os


@pytest.mark.parametrize("file", FILES)
def test_no_underscored_name_of_another_module(file: str) -> None:
    """Neither imported, nor reached through an object that this module does not define."""
    tree = tree_of(file)
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_self(node.value)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    bad = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("quorank"):
            bad += [a.name for a in node.names if a.name.startswith("_") and a.name != "__version__"]
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not is_self(node.value):
            allowed = node.attr.endswith("__") or node.attr in own | PUBLIC_UNDERSCORES
            bad += [] if allowed else [ast.unparse(node)]
    assert bad == []


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_a_class_name_occurs_once() -> None:
    places = defaultdict(list)
    for file in FILES:
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}

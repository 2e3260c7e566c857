"""Every `>>>` example in a docstring runs; methods of the Python interface have docstrings, their own or inherited."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import quorank

PACKAGE = Path(quorank.__file__).parent
SHOWN = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_examples_of_docstrings_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


@pytest.mark.parametrize("name", quorank.__all__)
def test_the_python_interface_is_documented(name: str) -> None:
    """Ruff asks for docstrings of functions and classes; here methods may inherit theirs."""
    public = getattr(quorank, name)
    assert inspect.getdoc(public)
    for method, value in inspect.getmembers(
        public, lambda value: inspect.isfunction(value) or isinstance(value, property)
    ):
        assert method.startswith("_") or inspect.getdoc(value), method

"""The package: what the wheel holds, what its index page says, and that planted faults are found."""

from __future__ import annotations

import shutil
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import package.__main__ as program
from quorank import __version__

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return program.build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    wheel, archive = built
    assert program.wheel_faults(wheel) == [] and program.archive_faults(archive) == []
    assert wheel.name == f"quorank-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        entry = packed.read(f"quorank-{__version__}.dist-info/entry_points.txt").decode()
    benches = sorted(name for name in names if name.startswith("quorank/benchmarks/"))
    assert [Path(name).stem for name in benches] == ["fleet", "reference", "secure_sum", "speed"]
    assert "quorank = quorank.cli.start:main" in entry


@pytest.mark.parametrize(
    "name", ["quorank/tests/test_x.py", "quorank/__pycache__/x.pyc", "tests/x.py", "quorank/data/x.npz", ".secret"]
)
def test_what_does_not_belong_into_a_wheel_is_found(built: tuple[Path, Path], name: str, tmp_path: Path) -> None:
    wheel = tmp_path / built[0].name
    shutil.copy(built[0], wheel)
    with zipfile.ZipFile(wheel, "a") as packed:
        packed.writestr(name, "x")
    assert any(name in fault for fault in program.wheel_faults(wheel))


def test_a_wheel_without_a_file_is_found(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as old, zipfile.ZipFile(wheel, "w") as new:
        for item in old.infolist():
            if item.filename not in ("quorank/py.typed", "quorank/experiments/files/fpdgd.toml"):
                new.writestr(item, old.read(item))
    told = " ".join(program.wheel_faults(wheel))
    assert "lacks quorank/experiments/files/fpdgd.toml" in told and "py.typed" in told


@pytest.mark.parametrize(
    ("page", "faults"),
    [
        ("[docs](docs/x.md)", 1),
        ("![plot](plot.png) and <img alt='x' src='y.png'>", 2),
        ("[site](https://example.org) [part](#part)", 0),
    ],
)
def test_relative_links_of_the_index_page_are_found(page: str, faults: int) -> None:
    head = (
        f"Name: quorank\nVersion: {__version__}\nRequires-Python: >=3.11\nLicense-Expression: Apache-2.0\n"
        "Description-Content-Type: text/markdown\nSummary: A ranker\n\n"
    )
    assert len(program.metadata_faults(message_from_string(head + page), __version__)) == faults
    assert len(program.metadata_faults(message_from_string(head + page), "9.9")) == faults + 1

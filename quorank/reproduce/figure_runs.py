"""Directory of a reproduced figure: its runs, and figure.json, which says what figure they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorank import __version__
from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment_file import ExperimentFile
from quorank.experiments.grid import Grid
from quorank.files.atomic import write_whole
from quorank.files.documents import json_bytes, read_json
from quorank.reproduce.figure import Figure, PaperFigure

IDENTITY = "figure.json"


@dataclass(frozen=True)
class FigureGrid(Grid):
    """Grid of a figure's cells; they are no product of axes, so `quorank run --resume` must not take them for one."""

    command: str = ""

    def toml(self) -> bytes:
        """Return the text of grid.toml: only a comment with the command that goes on with the runs."""
        return f"# The runs of a figure. To go on with them: {self.command}\n".encode()


def figure_grid(figure: Figure, folder: Path) -> FigureGrid:
    """Return the figure's cells for `run_grid` after reserving the directory; runs with other settings are refused."""
    if reserve_folder(figure, folder):
        for cell in figure.cells:
            begun = (folder / cell.name / storage.CONFIG).is_file()
            same = not begun or storage.read_experiment(folder / cell.name) == cell.experiment
            other = f"{cell.name} was run with other settings; choose another --out"
            require(same, "folder.taken", other, f"{folder}")
    return FigureGrid(ExperimentFile({}, figure.name), {}, figure.cells, figure.command)


def reserve_folder(figure: PaperFigure, folder: Path) -> bool:
    """Write figure.json into a new directory and return whether it was there; another figure's directory is refused."""
    where = f"{folder}"
    file = not folder.is_dir() and folder.exists()
    require(not file, "folder.taken", "this is a file; expected a directory for the figure", where)
    identity = {"figure": figure.name, "quick": figure.quick, "data": figure.data, "version": __version__}
    if (folder / IDENTITY).is_file():
        found = read_json(folder / IDENTITY)
        other = f"it holds {_words(found)}, not {_words(identity)}; choose another --out"
        require(found == identity, "folder.taken", other, where)
        return True
    if folder.is_dir() and any(folder.iterdir()):
        raise BadInput("folder.taken", "it holds something else than a figure; choose another --out", where)
    storage.make_folder(folder)
    write_whole(folder / IDENTITY, json_bytes(identity))
    return False


def _words(identity: Mapping[str, Any]) -> str:
    size = "the quick version of " if identity.get("quick") else ""
    own = f" on {identity['data']}" if identity.get("data") else ""
    return f"{size}{identity.get('figure')}{own} by Quorank {identity.get('version')}"

"""The directory of a figure: all of its runs, and a note of what they belong to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorank import __version__
from quorank.errors import BadInput
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment_file import ExperimentFile
from quorank.experiments.grid import Grid
from quorank.files import write_whole
from quorank.reproduce.figures import Figure
from quorank.reproduce.studies import Study

NOTE = "figure.json"


@dataclass(frozen=True)
class FigureGrid(Grid):
    """A figure's cells. They are no product of axes, so `quorank run --resume` must not take them for one."""

    command: str = ""

    def toml(self) -> bytes:
        return f"# The runs of a figure. To go on with them: {self.command}\n".encode()


def claim(figure: Figure, folder: Path, command: str) -> FigureGrid:
    """The figure's cells for `run_grid`, once the directory is known to be new or this figure's own."""
    if claim_folder(figure, folder):
        for cell in figure.cells:
            if (folder / cell.name / storage.CONFIG).is_file() and (
                storage.read_experiment(folder / cell.name) != cell.experiment
            ):
                raise BadInput(f"{folder}: {cell.name} was run with other settings; choose another --out")
    return FigureGrid(ExperimentFile({}, figure.name), {}, figure.cells, command)


def claim_folder(figure: Figure | Study, folder: Path) -> bool:
    """Whether the figure was here before; a directory that holds something else is refused."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder}: this is a file; expected a directory for the figure")
    note = {"figure": figure.name, "quick": figure.quick, "data": figure.data, "version": __version__}
    if (folder / NOTE).is_file():
        found = _read(folder / NOTE)
        if found != note:
            raise BadInput(f"{folder}: it holds {_words(found)}, not {_words(note)}; choose another --out")
        return True
    if folder.is_dir() and any(folder.iterdir()):
        raise BadInput(f"{folder}: it holds something else than a figure; choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be created ({error.strerror})") from None
    write_whole(folder / NOTE, storage.json_bytes(note))
    return False


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: damaged: not readable as JSON ({error})") from None


def _words(note: Any) -> str:
    if not isinstance(note, dict):
        return "a damaged note"
    size = "the quick version of " if note.get("quick") else ""
    own = f" on {note['data']}" if note.get("data") else ""
    return f"{size}{note.get('figure')}{own} by Quorank {note.get('version')}"

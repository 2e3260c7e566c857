"""Folder of a person's search: its place, its settings, and the lock of whoever writes to it.

The folder is its owner's alone (0700, files 0600). Reading needs no lock; one process at a time writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from quorank.errors import BadInput, require_choice
from quorank.files.atomic import ProcessLock, make_private_folder, write_whole
from quorank.files.documents import read_json, shape_of
from quorank.text.function_words import Language
from quorank.text.tokens import Tokeniser

SETTINGS, WRITING = "settings.json", "writing.lock"
BUSY = "another process is writing to this search; wait until it is done, or stop it"


@dataclass(frozen=True)
class SearchSettings:
    """What a person chose for their search."""

    language: Language = "english"  # of the stems and stop words

    def __post_init__(self) -> None:
        require_choice("language", self.language, get_args(Language))

    def tokeniser(self) -> Tokeniser:
        """Return the rule for what a term is."""
        return Tokeniser.for_language(self.language)


@dataclass(frozen=True)
class SearchHome:
    """Folder of a person's search: `SearchHome.open()` makes the usual one where there is none."""

    folder: Path

    @classmethod
    def open(cls, folder: Path | str | None = None) -> SearchHome:
        """Open a folder, by default that of this account, and make it private; one that is missing is made."""
        chosen = default_folder() if folder is None else Path(folder)
        make_private_folder(chosen)
        return cls(chosen.absolute())

    def settings(self) -> SearchSettings:
        """Read the settings; where none were written, the defaults."""
        path = self.folder / SETTINGS
        if not path.exists():
            return SearchSettings()
        return SearchSettings(**read_json(path, shape_of(SearchSettings), advice="; delete it to have the defaults"))

    def write_settings(self, settings: SearchSettings) -> None:
        """Write the settings whole or not at all."""
        write_whole(self.folder / SETTINGS, json.dumps(asdict(settings), indent=2), durable=True, private=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock inside the block; where another process or thread holds it, `folder.busy` is raised."""
        with ProcessLock(self.folder / WRITING).hold(BUSY):
            yield


def default_folder() -> Path:
    """Return $XDG_DATA_HOME/quorank/search, else ~/.local/share/quorank/search."""
    chosen = os.environ.get("XDG_DATA_HOME", "")
    if Path(chosen).is_absolute():
        return Path(chosen) / "quorank" / "search"
    try:
        return Path.home() / ".local" / "share" / "quorank" / "search"
    except RuntimeError:
        raise BadInput("folder.no-home", "this account has no home folder; choose one with --home") from None

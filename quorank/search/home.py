"""Folder of a person's search: its location, its settings, and the writer's lock.

The folder belongs to its owner alone (mode 0700, files 0600). Reading needs no lock; one process at a time writes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from quorank.errors import require, require_choice
from quorank.files.atomic import ProcessLock, make_folder, write_whole
from quorank.files.documents import json_bytes, read_json
from quorank.text.function_words import Language

SETTINGS, WRITING = "settings.json", "writing.lock"
BUSY = "another process is writing to this search; wait until it is done, or stop it"


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search.

    Args:
        language: Language of stems and stop words.

    >>> SearchSettings("german").language
    'german'
    """

    language: Language = "english"

    def __post_init__(self) -> None:
        require_choice("language", self.language, get_args(Language))


@dataclass(frozen=True)
class SearchHome:
    """Folder of a person's search; `SearchHome.open()` creates the default one if it is missing."""

    folder: Path

    @classmethod
    def open(cls, folder: Path | str | None = None) -> SearchHome:
        """Open a folder, by default that of this account, and make it private; a missing one is created."""
        if folder is None:
            from platformdirs import user_data_path

            folder = user_data_path("quorank", appauthor=False) / "search"
            sentence = "this account has no home folder; choose one with --home"
            require(folder.is_absolute(), "folder.no-home", sentence, f"{folder}")
        make_folder(Path(folder), private=True)
        return cls(Path(folder).absolute())

    def settings(self) -> SearchSettings:
        """Read the settings; without a file, the defaults."""
        path = self.folder / SETTINGS
        if not path.exists():
            return SearchSettings()
        found: SearchSettings = read_json(path, SearchSettings, advice="; delete it to have the defaults")
        return found

    def write_settings(self, settings: SearchSettings) -> None:
        """Write the settings atomically."""
        write_whole(self.folder / SETTINGS, json_bytes(settings), durable=True, private=True)

    def writing(self) -> AbstractContextManager[bool]:
        """Hold the writer's lock inside the block.

        Raises:
            BadInput: `folder.busy`, if another process or thread holds it.
        """
        return ProcessLock(self.folder / WRITING).hold(BUSY)

"""Where a coordinator keeps its checkpoint and the accepted replies of its open round, and the folder as such a place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from quorank.federation import wire
from quorank.federation.kept.checkpoint import Saved
from quorank.federation.kept.journal import Journal
from quorank.files.atomic import write_whole

CHECKPOINT, JOURNAL, BEGUN = "coordinator.state", "coordinator.journal", "secure.round"
"""Files of a folder: the checkpoint, the replies since, and which secure round was begun last."""


class Keeping(Protocol):
    """Whatever it has taken survives a kill. When a call raises OSError, nothing has changed."""

    @property
    def where(self) -> str:
        """What it is called in sentences."""

    def load(self) -> Saved | None:
        """The last checkpoint."""

    def accepted(self) -> Iterable[bytes]:
        """The replies that were accepted since, as far as their keeper has them and not whoever hands them in."""

    def append(self, replies: Sequence[wire.Reply]) -> None:
        """Keep replies before they count."""

    def save(self, saved: Saved) -> None:
        """Replace the checkpoint; the replies of its rounds are not needed any more."""

    def clear(self) -> None:
        """Drop replies of a round that is over."""

    def begin(self, round_: int) -> bool:
        """Note that a secure round has begun; False where it had before, so that its clients will not begin it again."""


class KeptInFolder:
    """A folder with a checkpoint and a journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def where(self) -> str:
        return f"{self.folder / CHECKPOINT}"

    @property
    def _journal(self) -> Journal:
        return Journal(self.folder / JOURNAL)

    def load(self) -> Saved | None:
        path = self.folder / CHECKPOINT
        return Saved.read(path) if path.is_file() else None

    def accepted(self) -> Iterable[bytes]:
        return self._journal.read()

    def append(self, replies: Sequence[wire.Reply]) -> None:
        self._journal.append([wire.encode_reply(reply) for reply in replies])

    def save(self, saved: Saved) -> None:
        """Replace the checkpoint; only then the journal of the round before may go."""
        saved.write(self.folder / CHECKPOINT)
        self.clear()

    def clear(self) -> None:
        self._journal.clear()

    def begin(self, round_: int) -> bool:
        path, number = self.folder / BEGUN, str(round_)
        if path.is_file() and path.read_text() == number:
            return False
        write_whole(path, number, durable=True)
        return True

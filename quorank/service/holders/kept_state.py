"""What a holder keeps in the service's store: a coordinator's checkpoint, with the committed replies as its journal, and
letters to members.

A checkpoint, the next task and the end of the round's replies are one transaction. So whoever takes over finds either the
open round with all replies that were committed to it, or the next one: the same bits in both cases. A reply that was
committed after the holder had last looked is in the round as well: the transaction is refused (`RepliesCame`), the reply
is taken in, and the round is closed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from quorank.federation.checkpoint import CoordinatorCheckpoint
from quorank.federation.reply import Reply
from quorank.protocol.messages import Publication
from quorank.protocol.transport import MailAnswer
from quorank.service.store.sql_store import Finished, SqlStore

Following = Callable[[CoordinatorCheckpoint], Publication | None]
"""The task that is published together with a checkpoint; None leaves the one that is there."""


class KeptInStore:
    """Documents `NAME` and `NAME secure` of a store, written by the holder of this epoch."""

    def __init__(self, store: SqlStore, epoch: int, name: str = "coordinator") -> None:
        self.store, self.epoch, self.name = store, epoch, name
        self.following: Following = lambda saved: None
        # documents of the same transaction
        self.beside: Callable[[CoordinatorCheckpoint], Mapping[str, bytes | None]] = lambda saved: {}
        self.taken: int | None = None  # the last reply of the open round that was handed in; None: nobody looks

    @property
    def where(self) -> str:
        return "the service's store"

    def load(self) -> CoordinatorCheckpoint | None:
        content = self.store.document(self.name)
        return None if content is None else CoordinatorCheckpoint.parse(content, self.where)

    def accepted(self) -> Iterable[bytes]:
        """Nothing: the holder reads the open round's replies again, with the members that they came from."""
        return ()

    def append(self, replies: Sequence[Reply]) -> None:
        """Nothing: they were committed before anybody handed them in."""

    def save(self, saved: CoordinatorCheckpoint) -> None:
        publication = self.following(saved)
        documents = {self.name: saved.to_bytes(), **self.beside(saved)}
        finished = Finished(saved.run, saved.state.round - 1, self.taken)
        if publication is None:
            self.store.keep(self.epoch, documents, finished)
        else:
            self.store.publish(self.epoch, publication, documents, finished)

    def clear(self) -> None:
        """Nothing: replies go with the checkpoint of their round."""

    def begin(self, round_: int) -> bool:
        name, number = f"{self.name} secure", str(round_).encode()
        if self.store.document(name) == number:
            return False
        self.store.keep(self.epoch, {name: number})
        return True

    def remove(self) -> None:
        """Drop what is kept."""
        self.store.keep(self.epoch, {self.name: None, f"{self.name} secure": None})


class HeldMailboxes:
    """The store's letters; HolderLost where another process holds the coordinator."""

    def __init__(self, store: SqlStore, epoch: int) -> None:
        self._store, self._epoch = store, epoch

    def send(self, letters: Sequence[tuple[int, bytes]]) -> list[int]:
        return self._store.send(self._epoch, letters)

    def answers(self) -> list[MailAnswer]:
        return [MailAnswer(one.id, one.member, one.answer or b"") for one in self._store.answers(self._epoch)]

    def unanswered(self) -> list[tuple[int, int]]:
        return self._store.unanswered()

    def forget(self, letters: Sequence[int] | None) -> None:
        self._store.forget(self._epoch, letters)

"""Storage of a coordinator in the memory of a test, which outlives the coordinator."""

from __future__ import annotations

from quorank.federation.storage import CoordinatorCheckpoint


class MemoryStorage:
    """`RoundStorage` whose checkpoint is kept as bytes."""

    where = "the test's memory"

    def __init__(self) -> None:
        self.saved: bytes | None = None
        self.begun: int | None = None

    def load(self) -> CoordinatorCheckpoint | None:
        return None if self.saved is None else CoordinatorCheckpoint.parse(self.saved, self.where)

    def save(self, saved: CoordinatorCheckpoint) -> None:
        self.saved = saved.to_bytes()

    def begin(self, round_: int) -> bool:
        fresh, self.begun = self.begun != round_, round_
        return fresh

"""Group commit: calls that arrive while a transaction is written are committed together by the next one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Condition, Thread

from quorank.errors import BadInput
from quorank.service.store.calls import Call, EnrolmentCall, Outcome
from quorank.service.store.sql_store import SqlStore

MOST_CALLS = 10_000
"""Calls that may wait for a transaction."""
MOST_BYTES = 1 << 26
"""Bytes of their bodies."""
GROUP = 1000
"""Calls of one transaction, so that other workers and the holder get their turn."""

_BUSY = Outcome("service.busy", "the service has more requests than it can write; ask again later")
_STORAGE = Outcome("service.storage", "the service cannot write at the moment; nothing was accepted, ask again later")


class Writer:
    """A thread that commits calls to a store of its own: `outcome = await writer.submit(call)`."""

    def __init__(self, store: SqlStore, most_calls: int = MOST_CALLS, most_bytes: int = MOST_BYTES) -> None:
        self.fault = ""  # code of what is wrong with the store, for /healthz; none once a transaction succeeds
        self._store, self._most_calls, self._most_bytes = store, most_calls, most_bytes
        self._waiting: list[tuple[Call | EnrolmentCall, asyncio.Future[Outcome]]] = []
        self._bytes, self._stopping, self._changed = 0, False, Condition()
        self._thread = Thread(target=self._write_groups, name="writer", daemon=True)
        self._thread.start()

    async def submit(self, call: Call | EnrolmentCall) -> Outcome:
        """Commit a call; `service.busy` where too many wait, `service.storage` where the store cannot be written."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        with self._changed:
            full = len(self._waiting) >= self._most_calls
            if self._stopping or full or (self._bytes and self._bytes + len(call.content) > self._most_bytes):
                return _BUSY
            self._waiting.append((call, future))
            self._bytes += len(call.content)
            self._changed.notify()
        return await future

    def stop(self) -> None:
        """Commit what waits, take nothing more, and end the thread; the store stays open."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _write_groups(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                group, self._waiting = self._waiting[:GROUP], self._waiting[GROUP:]
            if not group:
                return
            outcomes = self._commit([call for call, _ in group])
            with self._changed:
                self._bytes -= sum(len(call.content) for call, _ in group)
            with suppress(RuntimeError):  # the loop has ended: nobody waits for the answers
                group[0][1].get_loop().call_soon_threadsafe(_resolve, [future for _, future in group], outcomes)

    def _commit(self, calls: list[Call | EnrolmentCall]) -> list[Outcome]:
        try:
            outcomes = self._store.take(calls)
            self.fault = ""
        except Exception as error:  # whatever it is: nothing was confirmed, and the next group may be written
            self.fault = error.code if isinstance(error, BadInput) else "service.storage"
            outcomes = [_STORAGE] * len(calls)
        return outcomes


def _resolve(futures: list[asyncio.Future[Outcome]], outcomes: list[Outcome]) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if not future.done():  # its request may have been given up meanwhile
            future.set_result(outcome)

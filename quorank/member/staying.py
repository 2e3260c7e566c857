"""A device that stays: it is synced when it is time, serves its socket, and writes a log without anything private."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path

from quorank.errors import BadInput
from quorank.member.client import Client
from quorank.member.leaving import LOG
from quorank.member.local_socket import LocalSocket
from quorank.member.membership import FINAL, SyncReport

LONGEST_LOG, LOGS = 1 << 20, 3
"""Bytes of a log, which then begins anew, and how many older ones are kept."""

Search = Callable[[Client], None]
"""Lets a user search with the device until an update can be made: simulated users."""


def stay(client: Client, told: Callable[[SyncReport], None], search: Search | None = None) -> SyncReport:
    """Play the device until the run is over or the device has left; a refusal for good is raised.

    Where programs show lists by its socket, it stays for them also when the run is over.
    """
    woken = threading.Event()
    with LocalSocket(client, woken.set) as serving, _log(client.folder):
        while True:
            report = synced(client, search)
            told(report)
            logging.getLogger(__name__).info("%s %s", report.outcome, report.code)
            if report.outcome == "left" or (report.outcome == "over" and not serving.ranks):
                return report
            if report.code in FINAL:
                raise BadInput(report.code, report.sentence, f"{client.folder}")
            woken.wait(report.next)
            woken.clear()
            if client.closed:
                return SyncReport("left", 0.0)


def synced(client: Client, search: Search | None = None, *, force: bool = False) -> SyncReport:
    """One sync; where it waits for searches and somebody searches, it is done again afterwards."""
    report = client.sync(force=force)
    if search is not None and report.code == "device.waiting":
        search(client)
        report = client.sync(force=True)
    return report


@contextmanager
def _log(folder: Path) -> Iterator[None]:
    """Codes and sentences of this package go to a log in the device's folder."""
    path = folder / LOG
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    handler = RotatingFileHandler(path, maxBytes=LONGEST_LOG, backupCount=LOGS, encoding="utf-8", errors="replace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("quorank")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        handler.close()

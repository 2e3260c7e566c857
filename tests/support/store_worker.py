"""A process that works on a service's store, for tests that kill it: `python store_worker.py VERB FOLDER URL …`.

What it is about to commit, and what was accepted, is told line by line before it goes on.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

from quorank.service.store import Call, Publication, SqlStore, open_store


def started(verb: str, folder: Path, url: str, *words: object) -> subprocess.Popen[str]:
    """Start one; its lines are on its stdout."""
    command = [sys.executable, __file__, verb, str(folder), url, *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": ":".join(sys.path)}
    )


def content_of(round_: int, member: int, length: int = 200) -> bytes:
    """The reply of a member to a round."""
    return f"{round_}/{member}".encode().ljust(length, b".")


def _tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def hold(store: SqlStore) -> None:
    """Become the holder, and sleep."""
    epoch = store.hold()
    _tell(epoch=epoch)
    time.sleep(600.0)


def lock(store: SqlStore) -> None:
    """Begin a transaction, and sleep."""
    with store.database.transaction():
        _tell(locked=True)
        time.sleep(600.0)


def reply(store: SqlStore, first: int, count: int, group: int, rounds: int) -> None:
    """Answer every round for some members, in groups, until the run is over; go on where the store cannot be used."""
    done: set[tuple[int, int]] = set()
    while True:
        try:
            found = store.publication()
        except OSError:
            time.sleep(0.05)
            continue
        if found is not None and found.round > rounds:
            return
        left = [] if found is None else [m for m in range(first, first + count) if (found.round, m) not in done][:group]
        if found is None or not left:
            time.sleep(0.005)
            continue
        _commit(store, found, left, done)


def _commit(store: SqlStore, found: Publication, members: list[int], done: set[tuple[int, int]]) -> None:
    calls = [Call(m, secrets.token_bytes(16), "reply", found.number, content_of(found.round, m)) for m in members]
    sent = [(found.round, m) for m in members]
    _tell(sent=sent)
    try:
        outcomes = store.take(calls)
    except OSError:
        time.sleep(0.05)
        return
    _tell(accepted=[one for one, outcome in zip(sent, outcomes, strict=True) if not outcome.code])
    done.update(one for one, outcome in zip(sent, outcomes, strict=True) if outcome.code != "reply.other-round")


if __name__ == "__main__":
    verb, folder, url, *words = sys.argv[1:]
    opened = open_store(Path(folder), url)
    if verb == "reply":
        reply(opened, *map(int, words))
    else:
        {"hold": hold, "lock": lock}[verb](opened)

"""A device leaves: it erases its private state once the coordinator has confirmed its request (`federation.leaving`).

The order is: consent off and the request on disk; the confirmation; a note that the erasure has begun; the erasure; its
proof. A device that is killed anywhere in between sends the same request again, or goes on erasing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quorank.device.private_store import Erased, PrivateStore
from quorank.documents import read_json
from quorank.errors import BadInput
from quorank.federation.bundle import FILE
from quorank.federation.leaving import digest_of_request, receipt_of, request_of
from quorank.federation.terms import Terms
from quorank.files import write_whole
from quorank.private_file import LOCK, Damaged, files_of, wipe

LEFT = "left.json"


def leave(
    store: PrivateStore,
    terms: Terms,
    key: str,
    ask: Callable[[bytes], bytes],
    entropy: Callable[[int], bytes],
    clock: Callable[[], float] = time.time,
) -> Erased:
    """Ask to be forgotten, wait for the confirmation, erase all; the store is closed afterwards."""
    request = store.fact("leaving")
    if request is None:
        request = request_of(terms, key, clock(), entropy(16))
        with store.transaction():
            store.set_consent(False, clock())
            store.set_fact("leaving", request)
    if ask(request) != receipt_of(request):
        raise BadInput(
            "leaving.not-confirmed",
            "the coordinator did not confirm that this client leaves; nothing was erased; try again later",
        )
    note: dict[str, Any] = {
        "run": terms.run,
        "client": terms.client,
        "request": digest_of_request(request),
        "at": clock(),
    }
    write_whole(store.folder / LEFT, json.dumps(note | {"erased": None}), durable=True)
    return finish(store, note)


def finish(store: PrivateStore, note: dict[str, Any]) -> Erased:
    """Erase all of a client whose leaving was confirmed, and write the proof."""
    return _proven(store.folder, note, store.erase([store.folder / FILE]))


def resume(folder: Path, note: dict[str, Any]) -> Erased:
    """Go on with an erasure that was cut short, also where it left only a part of the file."""
    try:
        store = PrivateStore(folder)
    except Damaged:
        doomed = [*files_of(folder), folder / LOCK, folder / FILE]
        names = tuple(path.name for path in doomed if path.exists())
        return _proven(folder, note, Erased(names, wipe(doomed), 0, 0))
    return finish(store, note)


def _proven(folder: Path, note: dict[str, Any], erased: Erased) -> Erased:
    write_whole(folder / LEFT, json.dumps(note | {"erased": asdict(erased)}, indent=1), durable=True)
    return erased


def left(folder: Path) -> dict[str, Any] | None:
    """What a client that has left wrote down, `erased` being None where the erasure was cut short."""
    path = folder / LEFT
    if not path.exists():
        return None
    found: dict[str, Any] = read_json(path, advice="; delete it, and repeat the command")
    return found

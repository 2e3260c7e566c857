"""A device leaves: it erases its private state once the service has confirmed its request (`federation.members.leaving`).

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

from quorank.files.atomic import write_whole
from quorank.files.documents import read_json
from quorank.files.private_database import Damaged, wipe
from quorank.member.device_database import LOCK, files_of
from quorank.member.private_store import Erased, PrivateStore
from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import AgreedTerms, leaving_digest, leaving_request

LEFT, LOG = "left.json", "join.log"
REQUEST, HEARD = "leaving", "leaving heard"
"""Facts of a device that leaves: its request, and that the service has it."""


def begin(
    store: PrivateStore,
    terms: AgreedTerms,
    key: MemberKey,
    entropy: Callable[[int], bytes],
    clock: Callable[[], float] = time.time,
) -> bytes:
    """Withdraw consent, and put the request on disk; a device that has asked before asks the same."""
    request = store.fact(REQUEST)
    if request is None:
        request = leaving_request(terms, key, clock(), entropy(16))
        with store.transaction():
            store.set_consent(False, clock())
            store.set_fact(REQUEST, request)
    return request


def complete(store: PrivateStore, terms: AgreedTerms, request: bytes, clock: Callable[[], float] = time.time) -> Erased:
    """Erase all of a device whose request was confirmed; the store is closed afterwards."""
    note: dict[str, Any] = {"run": terms.run, "client": terms.client, "request": leaving_digest(request), "at": clock()}
    write_whole(store.folder / LEFT, json.dumps(note | {"erased": None}), durable=True)
    return _proven(store.folder, note, store.erase(_beside(store.folder)))


def resume(folder: Path, note: dict[str, Any]) -> Erased:
    """Go on with an erasure that was cut short, also where it left only a part of the file."""
    try:
        store = PrivateStore(folder)
    except Damaged:
        doomed = [*files_of(folder), folder / LOCK, *_beside(folder)]
        names = tuple(path.name for path in doomed if path.exists())
        return _proven(folder, note, Erased(names, wipe(doomed), 0, 0))
    return _proven(folder, note, store.erase(_beside(folder)))


def _beside(folder: Path) -> list[Path]:
    """What goes with the private file: the log of the process that played the device."""
    return sorted(folder.glob(f"{LOG}*"))


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

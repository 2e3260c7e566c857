"""A client leaves: it asks to be forgotten in its own name, and erases its private state once the coordinator confirms.

The request is one line of JSON and an ECDSA signature (P-384, SHA-384) by the node's key over it, so nobody can have
another client forgotten. The confirmation names the request's digest. The order is: consent off and the request on disk;
the confirmation; a note that the erasure has begun; the erasure; its proof. A device that is killed anywhere in between
sends the same request again, or goes on erasing.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quorank.documents import read_json
from quorank.errors import BadInput, require
from quorank.files import write_whole
from quorank.network.bundle import FILE
from quorank.network.private_file import LOCK, Damaged, files_of, wipe
from quorank.network.private_store import Erased, PrivateStore
from quorank.network.terms import Terms

LEFT = "left.json"
_MARK = "quorank leave"
_MALFORMED = "a request to leave is malformed; it is refused"


@dataclass(frozen=True)
class Leaving:
    """A request whose signature was checked."""

    run: str
    client: int
    at: float
    digest: str


def request_of(terms: Terms, key: str, at: float, nonce: bytes) -> bytes:
    """Ask to be forgotten, signed by the node's private key (PEM)."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    fields = {"format": _MARK, "run": terms.run, "client": terms.client, "at": at, "nonce": nonce.hex()}
    line = json.dumps(fields, sort_keys=True).encode()
    try:
        private = serialization.load_ssh_private_key(key.encode(), None)
    except (ValueError, UnsupportedAlgorithm):
        raise BadInput("invitation.key", "the invitation's key cannot be read; ask for a new invitation") from None
    require(
        isinstance(private, ec.EllipticCurvePrivateKey),
        "invitation.key",
        "the invitation's key is of another kind; ask for a new one",
    )
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return line + b"\n" + private.sign(line, ec.ECDSA(hashes.SHA384())).hex().encode()


def check_request(request: bytes, run: str, keys: dict[int, bytes]) -> Leaving:
    """The coordinator's side: who leaves, if the signature is that of the key which this client is known by."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    line, _, signature = request.partition(b"\n")
    try:
        require(len(request) <= 4096, "leaving.malformed", _MALFORMED)
        found: Any = json.loads(line)
        require(found["format"] == _MARK and isinstance(found["client"], int), "leaving.malformed", _MALFORMED)
        require(found["run"] == run, "leaving.other-run", "the request is of another run; it is refused")
        require(
            found["client"] in keys,
            "leaving.unknown-client",
            "the request names a client that is not known; it is refused",
        )
        public = serialization.load_ssh_public_key(keys[found["client"]])
        assert isinstance(public, ec.EllipticCurvePublicKey)
        public.verify(bytes.fromhex(signature.decode("ascii")), line, ec.ECDSA(hashes.SHA384()))
        return Leaving(run, found["client"], float(found["at"]), _digest(request))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput("leaving.malformed", _MALFORMED) from None
    except InvalidSignature:
        raise BadInput(
            "leaving.unsigned", "the request is not signed by the client that it names; it is refused"
        ) from None


def receipt_of(request: bytes) -> bytes:
    """What the coordinator answers once the client's part is out of the run, or certain to be taken out."""
    return b"quorank left " + _digest(request).encode()


def _digest(request: bytes) -> str:
    return hashlib.blake2b(request, digest_size=16).hexdigest()


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
    note: dict[str, Any] = {"run": terms.run, "client": terms.client, "request": _digest(request), "at": clock()}
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

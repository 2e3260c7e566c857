"""Bundles of byte strings, in messages and on sockets between processes of one machine.

A bundle holds the number of its parts, their lengths, and the parts. This module is imported first by short-lived
processes, so it imports only the standard library.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from quorank.errors import require

LARGEST = 1 << 30  # maximum bytes of a bundle

MOST = 1 << 20  # maximum number of parts

_COUNT = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_MALFORMED = "a bundle is malformed: its lengths do not match its bytes"


def pack(parts: Sequence[bytes]) -> bytes:
    """Encode the parts as one byte string."""
    lengths = struct.pack(f"<{len(parts)}I", *map(len, parts))
    return b"".join([_COUNT.pack(len(parts)), lengths, *parts])


def unpack(bundle: bytes) -> list[bytes]:
    """Decode a bundle; errors quote nothing of it."""
    require(_COUNT.size <= len(bundle) <= LARGEST, "bundle.malformed", _MALFORMED)
    (count,) = _COUNT.unpack_from(bundle)
    at = _COUNT.size * (1 + count)
    require(count <= MOST and at <= len(bundle), "bundle.malformed", _MALFORMED)
    parts = []
    for length in struct.unpack_from(f"<{count}I", bundle, _COUNT.size):
        require(at + length <= len(bundle), "bundle.malformed", _MALFORMED)
        parts.append(bundle[at : at + length])
        at += length
    require(at == len(bundle), "bundle.malformed", _MALFORMED)
    return parts


def send(connection: socket.socket, parts: Sequence[bytes]) -> None:
    """Write one bundle to a socket."""
    bundle = pack(parts)
    connection.sendall(_LENGTH.pack(len(bundle)) + bundle)


def receive(connection: socket.socket) -> list[bytes]:
    """Read one bundle from a socket; EOFError when the other side has closed it."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    require(length <= LARGEST, "bundle.malformed", _MALFORMED)
    return unpack(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    pieces = []
    while count:
        piece = connection.recv(min(count, 1 << 20))
        if not piece:
            raise EOFError
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)

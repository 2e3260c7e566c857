"""Targets of `quorank.federation` and of the frames that carry its messages: tasks, replies, checkpoints."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from fuzz.target import sealed_archive, target
from quorank.errors import BadInput
from quorank.federation.reply import Reply, Task, decode_reply, decode_task, encode_reply, encode_task
from quorank.federation.storage import CoordinatorCheckpoint
from quorank.protocol import frames

_HEAD = (
    b'"run":',
    b'"round":',
    b'"lengths":[',
    b'"clients":[',
    b'"private":[',
    b"null",
    b"-1",
    b"1e99",
    b"[[" * 500,
    b"\\ud800",
    b"9" * 4400,
)


def _long_task() -> dict[str, bytes]:
    return {"a header of 27 MB": _long(encode_task(Task("r", 0, np.zeros(1))))}


def _long_reply() -> dict[str, bytes]:
    return {"a header of 27 MB": _long(encode_reply(Reply("r", 0, 0, np.zeros(1), 1)))}


def _long(message: bytes) -> bytes:
    """A message whose header is a list of nine million lists."""
    text = b'{"run":"r","lengths":[' + b"[]," * 9_000_000 + b"[]]}"
    begin = message.index(b"{")
    return message[: begin - 4] + len(text).to_bytes(4, "little") + text


@target("wire-task", words=_HEAD, made=_long_task)
def wire_task(data: bytes) -> None:
    """A task; what is read and written again is the same."""
    task = decode_task(data)
    again = encode_task(task)
    assert encode_task(decode_task(again)) == again, "a task that was written is read as another one"


@target("wire-reply", words=_HEAD, made=_long_reply)
def wire_reply(data: bytes) -> None:
    """A reply; what is read and written again is the same."""
    again = encode_reply(decode_reply(data))
    assert encode_reply(decode_reply(again)) == again, "a reply that was written is read as another one"


@target("frames")
def bundle(data: bytes) -> None:
    """A bundle of parts; its bytes are the only ones that it has."""
    assert frames.pack(frames.unpack(data)) == data, "a bundle is written otherwise than it was read"


@target("frames-stream")
def stream(data: bytes) -> None:
    """Bundles that come in pieces are the same as those that come at once."""

    def all_of(pieces: list[bytes]) -> list[list[bytes]] | str:
        left = list(reversed(pieces))
        connection: Any = SimpleNamespace(recv=lambda most: piece_of(left, most))
        found = []
        try:
            while True:
                found.append(frames.receive(connection))
        except EOFError:
            return found
        except BadInput as error:
            return error.code

    def piece_of(left: list[bytes], most: int) -> bytes:
        piece = left.pop() if left else b""
        if len(piece) > most:
            left.append(piece[most:])
        return piece[:most]

    whole, cut = all_of([data]), all_of([data[i : i + 7] for i in range(0, len(data), 7)])
    if isinstance(whole, str):
        raise BadInput(whole, "refused")
    assert whole == cut, "bundles in pieces are other ones"


@target("coordinator-checkpoint", "zip")
def coordinator_checkpoint(data: bytes) -> None:
    """A coordinator's checkpoint, whose digest fits."""
    CoordinatorCheckpoint.parse(sealed_archive(data), "checkpoint").to_bytes()

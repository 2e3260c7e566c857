"""Tasks and replies as bytes, for whatever carries them.

A message is `QRNK`, its kind and protocol version, a header in JSON, and the numbers as little-endian doubles. Decoding
believes nothing: what is too long, too short, of another version or not what its header says is refused with a sentence
that quotes nothing of its content.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import BadInput, require

Memory = dict[str, Doubles]

PROTOCOL = 1
LARGEST = 1 << 28
"""No message is longer than this many bytes: thirty million numbers."""

_HEAD = struct.Struct("<4sBHI")
_MAGIC = b"QRNK"
_TASK, _REPLY = 1, 2
_NAMES = {_TASK: "task", _REPLY: "reply"}


@dataclass(frozen=True, eq=False)
class Task:
    """What a coordinator hands to the clients of a round."""

    run: str  # which run it belongs to
    round: int  # rounds done before it
    theta: Doubles  # θ
    private: Memory = field(default_factory=dict)  # what the privacy mechanism tells clients, such as its clip
    clients: tuple[int, ...] = ()  # whom the receiver plays, where it plays several; empty: itself


@dataclass(frozen=True, eq=False)
class Reply:
    """What a client sends back: its release and what it weighs."""

    run: str
    round: int
    client: int
    release: Doubles
    interactions: int  # n_c
    within: bool = False  # whether its update was within the clip
    # of simulated users; devices send zeros, or a private figure and zeros (`reporting`)
    statistics: tuple[float, float, float] = (0.0, 0.0, 0.0)


def encode_task(task: Task) -> bytes:
    names = sorted(task.private)
    header = {"run": task.run, "round": task.round, "clients": list(task.clients), "private": names}
    return _encode(_TASK, header, [task.theta, *(task.private[name] for name in names)])


def decode_task(data: bytes) -> Task:
    header, arrays = _decode(_TASK, data)
    names, clients = _list(_TASK, header, "private"), _list(_TASK, header, "clients")
    _expect(_TASK, all(isinstance(name, str) for name in names) and len(arrays) == 1 + len(names))
    _expect(_TASK, all(_whole(client) for client in clients))
    private = dict(zip(names, arrays[1:], strict=True))
    return Task(_text(_TASK, header, "run"), _count(_TASK, header, "round"), arrays[0], private, (*clients,))


def encode_reply(reply: Reply) -> bytes:
    header = {
        "run": reply.run,
        "round": reply.round,
        "client": reply.client,
        "interactions": reply.interactions,
        "within": reply.within,
    }
    return _encode(_REPLY, header, [reply.release, np.array(reply.statistics, dtype=np.float64)])


def decode_reply(data: bytes) -> Reply:
    header, arrays = _decode(_REPLY, data)
    _expect(_REPLY, len(arrays) == 2 and len(arrays[1]) == 3 and isinstance(header.get("within"), bool))
    first, second, third = (float(value) for value in arrays[1])
    return Reply(
        _text(_REPLY, header, "run"),
        _count(_REPLY, header, "round"),
        _count(_REPLY, header, "client"),
        arrays[0],
        _count(_REPLY, header, "interactions"),
        header["within"],
        (first, second, third),
    )


def _encode(kind: int, header: dict[str, Any], arrays: list[Doubles]) -> bytes:
    for array in arrays:
        require(
            array.ndim == 1, f"{_NAMES[kind]}.shape", f"a {_NAMES[kind]} holds rows of numbers, got shape {array.shape}"
        )
    text = json.dumps(header | {"lengths": [len(array) for array in arrays]}, separators=(",", ":")).encode()
    return b"".join(
        [
            _HEAD.pack(_MAGIC, kind, PROTOCOL, len(text)),
            text,
            *(np.ascontiguousarray(array, dtype="<f8").tobytes() for array in arrays),
        ]
    )


def _decode(kind: int, data: bytes) -> tuple[dict[str, Any], list[Doubles]]:
    require(
        len(data) <= LARGEST,
        f"{_NAMES[kind]}.too-long",
        f"a {_NAMES[kind]} of {len(data)} bytes is longer than {LARGEST} bytes: it is refused",
    )
    _expect(kind, len(data) >= _HEAD.size)
    magic, found, version, length = _HEAD.unpack_from(data)
    _expect(kind, magic == _MAGIC and found == kind and _HEAD.size + length <= len(data))
    require(
        version == PROTOCOL,
        f"{_NAMES[kind]}.protocol",
        f"a {_NAMES[kind]} speaks protocol {version}, and this Quorank speaks {PROTOCOL}: install the same version on both",
    )
    try:
        header = json.loads(data[_HEAD.size : _HEAD.size + length])
    except (ValueError, RecursionError):
        raise _malformed(kind) from None
    _expect(kind, isinstance(header, dict))
    lengths = _list(kind, header, "lengths")
    _expect(kind, all(_whole(length) for length in lengths))
    _expect(kind, _HEAD.size + length + 8 * sum(lengths) == len(data))
    numbers = np.frombuffer(data, dtype="<f8", offset=_HEAD.size + length).astype(np.float64)
    return header, np.split(numbers, np.cumsum(lengths)[:-1]) if lengths else []


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _count(kind: int, header: dict[str, Any], key: str) -> int:
    _expect(kind, _whole(header.get(key)))
    return int(header[key])


def _text(kind: int, header: dict[str, Any], key: str) -> str:
    value = header.get(key)
    _expect(kind, isinstance(value, str) and len(value) <= 200)
    return str(value)


def _list(kind: int, header: dict[str, Any], key: str) -> list[Any]:
    value = header.get(key)
    _expect(kind, isinstance(value, list))
    return list(value or [])


def _expect(kind: int, condition: bool) -> None:
    if not condition:
        raise _malformed(kind)


def _malformed(kind: int) -> BadInput:
    return BadInput(
        f"{_NAMES[kind]}.malformed",
        f"a {_NAMES[kind]} is malformed: its bytes are not what its header says; it is refused",
    )

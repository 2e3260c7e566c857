"""Wire format of tasks and replies.

A message is `QRNK`, its kind and protocol version, a header in JSON, and the numbers as little-endian doubles. Decoding
believes nothing: what is too long, too short, of another version or not what its header says is refused with a sentence
that quotes nothing of its content. What a header may hold is bounded before it is parsed, because lists of JSON take
many times the memory of their text: a message costs its receiver a small multiple of its own size.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorank.errors import BadInput, require
from quorank.files.documents import load_json
from quorank.kernels.arrays import Doubles

Memory = dict[str, Doubles]

PROTOCOL = 1
LARGEST_MESSAGE = 1 << 28
"""No message is longer than this many bytes: thirty million numbers."""

_HEAD = struct.Struct("<4sBHI")
_MAGIC = b"QRNK"
_TASK, _REPLY = 1, 2
_NAMES = {_TASK: "task", _REPLY: "reply"}
_LONGEST_HEADER = {_TASK: 1 << 23, _REPLY: 1 << 12}
"""Bytes: a task may name a million clients, a reply names one and its run."""
_MOST_MARKS = {_TASK: 1 << 12, _REPLY: 1 << 9}
"""Quotes and brackets of a header: what a list of whole numbers does not have."""


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _wholes(value: object) -> bool:
    return isinstance(value, list) and all(_whole(one) for one in value)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 200


def _truth(value: object) -> bool:
    return isinstance(value, bool)


_HEADERS: dict[int, dict[str, Callable[[object], bool]]] = {
    _TASK: {"run": _text, "round": _whole, "clients": _wholes, "private": _texts},
    _REPLY: {"run": _text, "round": _whole, "client": _whole, "interactions": _whole, "within": _truth},
}
"""What the header of each kind of message holds, in its order, and what it must be."""


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
    # of simulated users; devices send zeros, or a private figure and zeros (`Coordinator.figure`)
    statistics: tuple[float, float, float] = (0.0, 0.0, 0.0)


def encode_task(task: Task) -> bytes:
    """Return a task as bytes."""
    names = sorted(task.private)
    header = {"run": task.run, "round": task.round, "clients": list(task.clients), "private": names}
    return _encode(_TASK, header, [task.theta, *(task.private[name] for name in names)])


def decode_task(data: bytes) -> Task:
    """Return the task that the bytes are; anything else is refused."""
    header, arrays = _decode(_TASK, data)
    _expect(_TASK, len(arrays) == 1 + len(header["private"]))
    private = dict(zip(header["private"], arrays[1:], strict=True))
    return Task(header["run"], header["round"], arrays[0], private, (*header["clients"],))


def encode_reply(reply: Reply) -> bytes:
    """Return a reply as bytes."""
    header = {key: getattr(reply, key) for key in _HEADERS[_REPLY]}
    return _encode(_REPLY, header, [reply.release, np.array(reply.statistics, dtype=np.float64)])


def longest_reply(parameters: int) -> int:
    """Return the most bytes of a reply whose release has so many numbers."""
    return _HEAD.size + _LONGEST_HEADER[_REPLY] + 8 * (parameters + 3)


def decode_reply(data: bytes, parameters: int | None = None) -> Reply:
    """Return the reply that the bytes are; anything else is refused.

    Who knows how many `parameters` a release has refuses what is longer before it is read.
    """
    if parameters is not None:
        most = longest_reply(parameters)
        sentence = f"a reply of {len(data)} bytes is longer than {most} bytes, what this run takes: it is refused"
        require(len(data) <= most, "reply.too-long", sentence)
    header, arrays = _decode(_REPLY, data)
    _expect(_REPLY, len(arrays) == 2 and len(arrays[1]) == 3)
    first, second, third = arrays[1].tolist()
    told = {key: header[key] for key in _HEADERS[_REPLY]}
    return Reply(release=arrays[0], statistics=(first, second, third), **told)


def _encode(kind: int, header: dict[str, Any], arrays: list[Doubles]) -> bytes:
    name = _NAMES[kind]
    for array in arrays:
        require(array.ndim == 1, f"{name}.shape", f"a {name} holds rows of numbers, got shape {array.shape}")
    text = json.dumps(header | {"lengths": [len(array) for array in arrays]}, separators=(",", ":")).encode()
    numbers = (np.ascontiguousarray(array, dtype="<f8").tobytes() for array in arrays)
    return b"".join([_HEAD.pack(_MAGIC, kind, PROTOCOL, len(text)), text, *numbers])


def _decode(kind: int, data: bytes) -> tuple[dict[str, Any], list[Doubles]]:
    name = _NAMES[kind]
    sentence = f"a {name} of {len(data)} bytes is longer than {LARGEST_MESSAGE} bytes: it is refused"
    require(len(data) <= LARGEST_MESSAGE, f"{name}.too-long", sentence)
    _expect(kind, len(data) >= _HEAD.size)
    magic, found, version, length = _HEAD.unpack_from(data)
    _expect(kind, magic == _MAGIC and found == kind and _HEAD.size + length <= len(data))
    sentence = f"a {name} speaks protocol {version}, and this Quorank speaks {PROTOCOL}: install the same version"
    require(version == PROTOCOL, f"{name}.protocol", sentence)
    text = data[_HEAD.size : _HEAD.size + length]
    marks = sum(text.count(mark) for mark in (b'"', b"[", b"{"))
    _expect(kind, length <= _LONGEST_HEADER[kind] and marks <= _MOST_MARKS[kind])
    try:
        header = load_json(text)
    except ValueError:
        raise _malformed(kind) from None
    _expect(kind, isinstance(header, dict))
    _expect(kind, all(right(header.get(key)) for key, right in (_HEADERS[kind] | {"lengths": _wholes}).items()))
    lengths = header["lengths"]
    _expect(kind, _HEAD.size + length + 8 * sum(lengths) == len(data))
    numbers = np.frombuffer(data, dtype="<f8", offset=_HEAD.size + length).astype(np.float64)
    ends = list(itertools.accumulate(lengths))
    return header, [numbers[end - length : end] for length, end in zip(lengths, ends, strict=True)]


def _expect(kind: int, condition: bool) -> None:
    if not condition:
        raise _malformed(kind)


def _malformed(kind: int) -> BadInput:
    sentence = f"a {_NAMES[kind]} is malformed: its bytes are not what its header says; it is refused"
    return BadInput(f"{_NAMES[kind]}.malformed", sentence)

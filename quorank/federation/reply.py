"""Task and reply of a round, and their bytes.

A message is `QRNK`, its kind and protocol version, a header in JSON, and the numbers as little-endian doubles. Decoding
checks everything and quotes nothing of an invalid message. The header is bounded before it is parsed, because JSON lists
take many times the memory of their text: a message costs its receiver a small multiple of its size.
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
"""Limit on the bytes of a message: thirty million numbers."""

_HEAD = struct.Struct("<4sBHI")
_MAGIC = b"QRNK"
_TASK, _REPLY = 1, 2
_NAMES = {_TASK: "task", _REPLY: "reply"}
_LONGEST_HEADER = {_TASK: 1 << 23, _REPLY: 1 << 12}
"""Limits in bytes: a task may name a million clients, a reply names one and its run."""
_MOST_MARKS = {_TASK: 1 << 12, _REPLY: 1 << 9}
"""Limits on quotes and brackets in a header; a list of integers has none."""


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_integers(value: object) -> bool:
    return isinstance(value, list) and all(_is_integer(one) for one in value)


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_string(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 200


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


_HEADERS: dict[int, dict[str, Callable[[object], bool]]] = {
    _TASK: {"run": _is_string, "round": _is_integer, "clients": _is_integers, "private": _is_strings},
    _REPLY: {
        "run": _is_string,
        "round": _is_integer,
        "client": _is_integer,
        "interactions": _is_integer,
        "within": _is_boolean,
    },
}
"""Keys of each header, in their order, with the check of their values."""


@dataclass(frozen=True, eq=False)
class Task:
    """Task of a round, as published to its clients."""

    run: str
    round: int  # rounds done before it
    theta: Doubles  # θ
    private: Memory = field(default_factory=dict)  # state of the privacy mechanism, such as its clip
    clients: tuple[int, ...] = ()  # clients that a receiver plays; empty for a single client


@dataclass(frozen=True, eq=False)
class Reply:
    """Reply of a client: its release and the weight of it."""

    run: str
    round: int
    client: int
    release: Doubles
    interactions: int  # n_c
    within: bool = False  # the update was within the clip
    # nDCG, MaxRR and clicks of simulated users; devices send zeros, or a metric response and zeros
    statistics: tuple[float, float, float] = (0.0, 0.0, 0.0)


def encode_task(task: Task) -> bytes:
    """Return a task as bytes."""
    names = sorted(task.private)
    header = {"run": task.run, "round": task.round, "clients": list(task.clients), "private": names}
    return _encode(_TASK, header, [task.theta, *(task.private[name] for name in names)])


def decode_task(data: bytes) -> Task:
    """Decode a task; refuse anything else."""
    header, arrays = _decode(_TASK, data)
    _expect(_TASK, len(arrays) == 1 + len(header["private"]))
    private = dict(zip(header["private"], arrays[1:], strict=True))
    return Task(header["run"], header["round"], arrays[0], private, (*header["clients"],))


def encode_reply(reply: Reply) -> bytes:
    """Return a reply as bytes."""
    header = {key: getattr(reply, key) for key in _HEADERS[_REPLY]}
    return _encode(_REPLY, header, [reply.release, np.array(reply.statistics, dtype=np.float64)])


def longest_reply(parameters: int) -> int:
    """Return the largest size of a reply with this number of parameters, bytes."""
    return _HEAD.size + _LONGEST_HEADER[_REPLY] + 8 * (parameters + 3)


def decode_reply(data: bytes, parameters: int | None = None) -> Reply:
    """Decode a reply; refuse anything else, and a reply longer than one of `parameters` numbers before it is read."""
    if parameters is not None:
        most = longest_reply(parameters)
        sentence = f"a reply of {len(data)} bytes is longer than this run's limit of {most} bytes: it is refused"
        require(len(data) <= most, "reply.too-long", sentence)
    header, arrays = _decode(_REPLY, data)
    _expect(_REPLY, len(arrays) == 2 and len(arrays[1]) == 3)
    first, second, third = arrays[1].tolist()
    fields = {key: header[key] for key in _HEADERS[_REPLY]}
    return Reply(release=arrays[0], statistics=(first, second, third), **fields)


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
    _expect(kind, all(right(header.get(key)) for key, right in (_HEADERS[kind] | {"lengths": _is_integers}).items()))
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

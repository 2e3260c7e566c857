"""Task and reply of a round, their bytes, and the bounds on a reply.

A message is `QRNK`, its kind and protocol version, a header in JSON, and the numbers as little-endian doubles. Decoding
checks everything and quotes nothing of an invalid message. The header is bounded before it is parsed, because JSON lists
take many times the memory of their text: a message costs its receiver a small multiple of its size.
"""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import numpy as np

from quorank.errors import BadInput, require
from quorank.files.codec import Length, Range, encode
from quorank.files.documents import parse_json
from quorank.kernels.arrays import Doubles
from quorank.kernels.exact_sums import LARGEST, LARGEST_SUM
from quorank.privacy.mechanisms.clipping import ReleaseBound

Memory = dict[str, Doubles]
H = TypeVar("H", "TaskHeader", "ReplyHeader")

PROTOCOL = 1
LARGEST_MESSAGE = 1 << 28  # limit on the bytes of a message: thirty million numbers

_HEAD = struct.Struct("<4sBHI")
_MAGIC = b"QRNK"
_TASK, _REPLY = 1, 2
_NAMES = {_TASK: "task", _REPLY: "reply"}
_LONGEST_HEADER = {_TASK: 1 << 23, _REPLY: 1 << 12}
"""Limits in bytes: a task may name a million clients, a reply names one and its run."""
_MOST_MARKS = {_TASK: 1 << 12, _REPLY: 1 << 9}  # limits on quotes and brackets in a header; a list of integers has none


Count = Annotated[int, Range(0, 2**53 - 1)]
RunName = Annotated[str, Length(200)]


@dataclass(frozen=True)
class TaskHeader:
    """Header of a task; `private` names the arrays of the privacy mechanism in their order."""

    run: RunName
    round: Count
    clients: tuple[Count, ...]
    private: tuple[str, ...]
    lengths: tuple[Count, ...]


@dataclass(frozen=True)
class ReplyHeader:
    """Header of a reply."""

    run: RunName
    round: Count
    client: Count
    interactions: Count
    within: bool
    lengths: tuple[Count, ...]


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
    names = tuple(sorted(task.private))
    arrays = [task.theta, *(task.private[name] for name in names)]
    return _encode(_TASK, TaskHeader(task.run, task.round, task.clients, names, _lengths(arrays)), arrays)


def decode_task(data: bytes) -> Task:
    """Decode a task; refuse anything else."""
    header, arrays = _decode(_TASK, TaskHeader, data)
    _expect(_TASK, len(arrays) == 1 + len(header.private))
    private = dict(zip(header.private, arrays[1:], strict=True))
    return Task(header.run, header.round, arrays[0], private, header.clients)


def encode_reply(reply: Reply) -> bytes:
    """Return a reply as bytes."""
    arrays = [reply.release, np.array(reply.statistics, dtype=np.float64)]
    named = (reply.run, reply.round, reply.client, reply.interactions, reply.within)
    return _encode(_REPLY, ReplyHeader(*named, _lengths(arrays)), arrays)


def longest_reply(parameters: int) -> int:
    """Return the largest size of a reply with this number of parameters, bytes."""
    return _HEAD.size + _LONGEST_HEADER[_REPLY] + 8 * (parameters + 3)


def decode_reply(data: bytes, parameters: int | None = None) -> Reply:
    """Decode a reply; refuse anything else, and a reply longer than one of `parameters` numbers before it is read."""
    if parameters is not None:
        most = longest_reply(parameters)
        sentence = f"a reply of {len(data)} bytes is longer than this run's limit of {most} bytes: it is refused"
        require(len(data) <= most, "reply.too-long", sentence)
    header, arrays = _decode(_REPLY, ReplyHeader, data)
    _expect(_REPLY, len(arrays) == 2 and len(arrays[1]) == 3)
    first, second, third = arrays[1].tolist()
    named = (header.run, header.round, header.client)
    return Reply(*named, arrays[0], header.interactions, header.within, (first, second, third))


@dataclass(frozen=True)
class ReplyLimits:
    """Bounds on a reply, for the coordinator and for intake processes without its state."""

    run: str
    round: int
    parameters: int
    max_interactions: int
    max_norm: float  # L2 norm of a release, in units of an update
    max_replies: int  # replies of the round
    unit: float = 1.0  # factor between an update and its release
    weighted: bool = False  # a release is weighted by its interactions
    clip: float | None = None  # bound of the round's privacy mechanism, if it has one
    integers: bool = False  # releases are integers
    metric_steps: int | None = None  # largest reported metric, 0 without one; None: statistics of simulated users

    def check_content(self, content: bytes, client: int) -> None:
        """Refuse bytes that are no reply of this client to this run and round within the bounds."""
        reply = decode_reply(content, self.parameters)
        sentence = "the reply names another client than the one that signed it"
        require(reply.client == client, "reply.other-client", sentence)
        require(reply.run == self.run, "reply.other-run", "the reply belongs to another run; fetch a new task")
        sentence = "the round of this reply is not open; fetch a new task"
        require(reply.round == self.round, "reply.other-round", sentence)
        self.check(reply)

    def check(self, reply: Reply) -> None:
        """Refuse numbers that no honest client sends, or of which `max_replies` could not be summed exactly."""
        sentence = f"the release must be {self.parameters} numbers; install the same ranker on both sides"
        is_row = reply.release.shape == (self.parameters,) and reply.release.dtype == np.float64
        require(is_row, "reply.shape", sentence)
        numbers = np.append(reply.release, reply.statistics)
        require(bool(np.isfinite(numbers).all()), "reply.not-finite", "the release holds a number that is not finite")
        if self.metric_steps is not None:
            step, *others = reply.statistics
            sentence = "the reply holds a metric, and none was agreed"
            if self.metric_steps:
                sentence = f"the reported metric is not one of the integers 0 to {self.metric_steps}"
            require(step in range(self.metric_steps + 1) and not any(others), "reply.figure", sentence)
        sentence = f"the reply claims more or fewer interactions than 1 to {self.max_interactions}"
        require(1 <= reply.interactions <= self.max_interactions, "reply.weight", sentence)
        norm = float(np.sqrt(np.dot(reply.release, reply.release))) / self.unit
        require(norm <= self.max_norm, "reply.norm", f"the release is longer than {self.max_norm:g}")
        weight = reply.interactions if self.weighted else 1
        largest, bound = float(np.abs(numbers).max()) * weight, min(LARGEST, LARGEST_SUM / max(1, self.max_replies))
        require(largest < bound, "reply.too-large", "the reply holds a number that is too large to be summed exactly")
        if self.clip is None:
            return
        bounds = ReleaseBound(self.clip, self.unit, self.integers)
        try:
            bounds.check(reply.release[None, :], np.array([reply.client]))
        except BadInput as error:
            if error.code == "update.not-whole":
                sentence = "the release does not consist of integers: install the same version on both sides"
                raise BadInput("reply.not-whole", sentence) from None
            sentence = "the release is longer than the clip that this round's privacy allows"
            raise BadInput("reply.clip", sentence) from None


def _lengths(arrays: list[Doubles]) -> tuple[int, ...]:
    return tuple(len(array) if array.ndim == 1 else 0 for array in arrays)


def _encode(kind: int, header: TaskHeader | ReplyHeader, arrays: list[Doubles]) -> bytes:
    name = _NAMES[kind]
    for array in arrays:
        require(array.ndim == 1, f"{name}.shape", f"a {name} holds rows of numbers, got shape {array.shape}")
    text = json.dumps(encode(header), separators=(",", ":")).encode()
    numbers = (np.ascontiguousarray(array, dtype="<f8").tobytes() for array in arrays)
    return b"".join([_HEAD.pack(_MAGIC, kind, PROTOCOL, len(text)), text, *numbers])


def _decode(kind: int, hint: type[H], data: bytes) -> tuple[H, list[Doubles]]:
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
        header: H = parse_json(text, hint)
    except BadInput:
        raise _malformed(kind) from None
    lengths = header.lengths
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

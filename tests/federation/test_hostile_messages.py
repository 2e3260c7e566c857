"""Messages made to harm: refused before they cost their receiver more than a small multiple of their size."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from damaged_files import refusals
from refusals import refused

from quorank.errors import BadInput
from quorank.federation.reply import PROTOCOL, Reply, Task, decode_reply, decode_task, encode_reply, encode_task
from quorank.protocol import frames

REPLY = encode_reply(Reply("run", 3, 7, np.arange(5.0), 4, True, (1.0, 2.0, 3.0)))
TASK = encode_task(Task("run", 3, np.arange(5.0), {"clip": np.ones(1)}, (1, 2, 3)))
HEAD = struct.Struct("<4sBHI")


def with_header(kind: int, text: bytes) -> bytes:
    return HEAD.pack(b"QRNK", kind, PROTOCOL, len(text)) + text


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
    except BadInput:
        pass
    finally:
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return found


SIZE = 1 << 20
HEADERS = {
    "lists": b'{"lengths":[' + b"[]," * (SIZE // 3) + b"[]]}",
    "tables": b'{"lengths":[' + b"{}," * (SIZE // 3) + b"{}]}",
    "numbers": b'{"lengths":[' + b"999," * (SIZE // 4) + b"0]}",
    "texts": b'{"private":[' + b'"ab",' * (SIZE // 5) + b'"a"]}',
    "keys": b"{" + b",".join(b'"%x":0' % i for i in range(SIZE // 10)) + b"}",
    "brackets": b"[" * SIZE,
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_costs_little_memory(name: str) -> None:
    decode_reply(REPLY)  # what is imported at first is none of its cost
    reply, task = with_header(2, HEADERS[name]), with_header(1, HEADERS[name])
    assert peak(lambda: decode_reply(reply)) < 2 * len(reply)
    assert peak(lambda: decode_task(task)) < 14 * len(task)
    for read, content in ((decode_reply, reply), (decode_task, task)):
        assert refusals(read, iter([content])) == 1


def test_a_long_reply_costs_a_small_multiple_of_its_numbers() -> None:
    content = encode_reply(Reply("run", 3, 7, np.zeros(1 << 19), 4))
    assert peak(lambda: decode_reply(content)) < 2.5 * len(content)
    assert peak(lambda: frames.unpack(frames.pack([content]))) < 4 * len(content)


def test_a_reply_longer_than_the_run_takes_is_not_read() -> None:
    content = encode_reply(Reply("run", 3, 7, np.zeros(1 << 19), 4))
    with refused("reply.too-long"):
        decode_reply(content, parameters=1000)
    assert peak(lambda: decode_reply(content, 1000)) < len(content) // 10
    assert len(decode_reply(content, parameters=1 << 19).release) == 1 << 19

"""Sketches and messages that carry the right signature and wrong fields: refused before compiled code reads them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged_files import mutations, refusals
from refusals import refused

from quorank.silos.learning.exchange import announced_lengths
from quorank.silos.protocol.group import Field
from quorank.silos.protocol.messages import (
    MOST_REASON,
    Answer,
    Ask,
    Catalogue,
    Envelope,
    Hello,
    Kind,
    Refuse,
    has_repeats,
)
from quorank.silos.sketch.ranking import Cells, rank_recommended
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape

KEY = bytes(range(32))
SHAPE = Shape("count", "recommended", 2, 6, 50, 60)
ARRAYS = (("counts", "<i4"), ("floors", "<i4"), ("lows", "<i8"), ("entries", "<i8"), ("present", "|u1"))


def saved(path: Path) -> bytes:
    sketch = ReverseTopK(SHAPE.hashing(KEY), SHAPE)
    numbers = np.random.default_rng(4)
    for number in range(30):
        sketch.add(number, [f"t{i}" for i in numbers.permutation(20)[:5]], numbers.integers(1, 9, 5))
    return sketch.save(path).read_bytes()


def opened(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    line, rest = content[:-32].split(b"\n", 1)
    head, arrays, at = json.loads(line), {}, 0
    for name, kind in ARRAYS:
        arrays[name] = np.frombuffer(rest, kind, head["lengths"][name], at).copy()
        at += arrays[name].nbytes
    return head, arrays


def signed(head: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """What whoever has the group's key can write."""
    content = json.dumps(head).encode() + b"\n"
    content += b"".join(arrays[name].astype(kind).tobytes() for name, kind in ARRAYS)
    return content + hashlib.blake2b(content, key=KEY, digest_size=32, person=b"quorank sketch").digest()


def use(sketch: ReverseTopK) -> None:
    for column in range(6):
        sketch.cells([column, 5 - column])
    sketch.remove(*[document for document in range(20) if document in sketch])
    for number in range(1000, 1080):
        sketch.add(number, [f"t{number % 20}", "t99"], [3, 1])


def changed(name: str, change: Callable[[np.ndarray], object]) -> Callable[[dict, dict], None]:
    def apply(head: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        found = change(arrays[name])
        if isinstance(found, np.ndarray):
            arrays[name] = found
            head["lengths"][name] = len(found)

    return apply


def put(*keys: str, value: object) -> Callable[[dict, dict], None]:
    def apply(head: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        for key in keys[:-1]:
            head = head[key]
        head[keys[-1]] = value

    return apply


FORGED: dict[str, Callable[[dict, dict], None]] = {
    "a cell of two billion": changed("counts", lambda a: a.__setitem__(0, 2**31 - 1)),
    "a cell of fewer than none": changed("counts", lambda a: a.__setitem__(0, -(2**31))),
    "more in one, fewer in another": changed(
        "counts", lambda a: (a.__setitem__(0, a[0] + 50), a.__setitem__(1, a[1] - 50))
    ),
    "fewer cells": changed("counts", lambda a: a[:-1]),
    "more cells": changed("counts", lambda a: np.append(a, 0)),
    "fewer floors": changed("floors", lambda a: a[:3]),
    "no lows": changed("lows", lambda a: a[:0]),
    "fewer entries": changed("entries", lambda a: a[:-5]),
    "more entries": changed("entries", lambda a: np.tile(a, 9)),
    "a negative entry": changed("entries", lambda a: a.__setitem__(0, -5)),
    "an unknown document": changed("entries", lambda a: a.__setitem__(0, a[0] ^ 2)),
    "no documents": changed("present", lambda a: np.zeros_like(a)),
    "a limit of none": put("limit", value=0),
    "a limit below nothing": put("limit", value=-(2**62)),
    "a limit beyond all": put("limit", value=2**62),
    "a limit of a text": put("limit", value="50"),
    "documents as a text": put("documents", value="30"),
    "other documents": put("documents", value=31),
    "no lengths": put("lengths", value=None),
    "lengths of texts": put("lengths", "counts", value="12"),
    "lengths below nothing": put("lengths", "counts", value=-12),
    "lengths beyond all": put("lengths", "entries", value=2**62),
    "no shape": put("shape", value=[]),
    "a shape of a text": put("shape", "capacity", value="9"),
    "a capacity beyond all": put("shape", "capacity", value=2**60),
    "fewer entries than it holds": put("shape", "entries", value=36),
    "another shape": put("shape", "columns", value=1 << 20),
    "an unknown field": put("shape", "more", value=1),
    "a truth for a number": put("shape", "rows", value=True),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_signed_sketch_is_checked_field_by_field(tmp_path: Path, name: str) -> None:
    path = tmp_path / "body.rtk"
    head, arrays = opened(saved(path))
    use(ReverseTopK.load(path, SHAPE.hashing(KEY)))
    FORGED[name](head, arrays)
    path.write_bytes(signed(head, arrays))

    def load_and_use(_: bytes) -> None:
        use(ReverseTopK.load(path, SHAPE.hashing(KEY)))

    assert refusals(load_and_use, iter([b""])) == 1


def test_signed_mutations_never_crash(tmp_path: Path) -> None:
    path = tmp_path / "body.rtk"
    line, rest = saved(path)[:-32].split(b"\n", 1)

    def load_and_use(content: bytes) -> None:
        path.write_bytes(content + hashlib.blake2b(content, key=KEY, digest_size=32, person=b"quorank sketch").digest())
        use(ReverseTopK.load(path, SHAPE.hashing(KEY)))

    assert refusals(load_and_use, (line + b"\n" + part for part in mutations([rest], 150))) > 100
    assert refusals(load_and_use, (part + b"\n" + rest for part in mutations([line], 150))) > 100


# ------------------------------------------------------------ messages


FIELD = Field("body", rows=2, columns=6, entries=4)


def test_a_refusal_has_one_size_and_nothing_behind_its_reason() -> None:
    sound = Refuse(7, "too late").to_bytes()
    assert Refuse.from_bytes(sound, "b") == Refuse(7, "too late")
    for content in (sound[:-1] + b"x", sound + b"\0", sound[:-1], sound[:-MOST_REASON]):
        with refused("silo-message.malformed"):
            Refuse.from_bytes(content, "b")


def test_mutated_messages_are_read_or_refused() -> None:
    cells = Cells(
        np.array([0, 2, 3]), np.array([1, 2, 1], np.int32), np.array([5, 4, 3], np.int32), np.zeros(2, np.int32)
    )
    answer = Answer(3, (cells,), 4).to_bytes()
    ask, refuse = Ask(0, np.array([[1, 2]], np.int32)).to_bytes(), Refuse(1, "no").to_bytes()
    catalogue = Catalogue(0, np.array([1, 5], np.int32), np.array([3, 4], np.int32)).to_bytes()
    hello = Hello(bytes(32), bytes(32), bytes(32), {"a": 1, "b": "c"}).to_bytes()
    envelope = Envelope(Kind.ASK, "a", "b", 1, b"body").to_bytes()

    def ranked(content: bytes) -> None:
        (found,) = Answer.from_bytes(content, "b", 1, FIELD).vectors
        rank_recommended(found, np.ones(2, np.int32), np.arange(2), 3, False)

    for read, source in (
        (ranked, answer),
        (lambda content: Ask.from_bytes(content, "b", [FIELD]), ask),
        (lambda content: Refuse.from_bytes(content, "b"), refuse),
        (lambda content: announced_lengths({"body": Catalogue.from_bytes(content, "b", [FIELD])}), catalogue),
        (lambda content: Hello.from_bytes(content, "b"), hello),
        (Envelope.from_bytes, envelope),
    ):
        assert refusals(read, mutations([source], 200)) > 50


def test_a_catalogue_of_one_far_document_costs_no_array_up_to_it() -> None:
    far = Catalogue(0, np.array([2**31 - 1], np.int32), np.array([1], np.int32))
    with refused("silo-catalogue.too-sparse"):
        announced_lengths({"body": far})


def test_documents_chosen_to_collide_cost_nothing() -> None:
    """All numbers that a fixed mixing of 32 bits, x ^ x >> 15 of x = 2654435769·n, puts into one slot of 2^17."""
    high = np.arange(1 << 17, dtype=np.uint64)
    high = high[high & np.uint64(3) == high >> np.uint64(15)]
    mixed = high << np.uint64(15) | (high & np.uint64(0x7FFF)) ^ np.uint64(5)
    numbers = mixed * np.uint64(pow(2654435769, -1, 1 << 32)) & np.uint64(0xFFFFFFFF)
    documents = numbers[numbers < 1 << 31].astype(np.int32)
    n = len(documents)
    cells = Cells(np.array([0, n, 2 * n]), np.tile(documents, 2), np.ones(2 * n, np.int32), np.zeros(2, np.int32))
    seconds = []
    for _ in range(3):
        start = time.process_time()
        found, _ = rank_recommended(cells, np.ones(2, np.int32), np.arange(2), 5, False)
        seconds.append(time.process_time() - start)
    assert n > 16_000 and found.tolist() == sorted(documents.tolist())[:5]
    assert min(seconds) < 0.1


def test_repeats_are_found_without_an_array_up_to_the_largest_number() -> None:
    offsets = np.array([0, 2, 4])
    for ids in ([1, 2, 1, 2], [1, 2**30, 5, 2**30]):
        assert not has_repeats(offsets, np.array(ids, np.int32))
    assert has_repeats(offsets, np.array([1, 2, 2**30, 2**30], np.int32))

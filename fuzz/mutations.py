"""Mutations of inputs: of plain bytes, and of the structures that parsers see behind a checksum, a CRC or a grammar.

Each shape is a function (random, input) → input. It keeps what a parser checks first (the CRC of a zip member, the pages
of a database, the brackets of JSON) and changes what is believed afterwards. Of an input of another shape,
the bytes are changed.
"""

from __future__ import annotations

import ast
import bz2
import gzip
import io
import json
import lzma
import sqlite3
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from random import Random
from typing import Any

Mutation = Callable[[Random, bytes], bytes]

LARGEST = 1 << 16
"""Inputs grow to this many bytes."""
NUMBERS = (
    "0",
    "1",
    "-1",
    "-0",
    "2",
    "127",
    "128",
    "255",
    "256",
    "32767",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e-400",
    "1e308",
    "1e309",
    "-1e309",
    "0e40",
    "1e40",
    "0.1",
    "-0.0",
    "nan",
    "inf",
    "-inf",
    "NaN",
    "Infinity",
    "1e99999999999",
    "3.4028236e38",
    "1e-46",
    "0x10",
    "1_000",
    "٣",
    "1.",
    ".5",
    "+1",
    "--1",
    "1e",
    "e5",
    "9" * 400,
    "1" + "0" * 4400,
)
EDGES = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
TEXTS = (
    "",
    " ",
    "x",
    "é",
    "\x00",
    "\x1b[31m",
    "a\nb",
    "\ud800",
    "‮",
    "../x",
    "/",
    "." * 300,
    "x" * 5000,
    "💥",
    "NULL",
    "none",
)


def deep(opening: str, middle: str, closing_: str, depth: int) -> bytes:
    """Nested brackets, such as [[[0]]]."""
    return (opening * depth + middle + closing_ * depth).encode()


def mutate_bytes(random: Random, data: bytes, words: Sequence[bytes] = (), other: bytes = b"") -> bytes:
    """Change some bytes: flips, boundary numbers, words, copies, cuts and splices."""
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        _change(random, made, words, other)
    return bytes(made[:LARGEST])


def _change(random: Random, made: bytearray, words: Sequence[bytes], other: bytes) -> None:
    size = len(made)
    at = random.randrange(size + 1)
    length = min(random.choice((1, 1, 2, 3, 4, 8, 16, 64, 256)), max(size - at, 0))
    which = random.randrange(13)
    if which == 0 and at < size:
        made[at] ^= 1 << random.randrange(8)
    elif which == 1 and at < size:
        made[at] = random.choice((0, 1, 9, 10, 13, 32, 34, 35, 45, 58, 127, 128, 255, random.randrange(256)))
    elif which == 2:
        del made[at : at + length]
    elif which == 3:
        made[at:at] = random.randbytes(random.choice((1, 1, 2, 4, 8)))
    elif which == 4:
        piece = bytes(made[at : at + length])
        times = random.choice((1, 1, 2, 8, 100, 2000))
        made[at:at] = (piece * times)[: max(LARGEST - size, 0)]
    elif which == 5:
        del made[at:]
    elif which == 6 and words:
        made[at:at] = random.choice(words)
    elif which == 7 and words:
        word = random.choice(words)
        made[at : at + len(word)] = word
    elif which == 8:
        width = random.choice((1, 2, 4, 8))
        made[at : at + width] = (random.choice(EDGES) % (1 << 8 * width)).to_bytes(
            width, random.choice(("little", "big"))
        )
    elif which == 9:
        begin = at
        while begin < size and not 48 <= made[begin] <= 57:
            begin += 1
        end = begin
        while end < size and (48 <= made[end] <= 57 or made[end] in b".eE+-"):
            end += 1
        made[begin:end] = random.choice(NUMBERS).encode()
    elif which == 10 and other:
        begin = random.randrange(len(other))
        made[at : at + length] = other[begin : begin + random.choice((1, 4, 16, 64, 256, 4096))]
    elif which == 11:
        begin = random.randrange(size + 1)
        made[at : at + length] = made[begin : begin + length]
    elif which == 12 and other:
        made[at:] = other[random.randrange(len(other)) :]


def value(random: Random) -> Any:
    """Return a JSON value that a reader may not expect."""
    which = random.randrange(9)
    if which == 0:
        return random.choice((None, True, False))
    if which == 1:
        return random.choice(EDGES) * random.choice((1, -1))
    if which == 2:
        return random.choice((0.5, 1e308, -1e308, 1e-300, float("nan"), float("inf"), -0.0, 10**400, 1.5))
    if which == 3:
        return random.choice(TEXTS)
    if which == 4:
        return []
    if which == 5:
        return {}
    if which == 6:
        return [value(random) for _ in range(random.choice((1, 2, 3, 100)))]
    if which == 7:
        return {random.choice(TEXTS): value(random) for _ in range(2)}
    return random.choice(NUMBERS)


def mutate_json(random: Random, data: bytes) -> bytes:
    """Change a value, a key or the order somewhere in a JSON document; now and then nest it deeply."""
    content = json.loads(data)
    if random.randrange(200) == 0:
        return random.choice((deep("[", "", "]", 100_000), deep('{"a":', "1", "}", 20_000), b"[" * 30_000))
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict | list):
            for key in list(node) if isinstance(node, dict) else range(len(node)):
                places.append((node, key))
                walk(node[key])

    walk(content)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if not places:
            content = value(random)
            break
        node, key = random.choice(places)
        try:
            content = _change_json(random, content, node, key, places)
        except (KeyError, IndexError):
            continue
    made = json.dumps(content, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    return made if len(made) <= 4 * LARGEST else data


def _change_json(random: Random, content: Any, node: Any, key: Any, places: list[tuple[Any, Any]]) -> Any:
    which = random.randrange(10)
    if which <= 3:
        node[key] = value(random)
    elif which == 4:
        del node[key]
    elif which == 5:
        other, place = random.choice(places)
        node[key] = json.loads(json.dumps(other[place]))
    elif which == 6 and isinstance(node, dict):
        node[random.choice(TEXTS)] = node.pop(key)
    elif which == 7:
        node[key] = [node[key]] * random.choice((1, 2, 1000)) if random.random() < 0.7 else {"kind": node[key]}
    elif which == 8 and isinstance(node, list):
        node.insert(key, value(random))
    elif which == 9 and isinstance(node[key], int | float) and not isinstance(node[key], bool):
        old = node[key]
        changes = (
            lambda: -old,
            lambda: old + 1,
            lambda: old - 1,
            lambda: old * 2**31,
            lambda: float(old),
            lambda: str(old),
            lambda: old + 0.5,
        )
        try:
            node[key] = random.choice(changes)()
        except OverflowError:
            node[key] = 0
    return content


TOML_VALUES = (
    *(number.encode() for number in NUMBERS),
    b'""',
    b'"x"',
    b"true",
    b"[]",
    b"{}",
    b"[1, 2]",
    b'["a", 1]',
    b"1979-05-27",
    b"07:32:00",
    b'{ kind = "krum" }',
    b"{ kind = 1 }",
    b"{ kind = {} }",
    b'"none"',
    b'"\\u0000"',
    b"[[[[[]]]]]",
    b"{ a = { b = { c = 1 } } }",
    b"1e300",
    b"-1e300",
    b"1e-300",
    b"9" * 4301,
    b'"gaussian"',
    b'{ kind = "gaussian", epsilon = 1e300 }',
    b"'''x\ny'''",
)


def mutate_toml(random: Random, data: bytes) -> bytes:
    """Change a value, a key or a line of a TOML document; now and then nest it deeply."""
    if random.randrange(200) == 0:
        key = random.choice((b"a", b"seed", b"[grid]\nseed"))
        return (
            key
            + b" = "
            + random.choice((deep("[", "", "]", 30_000), deep("{a=", "1", "}", 20_000), b"a." * 30_000 + b"a = 1"))
        )
    lines = data.split(b"\n")
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(lines))
        key, equals, _ = lines[at].partition(b"=")
        which = random.randrange(8)
        if which <= 3 and equals:
            lines[at] = key + b"= " + random.choice(TOML_VALUES)
        elif which == 4:
            del lines[at]
            lines = lines or [b""]
        elif which == 5:
            lines.insert(at, random.choice(lines))
        elif which == 6:
            lines.insert(
                at, b"[" + random.choice((b"grid", b"privacy", b"attack", b"partition", b"a.b", b"federation")) + b"]"
            )
        elif which == 7 and equals:
            other = random.choice(lines).partition(b"=")[2]
            lines[at] = key + b"=" + (other or b" 1")
    return b"\n".join(lines)[:LARGEST]


def mutate_zip(random: Random, data: bytes, inside: Mutation | None = None) -> bytes:
    """Change a member of a zip archive, its name, its compression or its flags; CRCs and sizes are right again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            members = [(entry.filename, packed.read(entry)) for entry in packed.infolist()]
        for _ in range(random.choice((1, 1, 2))):
            at = random.randrange(len(members)) if members else 0
            which = random.randrange(8)
            if not members or which == 0:
                members.append(
                    (random.choice(("x", ".", "a/", "/x", "../x", "", "a:b", "\\", "x" * 300, "rounds.npy")), b"x")
                )
            elif which == 1:
                del members[at]
            elif which == 2:
                members[at] = (random.choice((*(name for name, _ in members), *TEXTS[:12], ".")), members[at][1])
            else:
                name, content = members[at]
                change = (
                    mutate_npy if content.startswith(b"\x93NUMPY") and random.random() < 0.8 else inside or mutate_bytes
                )
                members[at] = (name, attempt(change, random, content))
        buffer = io.BytesIO()
        kinds = (zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
        with zipfile.ZipFile(buffer, "w", random.choice(kinds)) as packed:
            for name, content in members:
                packed.writestr(zipfile.ZipInfo(name.encode("utf-8", "replace").decode() or "_"), content)
    made = buffer.getvalue()
    if random.randrange(4) == 0:
        made = _foreign_header(random, made)
    return made


def _foreign_header(random: Random, made: bytes) -> bytes:
    """Set the flags, the method or a size of a member to something else, in both of its headers."""
    changed = bytearray(made)
    what = random.choice(
        (("flags", 6, 8, 2), ("method", 8, 10, 2), ("size", 18, 20, 4), ("length", 22, 24, 4), ("name", 26, 28, 2))
    )
    _, local, central, width = what
    new = random.choice((1, 8, 9, 12, 14, 93, 95, 99, 0x801, 0xFFFF, 0xFFFFFFFF)) % (1 << 8 * width)
    for mark, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        at = changed.find(mark)
        if at >= 0 and random.random() < 0.9:
            changed[at + offset : at + offset + width] = new.to_bytes(width, "little")
    return bytes(changed)


DTYPES = (
    "<f8",
    "<f4",
    "<i8",
    "<i4",
    "|b1",
    "|u1",
    "<u8",
    "<c16",
    "|O",
    "<U3",
    "<U0",
    "|S5",
    "<M8[s]",
    ">f8",
    "|V8",
    "<f2",
    "<m8",
)


def mutate_npy(random: Random, data: bytes) -> bytes:
    """Change the type, the shape or the numbers of an array file; its length fits again, mostly."""
    (length,) = struct.unpack_from("<H", data, 8)
    header, body = ast.literal_eval(data[10 : 10 + length].decode("latin1").strip()), data[10 + length :]
    which = random.randrange(6)
    if which == 0:
        header["descr"] = random.choice((*DTYPES, [("a", "<f8")], "x", 5))
    elif which == 1:
        header["shape"] = random.choice(
            ((), (0,), (1,), (3,), (2, 2), (-1,), (2**40,), (2**62, 4), (1,) * 33, (len(body) // 8,))
        )
    elif which == 2:
        header["fortran_order"] = random.choice((True, False, 1, None))
    elif which == 3:
        numbers = bytearray(body)
        if numbers:
            at = random.randrange(max(len(numbers) // 8, 1)) * 8
            new = random.choice((float("nan"), float("inf"), 1e308, -1.0, 0.0))
            numbers[at : at + 8] = random.choice(
                (struct.pack("<d", new), struct.pack("<q", random.choice((-1, 0, 2**62, -(2**63), 10**6))))
            )
        body = bytes(numbers)
    elif which == 4:
        body = mutate_bytes(random, body)
    else:
        header = random.choice((header | {"x": 1}, {"descr": header["descr"]}, [], deep("(", "", ")", 300).decode()))
    fits = isinstance(header, dict) and isinstance(header.get("shape"), tuple) and random.random() < 0.8
    if fits and which < 2:
        body = (body * 4)[: _bytes_of(header, len(body))]
    text = (header if isinstance(header, str) else repr(header)).encode("latin1", "replace")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", min(len(text) + 1, 65535)) + text + b"\n" + body


def _bytes_of(header: dict[str, Any], most: int) -> int:
    import numpy as np

    try:
        count = int(np.prod(header["shape"], dtype=np.float64))
        return max(0, min(np.dtype(header["descr"]).itemsize * count, 4 * most))
    except (TypeError, ValueError, OverflowError):
        return most


def mutate_gzip(random: Random, data: bytes, inside: Mutation = mutate_bytes) -> bytes:
    """Change what is inside a gzip file; its CRC is right again, mostly."""
    content = attempt(inside, random, gzip.decompress(data))
    made = gzip.compress(content, 1, mtime=0)
    which = random.randrange(8)
    if which == 0:
        return made + gzip.compress(b"1 qid:1 1:1\n", mtime=0)
    if which == 1:
        return made[: random.randrange(len(made))]
    if which == 2:
        return random.choice((bz2.compress(content), lzma.compress(content), zlib.compress(content)))
    if which == 3:
        return mutate_bytes(random, made)
    return made


def mutate_tar(random: Random, data: bytes, inside: Mutation = mutate_bytes) -> bytes:
    """Change a member of a tar archive, its name or its type; checksums are right again."""
    members: list[tuple[tarfile.TarInfo, bytes]] = []
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        for entry in packed:
            file = packed.extractfile(entry) if entry.isreg() else None
            members.append((entry, file.read() if file else b""))
    at = random.randrange(len(members)) if members else 0
    which = random.randrange(6)
    if which == 0 or not members:
        members.append(
            (tarfile.TarInfo(random.choice((".", "x", "/x", "../x", "a/../..", "x" * 200, "")) or "."), b"x")
        )
    elif which == 1:
        members[at][0].name = random.choice(
            (".", "..", "/", "a" * 300, "b/c", "é", *(entry.name for entry, _ in members))
        )
    elif which == 2:
        members[at][0].type = random.choice(
            (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, b"S", b"?")
        )
        members[at][0].linkname = random.choice(("x", "/etc/passwd", "../x"))
    else:
        members[at] = (members[at][0], attempt(inside, random, members[at][1]))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=random.choice(("w", "w", "w:gz", "w:bz2"))) as packed:
        for entry, content in members:
            entry.size = len(content) if entry.isreg() else 0
            packed.addfile(entry, io.BytesIO(content) if entry.isreg() else None)
    made = buffer.getvalue()
    return made if random.random() < 0.8 else mutate_bytes(random, made)


def mutate_sqlite(random: Random, data: bytes) -> bytes:
    """Change values, rows, columns or tables of a database; its pages are sound again."""
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.deserialize(data)
        memory.execute("PRAGMA journal_mode = MEMORY")
        tables = [
            name
            for (name,) in memory.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
        ]
        for _ in range(random.choice((1, 1, 2, 3))):
            if not tables:
                break
            table = random.choice(tables)
            columns = [row[1] for row in memory.execute(f'PRAGMA table_info("{table}")')]
            column = random.choice(columns) if columns else "x"
            new = random.choice(
                (
                    None,
                    -1,
                    0,
                    1,
                    2**31,
                    2**63 - 1,
                    -(2**63),
                    1.5,
                    1e308,
                    float("inf"),
                    "x",
                    "",
                    b"\xff\x00",
                    "9" * 30,
                    "a\nb",
                    b"{}",
                )
            )
            which = random.randrange(8)
            try:
                if which <= 4:
                    rows = f'SELECT rowid FROM "{table}" LIMIT ? OFFSET ?'
                    limits = random.choice(((1, random.randrange(8)), (1, 0), (1000, 0)))
                    memory.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid IN ({rows})', (new, *limits))
                elif which == 5:
                    memory.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
                elif which == 6:
                    memory.execute(f'DROP TABLE "{table}"')
                    if random.random() < 0.7:
                        kind = random.choice(("TABLE", "VIEW"))
                        memory.execute(f'CREATE {kind} "{table}" AS SELECT 1 AS "{column}", NULL AS id, 1 AS url')
                    tables.remove(table)
                else:
                    memory.execute(f'INSERT INTO "{table}" ("{column}") VALUES (?)', (new,))
            except sqlite3.Error:
                continue
        memory.commit()
        return bytes(memory.serialize())


def mutate_parquet(random: Random, data: bytes) -> bytes:
    """Change the type, the name or the length of columns of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = pq.read_table(io.BytesIO(data), use_threads=False).to_pydict()
    rows = len(next(iter(columns.values()), []))
    name = random.choice(list(columns) or ["x"])
    fills = (
        ["x"] * rows,
        [None] * rows,
        [True] * rows,
        [[1.0]] * rows,
        [{"a": 1}] * rows,
        [b"\xff"] * rows,
        [2**63 - 1] * rows,
        [float("nan")] * rows,
    )
    which = random.randrange(5)
    if which == 0:
        columns.pop(name, None)
    elif which == 1:
        columns[random.choice(TEXTS)] = columns.pop(name, [0] * rows)
    elif which == 2:
        columns = {key: column[: rows // 2] if random.random() < 2 else column for key, column in columns.items()}
    else:
        columns[name] = random.choice(fills)
    buffer = io.BytesIO()
    columns = {key.encode("utf-8", "replace").decode(): column for key, column in columns.items()}
    pq.write_table(pa.table(columns), buffer, compression=random.choice(("zstd", "snappy", "gzip", "none")))
    made = buffer.getvalue()
    return made if random.random() < 0.8 else mutate_bytes(random, made)


def attempt(change: Mutation, random: Random, data: bytes) -> bytes:
    """Change an input by its shape, or its bytes where it is not of that shape."""
    try:
        return change(random, data)
    except Exception:  # an input that a mutation has broken is anything
        return mutate_bytes(random, data)


SHAPES: dict[str, Mutation] = {
    "bytes": mutate_bytes,
    "json": mutate_json,
    "toml": mutate_toml,
    "zip": mutate_zip,
    "gzip": mutate_gzip,
    "tar": mutate_tar,
    "sqlite": mutate_sqlite,
    "parquet": mutate_parquet,
}
"""By the word that a target names its shape with."""


def mutate(random: Random, data: bytes, shape: str, words: Sequence[bytes], other: bytes) -> bytes:
    """Change an input: by its shape two times of three, else its bytes."""
    if shape != "bytes" and random.random() < 0.67:
        return attempt(SHAPES[shape], random, data)
    return mutate_bytes(random, data, words, other)

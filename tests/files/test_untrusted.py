"""Gate for files of others: sizes, ratios, archives, JSON and databases are bounded, and nothing goes around it."""

from __future__ import annotations

import ast
import bz2
import gzip
import io
import lzma
import os
import re
import struct
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives import tarred, zipped
from damaged_files import mutations, refusals
from refusals import refused

import quorank
from quorank.data.importing import unpack_archive
from quorank.errors import BadInput, brief
from quorank.files import untrusted
from quorank.files.archives import UntrustedZip, archive_members
from quorank.files.arrow import untrusted_batches
from quorank.files.atomic import read_whole
from quorank.files.documents import load_json
from quorank.files.untrusted import (
    UnpackLimits,
    limits_from_environment,
    numbered_lines,
    open_bounded,
    read_bounded,
    translate_errors,
    xml_events,
)
from quorank.search.index.writing import INDEX
from quorank.service.store.sqlite import APPLICATION

PACKINGS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
TEXT = b"one line of a file\n" * 5000


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("ending", PACKINGS)
def test_packed_files_are_told_by_their_content(tmp_path: Path, ending: str) -> None:
    packed = PACKINGS[ending](TEXT)
    assert read_bounded(write(tmp_path / "plain.txt", TEXT)) == TEXT
    assert read_bounded(write(tmp_path / f"a{ending}", packed)) == TEXT
    assert read_bounded(write(tmp_path / "a.txt", packed + packed)) == TEXT + TEXT
    assert read_bounded(write(tmp_path / "b.txt", packed + bytes(512))) == TEXT
    for content in (packed[:-1], packed[: len(packed) // 2], packed + b"more", packed[:6]):
        with refused("file.damaged", f"{tmp_path / f'b{ending}'}"):
            read_bounded(write(tmp_path / f"b{ending}", content))


@pytest.mark.parametrize("ending", PACKINGS)
def test_a_small_file_does_not_become_a_large_one(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 MB of the same byte: refused by the ratio, at the cost of one block, when it is read as a stream."""
    library = {".gz": gzip, ".bz2": bz2, ".xz": lzma}[ending]
    path = tmp_path / f"bomb{ending}"
    monkeypatch.setattr(untrusted, "FREE", 1 << 24)
    with library.open(path, "wb") as file:  # type: ignore[attr-defined]
        for _ in range(24):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    with refused("file.too-large", f"{path}"), open_bounded(path) as stream:
        while stream.read(1 << 16):
            pass
    assert tracemalloc.get_traced_memory()[1] < 15 << 20  # 8 MiB are the window of xz
    tracemalloc.stop()
    monkeypatch.setenv("QUORANK_UNPACKED_RATIO", "10000000")
    assert len(read_bounded(path)) == 24 << 20
    monkeypatch.setenv("QUORANK_UNPACKED_BYTES", "1000")
    with refused("file.too-large"):
        read_bounded(path)


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits_from_environment() == UnpackLimits(16 << 30, 100)
    assert UnpackLimits().most(10 << 20) == 1000 << 20
    assert UnpackLimits().most(1) == 1 << 28
    monkeypatch.setenv("QUORANK_UNPACKED_BYTES", "5000000000")
    assert limits_from_environment().unpacked == 5_000_000_000
    for text in ("many", "-1", "0", "1e9", "9" * 5000):
        monkeypatch.setenv("QUORANK_UNPACKED_RATIO", text)
        with refused("value.out-of-range", "QUORANK_UNPACKED_RATIO"):
            limits_from_environment()


def test_many_small_packed_streams_take_linear_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gz", gzip.compress(b"", mtime=0) * 50_000 + gzip.compress(b"end"))
    start = time.process_time()
    assert read_bounded(path) == b"end"
    assert time.process_time() - start < 10


def test_what_is_no_ordinary_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with refused("file.unreadable", f"{path}"):
            read_bounded(path)
    with refused("file.missing"):
        read_bounded(tmp_path / "none")
    with refused("file.unreadable"):
        read_bounded(tmp_path / "a\0b")


# ------------------------------------------------------------ archives


NAMES = [
    ".", "./.", "..", "a/../b", "/etc/x", "\\x", "C:x", "C:\\x", "a\\..\\..\\b", "a\0b", "a\nb", "a\x1b[31mb", "a\x85b",
    "n" * 256, "ä" * 128, "/".join(["n" * 200] * 30),
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=[str(i) for i in range(len(NAMES))])
@pytest.mark.parametrize("ending", [".zip", ".tar"])
def test_names_of_members_that_are_no_paths_below_the_folder(tmp_path: Path, name: str, ending: str) -> None:
    content = zipped((name, b"x")) if ending == ".zip" else tarred((name, b"x"), path=name)
    archive = write(tmp_path / f"a{ending}", content)
    with refused("archive.unsafe-member", f"{archive}"):
        unpack_archive(archive, tmp_path / "folder")
    assert sorted(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (zipped(("a", b"1"), ("a", b"2")), "archive.unsafe-member"),
        (zipped(("a", b"1"), ("./a", b"2")), "archive.unsafe-member"),
        (zipped(("a", b"1"), ("a/b", b"2")), "archive.unsafe-member"),
        (zipped(("a/b", b"1"), ("a", b"2")), "archive.unsafe-member"),
        (zipped(("a", b"/etc/passwd"), mode=0o120777), "archive.unsafe-member"),
        (zipped(("a", b""), mode=0o020666), "archive.unsafe-member"),
        (zipped(("a", b"1"), method=zipfile.ZIP_LZMA), "archive.unsupported"),
        (zipped(("a", b"1"), method=zipfile.ZIP_BZIP2), "archive.unsupported"),
        (tarred(("a", b"1"), ("a", b"2")), "archive.unsafe-member"),
        (tarred(("a", b"1"), ("a/b", b"2")), "archive.unsafe-member"),
        (tarred(("a", b""), kind=tarfile.SYMTYPE), "archive.unsafe-member"),
        (tarred(("a", b""), kind=tarfile.LNKTYPE), "archive.unsafe-member"),
        (tarred(("a", b""), kind=tarfile.CHRTYPE), "archive.unsafe-member"),
        (tarred(("a", b""), kind=tarfile.FIFOTYPE), "archive.unsafe-member"),
        (tarred(("a", b"1"), comment="x" * (2 << 20)), "file.too-large"),
        (tarred(("a", b"1"))[:512] + b"1", "file.damaged"),
        (tarred(("a", b"1"))[:1024], "file.damaged"),
        (tarred(("a", b"1"))[:1024] + b"damaged header" + bytes(3000), "file.damaged"),
        (tarred(("a", b"1")) + b"behind", "file.damaged"),
    ],
)
def test_members_that_are_refused(tmp_path: Path, content: bytes, code: str) -> None:
    archive = write(tmp_path / ("a.zip" if content[:2] == b"PK" else "a.tar"), content)
    with refused(code):
        unpack_archive(archive, tmp_path / "folder")
    assert sorted(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize("packing", ["", "gz", "bz2", "xz"])
def test_sound_archives_are_unpacked(tmp_path: Path, packing: str) -> None:
    members = (("./a", b"1"), ("b/c", TEXT), ("b/ü", b""))
    archive = write(tmp_path / "a.tar", tarred(*members, packing=packing))
    found = {str(name): content.read() for name, content in archive_members(archive)}
    assert found == {"a": b"1", "b/c": TEXT, "b/ü": b""}
    archive = write(tmp_path / "a.zip", zipped(*members))
    assert {str(name): content.read() for name, content in archive_members(archive)} == found


def test_archives_are_bounded_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "FREE", 1 << 20)
    members = [(f"m{i}", bytes(300_000)) for i in range(5)]
    for name, content in (("a.zip", zipped(*members)), ("a.tar.gz", tarred(*members, packing="gz"))):
        archive = write(tmp_path / name, content)
        with refused("file.too-large", f"{archive}"):
            unpack_archive(archive, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_list_of_members_is_measured_before_it_is_read(tmp_path: Path) -> None:
    content = bytearray(zipped(("a", b"1")))
    at = content.rindex(b"PK\5\6")
    struct.pack_into("<I", content, at + 12, 1 << 30)
    with refused("file.too-large"):
        UntrustedZip(write(tmp_path / "a.zip", bytes(content)))


def test_damaged_archives_are_refused_or_read(tmp_path: Path) -> None:
    members = (("train.txt", b"0 qid:1 1:1\n" * 40), ("a/b.txt", b"text"))
    sources = [zipped(*members), zipped(*members, method=0), tarred(*members), tarred(*members, packing="gz")]

    def read(content: bytes) -> None:
        endings = {b"P": "zip", b"\x1f": "tar.gz"}
        path = write(tmp_path / f"a.{endings.get(content[:1], 'tar')}", content)
        for _, member in archive_members(path):
            member.read()

    assert refusals(read, mutations(sources, 250)) > 80


@pytest.mark.slow
def test_tables_are_decoded_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": np.zeros(1 << 20)}), path)
    assert sum(batch.num_rows for batch in untrusted_batches(path, "parquet")) == 1 << 20
    monkeypatch.setattr(untrusted, "FREE", 1 << 22)
    with refused("file.too-large", f"{path}"):
        list(untrusted_batches(path, "parquet"))
    sound = path.read_bytes()
    for content in (b"", b"PAR1", sound[:-1], sound[:200] + sound[300:]):
        with refused("file.damaged", f"{path}"):
            list(untrusted_batches(write(path, content), "parquet"))


@pytest.mark.slow
def test_a_table_without_rows_and_with_any_type_of_columns_is_read_or_refused(tmp_path: Path) -> None:
    number = pa.float64()
    for type_ in (
        number,
        pa.list_(number),
        pa.struct([("x", number)]),
        pa.list_(pa.uuid()),
        pa.struct([("x", pa.uuid())]),
        pa.dense_union([pa.field("x", number)]),
        pa.dictionary(pa.int8(), pa.list_(number)),
    ):
        path, schema = tmp_path / "t.arrow", pa.schema([("a", type_)])
        with pa.ipc.new_file(path, schema):
            pass
        try:
            (batch,) = untrusted_batches(path, "feather")
            assert batch.schema == schema and batch.num_rows == 0
        except BadInput as error:
            assert (error.code, error.where) == ("file.damaged", f"{path}")


# ------------------------------------------------------------ JSON and lines


def test_json_is_bounded() -> None:
    assert load_json('{"a": [1, 2.5, "[[[["]}') == {"a": [1, 2.5, "[[[["]}
    deep = 100_000  # beyond the limit of any version of Python
    nested = "[" * deep + "]" * deep, "[" * 10**6, '{"a":' * deep
    for text in (*nested, "1" * 5000, "NaN", "1e999", "-Infinity", "", b"\xff"):
        with pytest.raises(ValueError):
            load_json(text)


def test_lines_are_bounded() -> None:
    assert list(numbered_lines(b"a\n\nbc\n", "x")) == [(1, b"a"), (2, b""), (3, b"bc")]
    with refused("file.line-too-long", "x, line 2"):
        list(numbered_lines(b"a\nbcdefg", "x", most=5))


def test_foreign_words_stay_on_one_line() -> None:
    assert brief("a\nb\x1b") == r"'a\nb\x1b'"
    assert len(brief("x" * 1000)) == 63


@pytest.mark.parametrize("depth", [1, 5, 400, 100_000])
def test_a_value_of_any_nesting_is_quoted(depth: int) -> None:
    nested: object = "x"
    for number in range(depth):
        nested = {"a": nested} if number % 2 else [nested]
    assert "…" in brief(nested) or depth == 1
    assert len(brief(nested)) <= 61


def events_of(content: bytes, most: int = 1_000_000) -> list[str]:
    found = xml_events(io.BytesIO(content), "x", most)
    return [
        f"{event} {name} {(element.text or '') if event == 'end' else ''}".strip() for event, name, element in found
    ]


def test_xml_is_read_without_document_types_and_within_bounds() -> None:
    found = events_of(b"<a xmlns:n='urn:n'><n:b>caf&#233;</n:b>&lt;<c/></a>", 3)
    assert found == ["start a", "start b", "end b café", "start c", "end c", "end a"]
    with refused("file.too-large", "x"):
        events_of(b"<a><b/><b/><b/></a>", 3)
    for content in (b"<!DOCTYPE a><a/>", b"<a>", b"", b"<a>&b;</a>", b"<a></b>", b"\xff<a/>"):
        with refused("file.damaged", "x"):
            events_of(content)
    early = xml_events(io.BytesIO(b"<a><stop/>" + b" " * 100_000 + b"<b></a>"), "x")
    assert next(name for event, name, _ in early if event == "end") == "stop"


def test_an_ordinary_file_is_read_and_nothing_else(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_whole(f"{write(tmp_path / 'a', b'12345')}", 5, code="file.unreadable") == b"12345"
    with refused("file.too-large"):
        read_whole(tmp_path / "a", 4, code="file.unreadable")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / "a\0b"):
        with refused("file.unreadable"):
            read_whole(path, 10, code="file.unreadable")
    with refused("file.missing"):
        read_whole(tmp_path / "none", 10, code="file.unreadable")


# ------------------------------------------------------------ nothing goes around it

GUARDED = {
    "gzip.open", "gzip.decompress", "gzip.GzipFile", "bz2.open", "bz2.BZ2File", "bz2.decompress", "lzma.open",
    "lzma.LZMAFile", "lzma.decompress", "zipfile.ZipFile", "zipfile.is_zipfile", "tarfile.open", "tarfile.TarFile",
    "sqlite3.connect", "mailbox.mbox", "json.load", "json.loads", "zlib.decompress", "zlib.decompressobj",
    "html.unescape", "shutil.unpack_archive", "pickle.load", "pickle.loads", "csv.reader", "csv.DictReader",
}  # fmt: skip
READERS = ("data", "text", "tuning", "silos", "search/sources")
OURS = {
    "data/library.py": {"json.loads"},  # the registry of imported names
    "data/letor/writer.py": {"gzip.GzipFile"},  # writes
    "tuning/studies/study.py": {"csv.reader"},  # of lines that the gate opened
    "tuning/histories/visits.py": {"csv.reader"},  # likewise
    "tuning/models.py": {"json.loads"},  # weights that a coordinator of ours wrote
    "text/readers/decoding.py": {"html.unescape"},  # the one place, which bounds codes first
}


def test_no_reader_goes_around_the_gate() -> None:
    """Libraries that unpack and parse are called in the gate alone, by the packages that read files of others."""
    package = Path(quorank.__file__).parent
    found = []
    for file in sorted(path for folder in READERS for path in (package / folder).rglob("*.py")):
        name = file.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in GUARDED - OURS.get(name, set()):
                found.append(f"{name}:{node.lineno} {called}")
            if isinstance(node, ast.ImportFrom) and any(f"{node.module}.{a.name}" in GUARDED for a in node.names):
                found.append(f"{name}:{node.lineno} from {node.module}")
    assert found == []


def test_an_error_of_our_own_is_no_damaged_file() -> None:
    with refused("letor.empty"), translate_errors("x", "y"):
        raise BadInput("letor.empty", "z")
    with refused("file.damaged", "x"), translate_errors("x", "y"):
        raise RecursionError


_ID = re.compile(r"(?:FileKind\(\s*|APPLICATION = )(0x[0-9A-Fa-f]{8})")


def test_no_two_kinds_of_file_share_an_application_id() -> None:
    """A file of one kind would be opened, and changed, as one of the other."""
    package = Path(quorank.__file__).parent
    found = [int(number, 16) for path in package.rglob("*.py") for number in _ID.findall(path.read_text())]
    assert {INDEX.application, APPLICATION} <= {*found} and len(found) >= 6
    assert len({*found}) == len(found)

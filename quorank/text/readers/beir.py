"""Reader of BEIR collections (Thakur et al. 2021): corpus.jsonl, queries.jsonl, qrels/*.tsv, in a folder or a zip file.

A line of corpus.jsonl is `{"_id": …, "title": …, "text": …}`; `id` may stand for `_id`, and `body` or `contents` for
`text`. The judgements of all splits are put together. Where files `*.qrel` or `*.qrel.gz` in TREC's form lie in the
folder, as in NFCorpus, whose own tables hold one grade only for training, they stand in place of the tables.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from quorank.errors import BadInput, require
from quorank.text.collection import Document, Query, TextCollection, refuse_twice
from quorank.text.readers.decoding import bad_line, decode, read_bytes
from quorank.text.readers.qrels import judgements_of, parse_judgements

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
_TEXT, _ID = ("text", "body", "contents"), ("_id", "id")
Files = dict[str, Callable[[], bytes]]


def read_jsonl(path: Path) -> TextCollection:
    """Read documents alone, from one file of JSON lines, plain or gzipped."""
    return TextCollection(path.name.split(".")[0], _documents(f"{path}", read_bytes(path)))


def read_beir(path: Path, name: str | None = None) -> TextCollection:
    """Read a folder or a zip file with a corpus; a folder may hold the zip file, with graded judgements beside it."""
    archive = path if path.is_file() else zip_in(path)
    files = _zipped(archive) if archive else _folder(path)
    graded = sorted(path.glob("*.qrel")) + sorted(path.glob("*.qrel.gz")) if path.is_dir() else []
    where = f"{archive or path}/"
    documents = _documents(where + CORPUS, files[CORPUS]())
    queries = _queries(where + QUERIES, files[QUERIES]()) if QUERIES in files else ()
    if graded:
        tables = [(f"{file}", read_bytes(file)) for file in graded]
    else:
        members = sorted(member for member in files if member.startswith("qrels/"))
        tables = [(where + member, files[member]()) for member in members]
    found = [one for table, content in tables for one in parse_judgements(decode(content), table)]
    judgements = judgements_of(found, queries, documents)
    return TextCollection(name or path.name.removesuffix(".zip"), documents, queries, judgements)


def zip_in(folder: Path) -> Path | None:
    """Return the zip file of a folder that holds a corpus, if there is one and no unpacked corpus."""
    if (folder / CORPUS).is_file() or (folder / f"{CORPUS}.gz").is_file():
        return None
    return next((file for file in sorted(folder.glob("*.zip")) if is_beir_zip(file)), None)


def is_beir_zip(path: Path) -> bool:
    """Return whether a file is a zip file with a corpus."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as packed:
        return any(PurePosixPath(member).name == CORPUS for member in packed.namelist())


def _zipped(archive: Path) -> Files:
    with zipfile.ZipFile(archive) as packed:
        members = packed.namelist()
    root = next(m for m in members if PurePosixPath(m).name == CORPUS).removesuffix(CORPUS)

    def reader(member: str) -> Callable[[], bytes]:
        def read() -> bytes:
            try:
                with zipfile.ZipFile(archive) as packed:
                    return packed.read(member)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                sentence = f"{member} is damaged ({error}); fetch it again"
                raise BadInput("file.damaged", sentence, f"{archive}") from None

        return read

    inside = [m for m in members if m.startswith(root) and not m.endswith("/")]
    return {member.removeprefix(root): reader(member) for member in inside}


def _folder(folder: Path) -> Files:
    def reader(file: Path) -> Callable[[], bytes]:
        return lambda: read_bytes(file)

    files = {CORPUS, f"{CORPUS}.gz", QUERIES, f"{QUERIES}.gz"}
    found = {name.removesuffix(".gz"): reader(folder / name) for name in files if (folder / name).is_file()}
    for table in sorted(folder.glob("qrels/*.tsv*")):
        found[f"qrels/{table.name}"] = reader(table)
    return found


def _documents(where: str, content: bytes) -> tuple[Document, ...]:
    found, lines = [], []
    for number, record in _lines(where, content):
        id_, text = _first(record, _ID), _first(record, _TEXT)
        title = record.get("title") or ""
        if id_ is None or text is None or not isinstance(title, str):
            keys = f"got the keys {', '.join(record) or 'none'}"
            expected = 'expected {"_id": …, "title": …, "text": …} with texts'
            raise bad_line(where, number, "beir.malformed", f"{expected}, {keys}")
        found.append(Document(id_, title, text))
        lines.append(number)
    require(found, "beir.empty", "holds no document; expected a JSON object a line", where)
    refuse_twice(where, "document", (document.id for document in found), lines)
    return tuple(found)


def _queries(where: str, content: bytes) -> tuple[Query, ...]:
    found, lines = [], []
    for number, record in _lines(where, content):
        id_, text = _first(record, _ID), _first(record, _TEXT)
        if id_ is None or text is None:
            raise bad_line(where, number, "beir.malformed", 'expected {"_id": …, "text": …} with texts')
        found.append(Query(id_, text))
        lines.append(number)
    refuse_twice(where, "query", (query.id for query in found), lines)
    return tuple(found)


def _first(record: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """Return the value of the first of the keys that is there, as text; whole numbers may stand for an id."""
    value = next((record[key] for key in keys if record.get(key) is not None), None)
    if keys is _ID and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def _lines(where: str, content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            try:
                record = json.loads(decode(line))
            except (ValueError, RecursionError) as error:
                sentence = f"expected a JSON object ({error})"
                raise bad_line(where, number, "beir.malformed", sentence) from None
            if not isinstance(record, dict):
                sentence = f"expected a JSON object, got {line[:40]!r}"
                raise bad_line(where, number, "beir.malformed", sentence)
            yield number, record

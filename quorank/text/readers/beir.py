"""Reader of BEIR collections (Thakur et al. 2021): corpus.jsonl, queries.jsonl, qrels/*.tsv, in a folder or a zip file.

A line of corpus.jsonl is `{"_id": …, "title": …, "text": …}`; `id` may stand for `_id`, and `body` or `contents` for
`text`. The judgements of all splits are put together. Where files `*.qrel` or `*.qrel.gz` in TREC's form lie in the
folder, as in NFCorpus, whose own tables hold one grade only for training, they stand in place of the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from quorank.errors import brief, first_line, require
from quorank.files.archives import UntrustedZip, is_zip
from quorank.files.documents import load_json
from quorank.files.untrusted import numbered_lines, read_bounded
from quorank.text.collection import Document, Query, TextCollection
from quorank.text.readers.decoding import bad_line, decode, each_once
from quorank.text.readers.qrels import judgements_of, parse_judgements

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
_TEXT, _ID = ("text", "body", "contents"), ("_id", "id")


def read_jsonl(path: Path) -> TextCollection:
    """Read documents alone, from one file of JSON lines, plain or packed."""
    return TextCollection(path.name.split(".")[0], _documents(f"{path}", read_bounded(path)), format="JSON lines")


def read_beir(path: Path, name: str | None = None) -> TextCollection:
    """Read a folder or a zip file with a corpus; a folder may hold the zip file and graded judgements."""
    archive = path if path.is_file() else zip_in(path)
    files = _unzipped(archive) if archive else _read_folder(path)
    qrel_files = sorted(path.glob("*.qrel")) + sorted(path.glob("*.qrel.gz")) if path.is_dir() else []
    where = f"{archive or path}/"
    documents = _documents(where + CORPUS, files[CORPUS])
    queries = _queries(where + QUERIES, files[QUERIES]) if QUERIES in files else ()
    if qrel_files:
        tables: dict[str, bytes | bytearray] = {f"{file}": read_bounded(file) for file in qrel_files}
    else:
        tables = {where + member: files[member] for member in sorted(files) if member.startswith("qrels/")}
    found = [one for table, content in tables.items() for one in parse_judgements(content, table)]
    graded, skipped = judgements_of(found, queries, documents, " + ".join(tables))
    return TextCollection(name or path.name.removesuffix(".zip"), documents, queries, graded, skipped, "BEIR")


def has_corpus(folder: Path) -> bool:
    """Return whether a folder holds an unpacked corpus."""
    return (folder / CORPUS).is_file() or (folder / f"{CORPUS}.gz").is_file()


def zip_in(folder: Path) -> Path | None:
    """Return the zip file of a folder that holds a corpus, if there is one and no unpacked corpus."""
    packed = [] if has_corpus(folder) else sorted(folder.glob("*.zip"))
    return next((file for file in packed if is_beir_zip(file)), None)


def is_beir_zip(path: Path) -> bool:
    """Return whether a file is a zip file with a corpus; a damaged zip file is refused."""
    if not is_zip(path):
        return False
    with UntrustedZip(path) as packed:
        return any(PurePosixPath(member).name == CORPUS for member in packed.members)


def _unzipped(archive: Path) -> dict[str, bytes | bytearray]:
    """Return the corpus, the queries and the judgements of a zip file, by their names."""
    with UntrustedZip(archive) as packed:
        root = next(m for m in packed.members if PurePosixPath(m).name == CORPUS).removesuffix(CORPUS)
        names = {m: m.removeprefix(root) for m in packed.members if m.startswith(root)}
        return {n: packed.read(m) for m, n in names.items() if n in (CORPUS, QUERIES) or n.startswith("qrels/")}


def _read_folder(folder: Path) -> dict[str, bytes | bytearray]:
    """Return the files that are read, by their names; a plain file precedes a packed one."""
    packed_first = [folder / f"{name}{end}" for end in (".gz", "") for name in (CORPUS, QUERIES)]
    found = {file.name.removesuffix(".gz"): file for file in packed_first if file.is_file()}
    found |= {f"qrels/{table.name}": table for table in folder.glob("qrels/*.tsv*")}
    return {name: read_bounded(file) for name, file in found.items()}


def _documents(where: str, content: bytes | bytearray) -> tuple[Document, ...]:
    records = _records(where, content, titled=True)
    found = each_once(where, "document", ((number, Document(id_, title, text)) for number, id_, title, text in records))
    require(found, "beir.empty", "holds no document; expected a JSON object a line", where)
    return found


def _queries(where: str, content: bytes | bytearray) -> tuple[Query, ...]:
    records = _records(where, content, titled=False)
    return each_once(where, "query", ((number, Query(id_, text)) for number, id_, _, text in records))


def _records(where: str, content: bytes | bytearray, *, titled: bool) -> Iterator[tuple[int, str, str, str]]:
    """Read the line number, id, title and text of each record; queries have no title."""
    for number, line in numbered_lines(content, where):
        if not line.strip():
            continue
        try:
            record = load_json(decode(line))
        except ValueError as error:
            raise bad_line(where, number, "beir.malformed", f"expected a JSON object ({first_line(error)})") from None
        if not isinstance(record, dict):
            raise bad_line(where, number, "beir.malformed", f"expected a JSON object, got {line[:40]!r}")
        id_, text = (next((record[key] for key in keys if record.get(key) is not None), None) for keys in (_ID, _TEXT))
        if isinstance(id_, int) and not isinstance(id_, bool):
            id_ = str(id_)
        title = (record.get("title") or "") if titled else ""
        if not (isinstance(id_, str) and isinstance(text, str) and isinstance(title, str)):
            expected = 'expected {"_id": …, "title": …, "text": …} with texts'
            keys = brief(", ".join(record)) if record else "none"
            raise bad_line(where, number, "beir.malformed", f"{expected}, got the keys {keys}")
        if b"\\ud" in line.lower():  # half of a surrogate pair is no text; as elsewhere it becomes "?"
            id_, title, text = (part.encode(errors="replace").decode() for part in (id_, title, text))
        yield number, id_, title, text

"""Readers of text collections, one format a file; the format is told by what files begin with, not by names alone."""

from __future__ import annotations

from pathlib import Path

from quorank.errors import BadInput, require
from quorank.text.collection import TextCollection
from quorank.text.readers import beir, folder, mbox, reuters, smart, trec
from quorank.text.readers.decoding import read_bytes

LAYOUTS = (
    "a folder with corpus.jsonl (BEIR) or its zip file, a .jsonl file, SMART records (.I .T .W), "
    "TREC text (<DOC>), Reuters SGML (<REUTERS>), a folder of .txt or .md files, or an mbox file"
)
_HEAD = 64


def read_collection(path: Path | str) -> TextCollection:
    """Read a collection of any known layout; what cannot be recognised is refused with the layouts that can.

    A folder of SMART files must hold their documents in one file; queries and judgements are optional.
    """
    path = Path(path).expanduser()
    require(path.exists(), "file.missing", f"does not exist; expected {LAYOUTS}", f"{path}")
    return _from_folder(path) if path.is_dir() else _from_file(path)


def _from_file(path: Path) -> TextCollection:
    if beir.is_beir_zip(path):
        return beir.read_beir(path)
    if path.name.lower().endswith((".jsonl", ".jsonl.gz")):
        return beir.read_jsonl(path)
    head = _head(path)
    if head.startswith(smart.MARK):
        return smart.read_smart(path)
    if head.lower().startswith(trec.DOCUMENT_MARK):
        return trec.read_trec([path])
    if head.lower().startswith(reuters.MARKS):
        return reuters.read_reuters([path], path.stem)
    if head.startswith(mbox.MARK):
        return mbox.read_mbox(path)
    if head.startswith(b"{"):
        return beir.read_jsonl(path)
    raise BadInput("text.unknown-format", f"not a text collection; expected {LAYOUTS}", f"{path}")


def _from_folder(path: Path) -> TextCollection:
    name = path.resolve().name
    if beir.zip_in(path) or any((path / f"{beir.CORPUS}{end}").is_file() for end in ("", ".gz")):
        return beir.read_beir(path, name)
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    heads = {file: _head(file) for file in files}
    judgements = next((f for f in files if "rel" in f.name.lower() and "readme" not in f.name.lower()), None)
    records = [file for file, head in heads.items() if head.startswith(smart.MARK) and file != judgements]
    if records:
        documents, queries = _told_apart(path, records)
        return smart.read_smart(documents, queries, judgements, name)
    texts = [file for file, head in heads.items() if head.lower().startswith(trec.DOCUMENT_MARK)]
    topics = [file for file, head in heads.items() if head.lower().startswith(trec.TOPIC_MARK)]
    if texts:
        require(
            len(topics) <= 1,
            "text.ambiguous-files",
            f"{len(topics)} files of topics ({', '.join(file.name for file in topics)}); expected one",
            f"{path}",
        )
        return trec.read_trec(texts, topics[0] if topics else None, judgements, name)
    stories = [file for file, head in heads.items() if head.lower().startswith(reuters.MARKS)]
    if stories:
        return reuters.read_reuters(stories, name)
    if folder.text_files(path):
        return folder.read_folder(path, name)
    single = [file for file in files if file.suffix in (".jsonl", ".mbox") or ".jsonl" in file.suffixes]
    if len(single) == 1:
        return _from_file(single[0])
    raise BadInput("text.unknown-format", f"no text collection found in this folder; expected {LAYOUTS}", f"{path}")


def _told_apart(path: Path, records: list[Path]) -> tuple[Path, Path | None]:
    """Tell documents and queries of a SMART collection: queries are named so, documents are the rest."""
    queries = [file for file in records if any(word in file.name.lower() for word in ("qry", "quer"))]
    documents = [file for file in records if file not in queries]
    require(
        len(documents) == 1 and len(queries) <= 1,
        "text.ambiguous-files",
        "expected one file of documents and one of queries (with `qry` in its name), "
        f"found {', '.join(file.name for file in records)}",
        f"{path}",
    )
    return documents[0], queries[0] if queries else None


def _head(path: Path) -> bytes:
    return read_bytes(path, _HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()

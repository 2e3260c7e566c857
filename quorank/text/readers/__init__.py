"""Readers of text collections; the format is recognised by the first bytes of files rather than by names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from quorank.errors import BadInput, require
from quorank.files.atomic import expand_home
from quorank.files.untrusted import read_head
from quorank.text.collection import LAYOUTS, TextCollection, add_skipped
from quorank.text.readers import beir, folder, mbox, sgml, smart

_HEAD = 64
_NOT_READ = {"LISA": b"Document  ", "TIME": b"*TEXT "}
"""Beginnings of files that hold many documents, and would be read as one text each."""
_QUERY_NAMES, _JUDGEMENT_NAMES = ("qry", "quer"), ("rel",)


def read_collection(path: Path | str) -> TextCollection:
    """Read a collection of any known layout; an unknown one is rejected with the list of layouts.

    A folder of SMART files must hold their documents in one file; queries and judgements are optional.
    """
    path = expand_home(path)
    require(path.exists(), "file.missing", f"does not exist; expected {LAYOUTS}", f"{path}")
    return _from_folder(path) if path.is_dir() else _from_file(path)


def _from_file(path: Path) -> TextCollection:
    if beir.is_beir_zip(path):
        return beir.read_beir(path)
    head = _head(path)
    if path.name.lower().endswith((".jsonl", ".jsonl.gz")) or head.startswith(b"{"):
        return beir.read_jsonl(path)
    if _begins(head, smart.MARK):
        return smart.read_smart(path)
    if _begins(head, sgml.DOCUMENT_MARK):
        return sgml.read_trec([path])
    if _begins(head, sgml.STORY_MARKS):
        return sgml.read_reuters([path], path.stem)
    if _begins(head, mbox.MARK):
        return mbox.read_mbox(path)
    raise BadInput("text.unknown-format", f"not a text collection; expected {LAYOUTS}", f"{path}")


def _from_folder(path: Path) -> TextCollection:
    name = path.resolve().name
    if beir.zip_in(path) or beir.has_corpus(path):
        return beir.read_beir(path, name)
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    heads = {file: _head(file) for file in files}

    def beginning_with(mark: bytes | tuple[bytes, ...]) -> list[Path]:
        return [file for file, head in heads.items() if _begins(head, mark)]

    marked = set(beginning_with((smart.MARK, sgml.DOCUMENT_MARK, sgml.TOPIC_MARK)))
    tables = [file for file in files if file not in marked and _is_named(file, _JUDGEMENT_NAMES)]
    if records := beginning_with(smart.MARK):
        queries = [file for file in records if _is_named(file, _QUERY_NAMES)]
        documents = [file for file in records if file not in queries]
        expected = "expected one file of documents and one of queries (with `qry` in its name)"
        sentence = f"{expected}, found {', '.join(file.name for file in records)}"
        require(len(documents) == 1 and len(queries) <= 1, "text.ambiguous-files", sentence, f"{path}")
        judgements = tables[0] if tables and queries else None
        read = smart.read_smart(documents[0], queries[0] if queries else None, judgements, name)
        return _without_tables(read, tables, judgements)
    if texts := beginning_with(sgml.DOCUMENT_MARK):
        topics = beginning_with(sgml.TOPIC_MARK)
        listed = ", ".join(file.name for file in topics)
        sentence = f"{len(topics)} files of topics ({listed}); expected one"
        require(len(topics) <= 1, "text.ambiguous-files", sentence, f"{path}")
        judgements = tables[0] if tables and topics else None
        read = sgml.read_trec(texts, topics[0] if topics else None, judgements, name)
        return _without_tables(read, tables, judgements)
    if stories := beginning_with(sgml.STORY_MARKS):
        return sgml.read_reuters(stories, name)
    for layout, mark in _NOT_READ.items():
        sentence = f"holds {layout}'s own layout, which is not read; bring it into BEIR's (corpus.jsonl)"
        require(not beginning_with(mark), "text.unknown-format", sentence, f"{path}")
    if folder.text_files(path):
        return folder.read_folder(path, name)
    single = [file for file in files if file.suffix in (".jsonl", ".mbox") or ".jsonl" in file.suffixes]
    if len(single) == 1:
        return _from_file(single[0])
    raise BadInput("text.unknown-format", f"no text collection found in this folder; expected {LAYOUTS}", f"{path}")


def _without_tables(found: TextCollection, tables: list[Path], read: Path | None) -> TextCollection:
    """Record the judgement files that were not read: all but the first, and all of a collection without queries."""
    return replace(found, skipped=add_skipped(found.skipped, files_of_judgements=[f.name for f in tables if f != read]))


def _is_named(file: Path, words: tuple[str, ...]) -> bool:
    """Return whether a file's name holds one of these words, and is not that of a readme."""
    name = file.name.lower()
    return "readme" not in name and any(word in name for word in words)


def _head(path: Path) -> bytes:
    return read_head(path, _HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()


def _begins(head: bytes, mark: bytes | tuple[bytes, ...]) -> bool:
    """Return whether a file begins with a mark; one in small letters may stand there in capital ones too."""
    return head.startswith(mark) or head.lower().startswith(mark)

"""The readers, on small files of every layout."""

from __future__ import annotations

import gzip
import json
import zipfile

import pytest

from quorank.errors import BadInput
from quorank.text import Document, Query, TextCollection, read_collection
from quorank.text.readers.decoding import leading_title
from quorank.text.readers.smart import cranfield_grade

SMART = """.I 1
.T
Slip stream
of a wing .
.A
someone
.W
slip stream .
  the body
.I 02
.T \r
Plates
.W\r
about
plates
.X
1\t5\t1
.I 3
.T
.W
"""
ASKED = ".I 004\n.W\nwhat about\nwings ?\n.I 009\n.T\nplates\n.W\nand heat\n"


def smart_folder(folder, judgements="1 1 2 \n1 2 -1\n2 2 1\n", name="cran.rel", **files):
    texts = {"cran.all": SMART, "cran.qry": ASKED, name: judgements, "cranqrel.readme": "read me"} | files
    for file, text in texts.items():
        if text is not None:
            (folder / file).write_bytes(gzip.compress(text.encode()))
    return folder


def test_smart_records(tmp_path) -> None:
    found = read_collection(smart_folder(tmp_path))
    assert found.name == tmp_path.name
    assert found.documents[0] == Document("1", "Slip stream of a wing .", "slip stream .\n  the body")
    assert found.documents[1] == Document("2", "Plates", "about\nplates")
    assert found.documents[2] == Document("3", "", "")
    # judgements count queries in file order, because the numbers 1 and 2 are no .I of the queries
    assert found.queries == (Query("1", "what about wings ?"), Query("2", "plates and heat"))
    assert found.judgements == {"1": {"1": 3, "2": 0}, "2": {"2": 4}}


def test_cranfield_codes_run_from_best_to_worst() -> None:
    assert [cranfield_grade(code) for code in (1, 2, 3, 4, 5, -1)] == [4, 3, 2, 1, 0, 0]


def test_judgements_that_name_the_queries_numbers(tmp_path) -> None:
    found = read_collection(smart_folder(tmp_path, "4 0 1 1\n9 0 2 1\n9 0 77 1\n", "x.rel"))
    assert [query.id for query in found.queries] == ["4", "9"]
    assert found.judgements == {"4": {"1": 1}, "9": {"2": 1}}


def test_a_pair_judged_twice_has_its_higher_grade(tmp_path) -> None:
    found = read_collection(smart_folder(tmp_path, "4 0 1 2\n4 0 1 1\n9 0 1 0\n9 0 1 3\n", "x.rel"))
    assert found.judgements == {"4": {"1": 2}, "9": {"1": 3}}


def test_judgements_that_list_the_relevant(tmp_path) -> None:
    found = read_collection(smart_folder(tmp_path, "  4  1\t0\t0.000000\r\n  4  2\t0\t0.000000\r\n", "x.rel"))
    assert found.judgements == {"4": {"1": 1, "2": 1}}


def test_a_smart_file_alone(tmp_path) -> None:
    (tmp_path / "some.all").write_text(".I 1\n.W\nfirst line\n  body of it\n.I 2\n.W\nsecond\n")
    found = read_collection(tmp_path / "some.all")
    assert [document.title for document in found.documents] == ["first line", "second"]
    assert found.queries == ()


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("a title\n  the body", "a title"),
        ("a title that is\nlong  body\nmore", "a title that is long"),
        ("first\nsecond\nthird", "first"),
        ("1\n2\n3\n4\n5  late", "1"),
        ("  indented   \n   body", "indented"),
        ("", ""),
    ],
)
def test_what_stands_for_a_title(text, title) -> None:
    assert leading_title(text) == title


TREC = """<DOC>
<DOCNO>7</DOCNO>
compact memories  a storage
system
</DOC>
<DOC><DOCNO> X-1 </DOCNO><HEADLINE>Head &amp; line</HEADLINE><TEXT>some <b>text</b></TEXT></DOC>
"""
TOPICS = "<top>\n<num>1</num><title>\nMEMORY\n</title>\n</top>\n<top><num> Number: 2\n<title> a < b\n</top>\n"


def test_trec_text(tmp_path) -> None:
    for file, text in {"doc.trec": TREC, "query.trec": TOPICS, "qrels": "1 0 7 1\n2 0 X-1 0\n"}.items():
        (tmp_path / file).write_text(text)
    found = read_collection(tmp_path)
    assert found.documents[0] == Document("7", "compact memories", "compact memories  a storage\nsystem")
    assert found.documents[1].title == "Head & line"
    assert found.documents[1].body.split() == ["Head", "&", "line", "some", "text"]
    assert [query.id for query in found.queries] == ["1", "2"]
    assert found.queries[0].text == "MEMORY"
    assert found.judgements == {"1": {"7": 1}, "2": {"X-1": 0}}
    assert read_collection(tmp_path / "doc.trec").documents == found.documents


CORPUS = [{"_id": "a", "title": "T", "text": "text a"}, {"_id": 2, "text": "ü"}, {"id": "c", "contents": "", "x": 1}]
ASKED_OF = [{"_id": "q", "text": "find a"}, {"_id": "r", "text": "other"}]


def json_lines(records) -> bytes:
    return "\n".join(json.dumps(record, ensure_ascii=False) for record in records).encode()


def beir_folder(folder):
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(json_lines(CORPUS) + b"\r\n\r\n")
    (folder / "queries.jsonl").write_bytes(json_lines(ASKED_OF))
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\nq\t2\t-1\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nr\t2\t2\nq\ta\t3\n")
    return folder


def test_beir_folder(tmp_path) -> None:
    found = read_collection(beir_folder(tmp_path / "set"))
    assert found.documents == (Document("a", "T", "text a"), Document("2", "", "ü"), Document("c", "", ""))
    assert found.queries == (Query("q", "find a"), Query("r", "other"))
    assert found.judgements == {"q": {"a": 3, "2": 0}, "r": {"2": 2}}


def test_beir_zip_with_graded_judgements_beside_it(tmp_path) -> None:
    source = beir_folder(tmp_path / "source")
    target = tmp_path / "packed"
    target.mkdir()
    with zipfile.ZipFile(target / "set.zip", "w") as packed:
        for file in sorted(source.rglob("*.*")):
            packed.write(file, f"set/{file.relative_to(source).as_posix()}")
    assert read_collection(target / "set.zip").judgements == read_collection(source).judgements
    (target / "train.graded.qrel.gz").write_bytes(gzip.compress(b"q\t0\ta\t2\nr\t0\ta\t1\n"))
    found = read_collection(target)
    assert found.judgements == {"q": {"a": 2}, "r": {"a": 1}}
    assert found.documents == read_collection(source).documents


def test_json_lines_alone(tmp_path) -> None:
    (tmp_path / "news.jsonl.gz").write_bytes(gzip.compress(json_lines(CORPUS)))
    found = read_collection(tmp_path / "news.jsonl.gz")
    assert (found.name, len(found.documents), found.queries) == ("news", 3, ())
    assert read_collection(tmp_path).documents == found.documents


def test_a_folder_of_texts(tmp_path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_bytes("Caf\xe9\nsecond".encode("cp1252"))
    (tmp_path / "a.md").write_text("\n## Heading\n\ntext")
    (tmp_path / "sub" / "c.TXT").write_text("\ufeffbom")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0")
    (tmp_path / ".hidden.txt").write_text("no")
    found = read_collection(tmp_path)
    assert found.documents == (
        Document("a.md", "Heading", "## Heading\n\ntext"),
        Document("b.txt", "Café", "Café\nsecond"),
        Document("sub/c.TXT", "bom", "bom"),
    )


def test_a_folder_of_files_without_extension(tmp_path) -> None:
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "51060").write_text("From: x\nhello")
    assert [document.id for document in read_collection(tmp_path).documents] == ["group/51060"]


def refusal(path) -> str:
    with pytest.raises(BadInput) as caught:
        read_collection(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("x.jsonl", b'{"_id": "a", "text": "t"}\n{"_id": "b"', "line 2: expected a JSON object"),
        ("x.jsonl", b"[1]", "line 1: expected a JSON object, got"),
        ("x.jsonl", b'{"_id": "a"}', 'line 1: expected {"_id": '),
        ("x.jsonl", b'{"_id": true, "text": "t"}', "line 1: expected"),
        ("x.jsonl", b'{"_id": "a", "text": "t"}\n\n{"_id": "a", "text": "u"}', "line 3: the document id 'a' stands twice"),
        ("x.jsonl", b"\n", "holds no document"),
        ("x.all", b".I 1\n.W\na\n.I 01\n.W\nb\n", "line 4: the record id '1' stands twice"),
        ("x.all", b".I 1\nwhat\n.W\na\n", "line 2: expected a field like .T or .W"),
        ("x.trec", b"<DOC>\nno number\n</DOC>", "line 1: this document has no number"),
        ("x.trec", b"<DOC><DOCNO>1</DOCNO></DOC>\nstray\n<DOC></DOC>", "expected <doc>, got 'stray'"),
        ("x.trec", b"<DOC><DOCNO>1</DOCNO></DOC>\n<DOC><DOCNO>1</DOCNO></DOC>", "line 2: the document id '1' stands twice"),
        ("x.trec", b"<DOC><DOCNO>1</DOCNO>", "expected <doc>"),
        ("x.bin", b"\0\1\2", "not a text collection; expected a folder with corpus.jsonl"),
        ("x.gz", b"\x1f\x8b\x08damaged", "not sound gzip data"),
        ("x.bin", b"", "not a text collection"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_by_name_and_line(tmp_path, file, content, sentence) -> None:
    (tmp_path / file).write_bytes(content)
    message = refusal(tmp_path / file)
    assert message.startswith(str(tmp_path / file))
    assert sentence in message


@pytest.mark.parametrize(
    ("judgements", "sentence"),
    [
        ("1 2\n", "line 1: expected `query 0 document grade`"),
        ("1 0 2 1\n\n1 0 2\n", "line 3: expected"),
        ("1 0 2 high\n", "line 1: expected"),
        ("1 0 2 0.5\n", "line 1: expected"),
        ("1 0 2 1000\n", "line 1: grade 1000 found; expected at most 127"),
        ("1 5 2 1\n", "expected `query 0 document grade` or `query document 0 0`"),
        ("\n", "holds no judgement"),
    ],
)
def test_bad_judgements_are_refused_by_name_and_line(tmp_path, judgements, sentence) -> None:
    message = refusal(smart_folder(tmp_path, judgements, "x.rel"))
    assert "x.rel" in message
    assert sentence in message


def test_folders_that_hold_no_collection(tmp_path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere")
    assert "no text collection found" in refusal(tmp_path)
    (tmp_path / "data.txt").write_bytes(b"\0\0\0")
    assert "this is not text" in refusal(tmp_path)


def test_two_files_of_documents_are_refused(tmp_path) -> None:
    assert "found cran.all, cran.qry, other.all" in refusal(smart_folder(tmp_path, **{"other.all": SMART}))


def test_an_id_that_stands_twice_is_refused_in_any_collection() -> None:
    document = Document("a", "", "x")
    with pytest.raises(BadInput, match="mine: the document id 'a' stands twice"):
        TextCollection("mine", (document, document))
    with pytest.raises(BadInput, match="mine: the query id 'q' stands twice"):
        TextCollection("mine", (document,), (Query("q", "x"), Query("q", "y")))


def test_a_collection_without_its_empty_documents() -> None:
    documents = (Document("a", "", "x"), Document("b", " ", "\n"))
    judgements = {"q": {"a": 1, "b": 1}, "r": {"b": 1}}
    found = TextCollection("mine", documents, (Query("q", "x"), Query("r", "y")), judgements).without_empty()
    assert [document.id for document in found.documents] == ["a"]
    assert found.judgements == {"q": {"a": 1}}
    assert found.without_empty() is found

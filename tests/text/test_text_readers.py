"""The readers, on small files of every layout."""

from __future__ import annotations

import gzip
import json
import mailbox
import zipfile
from email.message import EmailMessage

import pytest
from refusals import refused

from quorank.errors import BadInput
from quorank.text import Document, Query, Skipped, TextCollection, describe_skipped, read_collection

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


def test_judgements_that_name_the_queries_numbers(tmp_path) -> None:
    found = read_collection(smart_folder(tmp_path, "4 0 1 1\n9 0 2 1\n9 0 77 1\n", "x.rel"))
    assert [query.id for query in found.queries] == ["4", "9"]
    assert found.judgements == {"4": {"1": 1}, "9": {"2": 1}}


def cacm_folder(folder, judgements=None):
    """The files of CACM as it is distributed, made up and small: two digits for a query, four for a document."""
    files = {
        "cacm.all": "".join(f".I {d}\n.T\nTitle {d}\n.B\nMay, 1958\n.N\nCA58\n.X\n{d}\t5\t{d}\n" for d in (1, 2, 1410)),
        "query.text": "".join(f".I {q}\n.W\n What about {q}?\n.N\n {q}. Somebody\n" for q in (1, 2, 10, 34)),
        "qrels.text": judgements or "01 1410  0 0\n01 0002  0 0\n02 1  0 0\n10 1410  0 0\n10 0001  0 0\n",
        "common_words": "a\nabout\n",
        "README": "the CACM collection\n",
        "cite.info": "how documents are cited\n",
    }  # fmt: skip
    for file, text in files.items():
        (folder / file).write_text(text)
    return folder


def test_judgements_of_cacm_keep_leading_zeros(tmp_path) -> None:
    found = read_collection(cacm_folder(tmp_path))
    assert [document.id for document in found.documents] == ["1", "2", "1410"]
    assert [query.id for query in found.queries] == ["1", "2", "10", "34"]
    assert found.judgements == {"1": {"1410": 1, "2": 1}, "2": {"1": 1}, "10": {"1410": 1, "1": 1}}
    assert (found.skipped, sum(map(len, found.judgements.values())), found.format) == ({}, 5, "SMART")


def test_an_unknown_query_does_not_renumber_the_others(tmp_path) -> None:
    """Only judgements that can count the queries from 1 are taken to do so: 35 is more than there are queries."""
    found = read_collection(cacm_folder(tmp_path, "01 1 0 0\n34 2 0 0\n35 1 0 0\n02 77 0 0\n02 78 0 0\n"))
    assert found.judgements == {"1": {"1": 1}, "34": {"2": 1}}
    assert found.skipped == {
        "judgements_of_unknown_queries": Skipped(1, "35"),
        "judgements_of_unknown_documents": Skipped(2, "77"),
    }
    said = "cacm: left out 1 × judgements of unknown queries ('35'), 2 × judgements of\n  unknown documents ('77', …)"
    assert describe_skipped(found.skipped, "cacm") == said


def test_a_collection_that_loses_all_judgements_is_refused(tmp_path) -> None:
    with refused("qrels.all-lost", f"{tmp_path / 'qrels.text'}"):
        read_collection(cacm_folder(tmp_path, "Q1 D1 0 0\nQ2 D2 0 0\n"))
    (tmp_path / "query.text").rename(tmp_path / "questions.txt")  # told by its name alone, so these are documents too
    with refused("text.ambiguous-files"):
        read_collection(tmp_path)


def test_judgements_without_queries_are_told(tmp_path) -> None:
    (cacm_folder(tmp_path) / "query.text").unlink()
    (tmp_path / "qrels.old").write_text("not read")
    found = read_collection(tmp_path)
    assert found.skipped == {"files_of_judgements": Skipped(2, "qrels.old")}


def test_a_topic_is_the_same_without_leading_zeros_and_a_document_where_no_other_is(tmp_path) -> None:
    topics = "<top>\n<num> Number:  051\n<title> memory\n</top>\n"
    documents = "".join(f"<DOC><DOCNO>{d}</DOCNO>words</DOC>\n" for d in ("07", "7", "008", "FT-01"))
    for file, text in {
        "d": documents,
        "topics": topics,
        "qrels": "51 0 7 1\n51 0 8 1\n51 0 007 1\n51 0 FT-1 1\n",
    }.items():
        (tmp_path / file).write_text(text)
    found = read_collection(tmp_path)
    assert found.judgements == {"051": {"7": 1, "008": 1}}
    assert found.skipped == {"judgements_of_unknown_documents": Skipped(2, "007")}


@pytest.mark.parametrize("head", ["Document   1\nTITLE\n", "*TEXT 017 01/04/63 PAGE 020\n"])
def test_many_documents_in_a_file_are_not_read_as_one(tmp_path, head) -> None:
    """LISA and TIME write many documents into files that look like texts without an extension."""
    (tmp_path / "FILE0.001").write_text(f"{head} words\n")
    with refused("text.unknown-format"):
        read_collection(tmp_path)


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


def test_trec_text_in_several_files(tmp_path) -> None:
    for number in ("1", "2"):
        (tmp_path / f"ap{number}").write_text(f"<DOC>\n<DOCNO> AP-{number} </DOCNO>\n<TEXT>story</TEXT>\n</DOC>\n")
    assert [document.id for document in read_collection(tmp_path).documents] == ["AP-1", "AP-2"]
    (tmp_path / "ap3").write_text((tmp_path / "ap1").read_text())
    with refused("text.id-twice"):
        read_collection(tmp_path)


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
    assert found.skipped == {"files_of_other_kinds": Skipped(1, "picture.png")}


def test_a_file_that_is_not_text_is_left_out_and_told(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("words")
    (tmp_path / "b.txt").write_bytes(b"\0\1\2")
    found = read_collection(tmp_path)
    assert [document.id for document in found.documents] == ["a.txt"]
    assert found.skipped == {"files_that_are_not_text": Skipped(1, "b.txt")}


START = b"From someone@example.org Thu Jan  1 00:00:00 1970\n"


def mbox(folder, *messages: bytes):
    path = folder / "mail.mbox"
    path.write_bytes(b"\n".join(START + message for message in messages))
    return path


def test_messages_written_by_the_library(tmp_path) -> None:
    message = EmailMessage()
    message["Subject"] = "Grüße aus Köln"
    message["Message-ID"] = "<1@example.org>"
    message.set_content("plain äöü\n")
    message.add_alternative("<p>html</p>", subtype="html")
    message.add_attachment("attached text", filename="notes.txt")
    message.add_attachment(b"\0\1", maintype="image", subtype="png", filename="x.png")
    page = EmailMessage()
    page["Subject"] = "page"
    page.set_content("<style>p {}</style><p>Fish &amp; <b>chips</b></p>", subtype="html")
    box = mailbox.mbox(tmp_path / "mail.mbox")
    box.add(message)
    box.add(page)
    box.flush()
    first, second = read_collection(tmp_path / "mail.mbox").documents
    assert (first.id, first.title, first.body) == ("1@example.org", "Grüße aus Köln", "plain äöü")
    assert (second.id, second.body) == ("message-2", "Fish & chips")


def test_bad_encodings_cost_characters_not_messages(tmp_path) -> None:
    path = mbox(
        tmp_path,
        b"Subject: =?no-such-charset?B?////?=\nContent-Type: text/plain; charset=utf-8\n\ncaf\xe9 au lait\n",
        b"Subject: caf\xe9\nContent-Type: text/plain; charset=no-such\n\nbody two\n",
        b"Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n!!!not base64\n",
        b'Content-Type: multipart/mixed; boundary="x"\n\nno parts\n',
    )
    found = read_collection(path).documents
    assert len(found) == 4
    assert found[0].body == "café au lait"
    assert found[1].body == "body two"
    assert found[1].title.startswith("caf")


def test_copies_are_read_once(tmp_path) -> None:
    message = b"Message-ID: <a@b>\nSubject: s\n\nbody\n"
    found = read_collection(mbox(tmp_path, message, message, b"Subject: t\n\nother\n"))
    assert [document.id for document in found.documents] == ["a@b", "message-3"]
    assert found.skipped == {"repeated_messages": Skipped(1, "a@b")}


STORIES = """<!DOCTYPE lewis SYSTEM "lewis.dtd">
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" OLDID="5544" NEWID="1">
<DATE>26-FEB-1987 15:01:01.79</DATE>
<TOPICS><D>cocoa</D></TOPICS>
<TEXT>&#2;
<TITLE>BAHIA COCOA &lt;REVIEW></TITLE>
<DATELINE>    SALVADOR, Feb 26 - </DATELINE><BODY>Showers continued
throughout the week.
 Reuter
&#3;</BODY></TEXT>
</REUTERS>
<REUTERS TOPICS="NO" OLDID="5545" NEWID="2">
<TEXT TYPE="UNPROC">&#2;
Shares were quiet
all day.
&#3;</TEXT>
</REUTERS>
"""
STORY = '<REUTERS NEWID="3"><TEXT><TITLE>T</TITLE><BODY>third</BODY></TEXT></REUTERS>\n'


def test_stories_of_several_files(tmp_path) -> None:
    (tmp_path / "reut2-000.sgm").write_text(STORIES)
    (tmp_path / "reut2-001.sgm").write_text(STORY)
    found = read_collection(tmp_path)
    assert [document.id for document in found.documents] == ["1", "2", "3"]
    first, second, third = found.documents
    assert first.title == "BAHIA COCOA <REVIEW>"
    assert first.body.split() == ["Showers", "continued", "throughout", "the", "week.", "Reuter"]
    assert "SALVADOR" not in first.body
    assert second.title == "Shares were quiet"
    assert "all day." in second.body
    assert third.body == "third"
    assert read_collection(tmp_path / "reut2-001.sgm").documents == (third,)


def refusal(path) -> str:
    with pytest.raises(BadInput) as caught:
        read_collection(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("x.jsonl", b'{"_id": "a", "text": "t"}\n{"_id": "b"', "line 2: expected a JSON object"),
        ("x.jsonl", b'{"_id": "a"}', 'line 1: expected {"_id": '),
        ("x.jsonl", b'{"_id": "a", "text": "t"}\n\n{"_id": "a", "text": "u"}', "line 3: the document id 'a' stands twice"),
        ("x.all", b".I 1\n.W\na\n.I 01\n.W\nb\n", "line 4: the record id '1' stands twice"),
        ("x.all", b".I 1\nwhat\n.W\na\n", "line 2: expected a field like .T or .W"),
        ("x.trec", b"<DOC>\nno number\n</DOC>", "line 1: this document has no number"),
        ("x.trec", b"<DOC><DOCNO>1</DOCNO></DOC>\nstray\n<DOC></DOC>", "expected <doc>, got 'stray'"),
        ("x.trec", b"<DOC><DOCNO>1</DOCNO></DOC>\n<DOC><DOCNO>1</DOCNO></DOC>", "line 2: the document id '1' stands twice"),
        ("x.mbox", b"\nFrom a\n", "line 1: expected `From"),
        ("x.sgm", STORIES.replace(' NEWID="2"', "").encode(), "line 12: this story has no number"),
        ("x.sgm", b"<REUTERS NEWID='4'>", "found no such story"),
        ("x.bin", b"\0\1\2", "not a text collection; expected a folder with corpus.jsonl"),
        ("x.gz", b"\x1f\x8b\x08damaged", "not sound gzip data"),
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
        ("1 0 2 1\n\n1 0 2\n", "line 3: expected"),
        ("1 0 2 high\n", "line 1: expected"),
        ("1 0 2 1000\n", "line 1: grade 1000 found; expected at most 127"),
        ("1 5 2 1\n", "expected `query 0 document grade` or `query document 0 0`"),
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
    assert "none of its 1 files is text" in refusal(tmp_path)


def test_two_files_of_documents_are_refused(tmp_path) -> None:
    assert "found cran.all, cran.qry, other.all" in refusal(smart_folder(tmp_path, **{"other.all": SMART}))


def test_an_id_that_stands_twice_is_refused_in_any_collection() -> None:
    document = Document("a", "", "x")
    with pytest.raises(BadInput, match="mine: the document id 'a' stands twice"):
        TextCollection("mine", (document, document))
    with pytest.raises(BadInput, match="mine: the query id 'q' stands twice"):
        TextCollection("mine", (document,), (Query("q", "x"), Query("q", "y")))


def test_a_collection_without_what_holds_no_word() -> None:
    documents = (Document("a", "", "x"), Document("b", " ", "\n"))
    judgements = {"q": {"a": 1, "b": 1}, "r": {"b": 1}, "s": {"a": 1}}
    asked = (Query("q", "x"), Query("r", "y"), Query("s", "? !"))
    found = TextCollection("mine", documents, asked, judgements).without_empty()
    assert [document.id for document in found.documents] == ["a"]
    assert found.judgements == {"q": {"a": 1}}
    assert found.skipped == {
        "empty_documents": Skipped(1, "b"),
        "judgements_of_empty_documents": Skipped(2, "b"),
        "queries_without_a_word": Skipped(1, "s"),
        "judgements_of_queries_without_a_word": Skipped(1, "s"),
    }
    assert found.without_empty() is found

"""Seeds of the corpus, all of them generated: valid inputs of every target, and inputs that once did harm.

`python -m fuzz.seeds` writes them to `fuzz/corpus/`; what stands there under another name is left alone. Names that begin
with `valid` are inputs that a target must take.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import io
import json
import os
import sqlite3
import struct
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather

from fuzz.target import CORPUS, scratch
from fuzz.targets.data import ROW
from fuzz.targets.export import small_ranker
from fuzz.targets.silos import ASKED
from quorank.data.normalisation import FixedRange
from quorank.data.source import DataSource, load
from quorank.errors import Interrupted
from quorank.experiments.deployment import terms_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.runner import run_experiment
from quorank.export import TARGETS
from quorank.export.directory import files_of
from quorank.federation.reply import Reply, Task, encode_reply, encode_task
from quorank.federation.rounds import Report, State
from quorank.federation.storage import CoordinatorCheckpoint
from quorank.files import codec as files_codec
from quorank.member.private_store import PrivateStore
from quorank.privacy.secure_sum.masks import COMMITMENTS, SEALED
from quorank.privacy.secure_sum.masks import KEY as KEY_BYTES
from quorank.privacy.secure_sum.messages import (
    AdvertiseKeys,
    KeyList,
    MaskedInput,
    ShareDelivery,
    ShareKeys,
    UnmaskReply,
    UnmaskRequest,
)
from quorank.protocol import frames
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey, enrolment_content
from quorank.protocol.messages import leaving_request
from quorank.protocol.requests import signed_headers
from quorank.protocol.secure_identity import SignedKeys
from quorank.protocol.secure_round import KEYS
from quorank.protocol.secure_round import envelope as envelope_of
from quorank.protocol.terms import Terms
from quorank.rankers import Linear
from quorank.rankers.ranker_file import Origin, SavedRanker, ranker_bytes
from quorank.reports.report import report_page
from quorank.service.enrolment import invite
from quorank.service.holders.group import SiloHome, settings_of
from quorank.service.home import Home, Settings
from quorank.service.store.backup import backup
from quorank.silos.envelopes import Catalogue, Envelope, Hello, Kind, Refuse
from quorank.silos.search.ledger import SearchSpending
from quorank.silos.search.messages import NamedDocuments, SearchAnswer, question_digest
from quorank.silos.search.settings import SearchTerms
from quorank.silos.session.records import Record, SiloMessage, SumHead, encode
from quorank.silos.session.streams import SiloStore
from quorank.silos.session.terms import SiloTerms
from quorank.tuning.field import FieldTuning, TuningTask
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.models import Model, write_model
from quorank.tuning.studies.study import Study

Seeds = Iterator[tuple[str, str, bytes]]
"""(target, name, content)."""

SMALL = """\
seed = 3

[data]
source = "synthetic:mq2007"
queries = 40

[federation]
clients = 4
rounds = 3
keep_every = 1
"""
PRIVATE = '\n[privacy]\nkind = "gaussian"\nepsilon = 50.0\n'
LETOR = b"2 qid:10 1:0.5 2:3 #docid = D1\n0 qid:10 1:-1e-3 3:.25\n# a comment\n1 qid:q2 2:1 1:nan # x\n"


def letor() -> Seeds:
    yield "letor", "valid", LETOR
    yield "csv-table", "valid", b'qid,docid,b,"a"\n1,x,0.5,-3e4\n1,y,,7\n'
    yield "csv-table", "columns-twice", b"a,b,a\n1,2,3\n"
    yield "csv-table", "name-not-utf-8", b"a,b,\xff\n1,2,3\n"
    yield "csv-table", "rows-ragged", b"a,b\n1,2,3\n4\n"
    for name, columns in (
        ("valid", {"a": [1.0, None], "b": [1, 2], "qid": ["x", "y"]}),
        ("valid-nothing", {"a": np.zeros(0), "b": np.zeros(0)}),
        ("dates", {"a": [1.0], "b": pa.array([1], pa.timestamp("s"))}),
        ("lists", {"a": [[1.0]], "b": [1.0]}),
        ("names-missing", {"a": [1.0], "c": [1.0]}),
    ):
        buffer = io.BytesIO()
        pq.write_table(pa.table(columns), buffer)
        yield "parquet-table", name, buffer.getvalue()
    yield "constants", "valid", b'{"low": [0, -1.5], "high": [1e6, 3]}'
    yield "constants", "valid-ranker", b'{"normalisation": {"kind": "fixed", "low": [0], "high": [0]}}'
    yield "constants", "sizes-differ", b'{"low": [0, 1], "high": [1]}'
    yield "constants", "table-for-list", b'{"low": {}, "high": 1}'
    yield "letor", "valid-crlf", b"\xef\xbb\xbf1 qid:1 1:1\r\n\r\n0\tqid:1\t2:0.5 \r\n"
    yield (
        "letor",
        "valid-numbers",
        b"0 qid:1 1:1e40 2:-1e39 3:1e-50 4:+5 5:3.4028236e38 6:1.17549435e-38 7:123456789012345678901234567890\n",
    )
    yield "letor", "zero-with-an-exponent", b"0 qid:1 1:0e40\n"
    yield "letor", "zeros-with-exponents", b"0 qid:1 1:0.0e99 2:-0e400 3:0e-400 4:00000e38 5:0.e39\n"
    yield "letor", "bad-index", b"0 qid:1 0:1\n"
    yield "letor", "large-index", b"0 qid:1 2147483648:1\n"
    yield "letor", "no-label", b"qid:1 1:1\n"
    yield "letor", "label-128", b"128 qid:1 1:1\n"
    yield "letor-gz", "valid", gzip.compress(LETOR, mtime=0)
    yield "letor-gz", "cut-off", gzip.compress(LETOR, mtime=0)[:-9]
    yield "letor-gz", "a-bomb-of-5-MB", gzip.compress(b"\n" * (5 << 20), mtime=0)
    yield "feature-names", "valid", b"length of body\nTF of body\n\nBM25 of body\r\n\n"
    yield "feature-names", "not-utf-8", b"TF\n\xff\n"
    yield "letor-writer", "valid", LETOR
    yield (
        "letor-writer",
        "valid-many",
        b"".join(b"%d qid:%d 1:%f 5:1e-20\n" % (i % 3, i // 3, i / 7) for i in range(30)),
    )


LOG = b"""user,time,search,query,document,rank,click,bm25,len
anna,2006-03-01T00:01:03Z,1,cats,a,1,0,0.5,3
anna,2006-03-01T00:01:03Z,1,cats,b,2,1,0.25,4
ben,1138752000.5,2,"dogs, ""and""
more",a,1,1,1e-3,3
"""
AOL = b"""=== letor.txt
0 qid:7 1:0.5 2:3
1 qid:7 1:0.25 2:4
1 qid:5 1:1 2:3
=== metadata.csv
qid,user_id,timestamp,query,target_doc_id,candidate_doc_ids
5,71,2006-03-01 00:01:04,dogs,d5,"{'d5', 'x'}"
7,142,2006-03-01 00:01:03,cats,d7,"{'d7', 'y'}"
"""
UBI = b"""=== ubi_queries.ndjson
{"query_id": "q1", "client_id": "anna", "timestamp": "2024-06-01T00:00:01Z", "user_query": "x", "query_response_hit_ids": ["b", "a"]}
{"_source": {"query_id": "q2", "client_id": "ben", "timestamp": 1717200000000}}
=== ubi_events.ndjson
{"index": {"_index": "ubi_events"}}
{"action_name": "click", "query_id": "q1", "event_attributes": {"object": {"object_id": "a"}}}
{"action_name": "impression", "query_id": "q2", "event_attributes": {"object": {"object_id": "z"}, "position": {"ordinal": 1}}}
=== features.csv
query_id,object_id,bm25,age
q1,a,1,2
q1,b,3,4
q2,z,5,6
"""


def _feathered(compression: str) -> bytes:
    table = pa.table(
        {
            "query_id": ["9", "9", "4"],
            "position": pa.array([2, 1, 1], pa.int32()),
            "click": pa.array([1, 0, 0], pa.int32()),
            "url_md5": ["u2", "u1", "v1"],
            "bm25": pa.array([2.0, 1.0, 5.0], pa.float32()),
            "query_document_embedding": pa.array([np.array([i, -i], np.float16) for i in (2, 1, 5)]),
        }
    )
    buffer = io.BytesIO()
    feather.write_feather(table, buffer, compression=compression, chunksize=2)
    return buffer.getvalue()


def logs() -> Seeds:
    yield "log-csv", "valid", LOG
    yield "log-csv", "valid-without-ranks", b"click,search,f\r\n0,1,5\r\n1,1,6\r\n"
    yield "log-csv", "an-open-quote", LOG.replace(b'more"', b"more")
    yield "log-csv", "no-search", b"click,search,f\n0,,5\n"
    yield "log-aol4foltr", "valid", AOL
    yield "log-aol4foltr", "unknown-query", AOL.replace(b"qid:5", b"qid:6")
    yield "log-ubi", "valid", UBI
    yield "log-ubi", "no-list", UBI.replace(b"impression", b"hover")
    yield "log-baidu-ultr", "valid", _feathered("uncompressed")
    yield "log-baidu-ultr", "valid-lz4", _feathered("lz4")
    yield "log-baidu-ultr", "valid-zstd", _feathered("zstd")
    yield "log-columns", "valid", b"features.txt\nf1\n"
    times = np.arange(6, dtype="<i8")
    buffer = io.BytesIO()
    np.save(buffer, times)
    yield "log-columns", "valid-times", b"time.npy\n" + buffer.getvalue()
    yield "log-columns", "users-that-are-not-there", b"user.npy\n" + buffer.getvalue()
    yield "log-time", "valid", b"2006-03-01T00:01:03.5+01:00"
    yield "log-time", "valid-seconds", b"-1141171263.25"


def packed(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, kind)
    return buffer.getvalue()


def archives() -> Seeds:
    files = {f"c/{name}.txt": LETOR for name in ("train", "vali", "test")}

    yield "import-zip", "valid", packed(files)
    yield "import-zip", "member-dot", packed(files | {".": b"x"})
    yield "import-zip", "member-outside", packed(files | {"../x": b"x"})
    yield "import-zip", "member-twice-file-and-folder", packed(files | {"c/train.txt/x": b"x"})
    yield "import-zip", "no-collection", packed({"x": b"x"})
    encrypted = bytearray(packed(files))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.index(mark) + offset] |= 1
    yield "import-zip", "encrypted", bytes(encrypted)
    foreign = bytearray(packed(files))
    for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        foreign[foreign.index(mark) + offset] = 99
    yield "import-zip", "foreign-compression", bytes(foreign)
    for mode, name in (("w", "valid"), ("w:gz", "valid-gz")):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
            for member, content in files.items():
                entry = tarfile.TarInfo(member)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
            if name == "valid":
                plain = buffer
        yield "import-tar", name, _timeless(buffer.getvalue())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(".")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    yield "import-tar", "member-dot", _timeless(buffer.getvalue())
    yield "import-tar", "cut-off", plain.getvalue()[:700]
    corpus = b'{"_id": "d1", "title": "A title", "text": "Some text"}\n{"id": 2, "contents": "More"}\n'
    queries = b'{"_id": "q1", "text": "some"}\n'
    table = b"query-id\tcorpus-id\tscore\nq1\td1\t2\n"
    beir = {"c/corpus.jsonl": corpus, "c/queries.jsonl": queries, "c/qrels/test.tsv": table}
    yield "beir-zip", "valid", packed(beir)
    yield "beir-zip", "valid-stored", packed(beir, zipfile.ZIP_STORED)
    damaged = bytearray(packed(beir))
    damaged[60] ^= 255
    yield "beir-zip", "damaged", bytes(damaged)
    yield "beir-zip", "cut-off", packed(beir)[:-30]
    for name, offsets, new in (
        ("encrypted", (6, 8), 1),
        ("foreign-compression", (8, 10), 99),
        ("wrong-size", (22, 24), 255),
    ):
        changed = bytearray(packed(beir))
        for mark, offset in zip((b"PK\x03\x04", b"PK\x01\x02"), offsets, strict=True):
            changed[changed.index(mark) + offset] = new
        yield "beir-zip", name, bytes(changed)
    directory = bytearray(packed(beir))
    directory[directory.index(b"PK\x01\x02") + 42] ^= 200
    yield "beir-zip", "wrong-offset", bytes(directory)
    yield "jsonl", "valid", corpus
    yield "jsonl", "nested", b'{"_id": "1", "text": ' + b"[" * 5000 + b"}"
    yield "jsonl", "long-number", b'{"_id": ' + b"1" * 4301 + b', "text": "x"}'
    yield "jsonl", "surrogate", b'{"_id": "\\ud800", "text": "x"}\n{"_id": "\\ud800", "text": "x"}'
    yield "jsonl", "key-of-two-lines", b'{"a\\nb": 1}'
    yield "jsonl-gz", "valid", gzip.compress(corpus, mtime=0)


def _timeless(packed: bytes) -> bytes:
    """A gzip file without the time at which it was made; a tar file without the zeros that fill it up."""
    if packed.startswith(b"\x1f\x8b"):
        return packed[:4] + bytes(4) + packed[8:]
    return packed.rstrip(b"\0") + bytes(512 - len(packed.rstrip(b"\0")) % 512 + 1024)


def texts() -> Seeds:
    smart = b".I 001\n.T\na title\n.A\nsomebody\n.W\na title  and a body\n.I 2\n.W\nanother\n"
    yield "smart", "valid", smart
    trec = b"<DOC>\n<DOCNO> A1 </DOCNO>\n<TITLE>On &amp; off</TITLE>\n<TEXT>\nwords\n</TEXT>\n</DOC>\n<DOC><DOCNO>2</DOCNO>more words</DOC>\n"
    yield "trec", "valid", trec
    yield "trec", "valid-entities", b"<DOC><DOCNO>1</DOCNO>&#0;&#99999999999;&lt;&#xD800;</DOC>"
    yield "trec", "never-closed", b"<DOC>" * 400
    reuters = b'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n<REUTERS TOPICS="YES" NEWID="7">\n<TEXT><TITLE>A TITLE</TITLE><BODY>Body&#3;</BODY></TEXT>\n</REUTERS>\n<REUTERS NEWID="8"><TEXT TYPE="UNPROC">&#2;words</TEXT></REUTERS>\n'
    yield "reuters", "valid", reuters
    yield "reuters", "never-closed", b"<REUTERS " * 200
    mail = b"From a@b Mon Jan  1 00:00:00 2024\nFrom: a\nSubject: =?utf-8?q?caf=C3=A9?=\nMessage-ID: <1@x>\n\nHello\n>From here\n\nFrom c\nContent-Type: multipart/alternative; boundary=x\n\n--x\nContent-Type: text/html; charset=latin-1\n\n<p>Hi<script>no</script> there</p>\n--x\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\naGVsbG8=\n--x--\n"
    yield "mbox", "valid", mail
    yield "mbox", "from-line-outside-ascii", b"From caf\xe9 Mon Jan  1 00:00:00 2024\nSubject: x\n\nx\n"
    yield "mbox", "from-line-utf-8", "From café\nSubject: x\n\nx\n".encode()
    for codec in (
        b"utf-7",
        b"idna",
        b"punycode",
        b"rot13",
        b"hex",
        b"undefined",
        b"unicode_escape",
        b"mbcs",
        b"zlib",
        b"\xe9",
    ):
        yield (
            "mbox",
            f"charset-{codec.decode('latin1').encode('ascii', 'replace').decode().replace('?', 'e')}",
            b"From a\nContent-Type: text/plain; charset=" + codec + b"\n\n\xff\xfe+AAA\n",
        )
    yield (
        "mbox",
        "encoded-subjects",
        b"From a\nSubject: =?x-unknown?b?////?= =?utf-8?b?a?= =?rot13?q?a?= =?us-ascii?q?=FF?=\n\nx\n",
    )
    yield "qrels", "valid", b"1 0 d1 2\n1 0 d2 -1\n"
    yield "qrels", "valid-listing", b"1 d1 0 0.0\n2 d2 0 0.0\n"
    yield "qrels", "valid-table", b"query-id\tcorpus-id\tscore\nq1\td1\t2\n"
    yield "qrels", "huge", b"1 0 d1 1e300\n"
    yield (
        "text-folder",
        "valid-cranfield",
        b"=== cran.all.1400\n" + smart + b"=== cran.qry\n.I 1\n.W\nwhat\n=== cranqrel\n1 2 3\n1 1 -1\n",
    )
    yield (
        "text-folder",
        "valid-trec",
        b"=== docs\n" + trec + b"=== topics\n<top>\n<num> Number: 301\n<title> words\n</top>\n=== qrels\n301 0 A1 1\n",
    )
    yield (
        "text-folder",
        "valid-beir",
        b'=== corpus.jsonl\n{"_id": "d1", "title": "t", "text": "x"}\n=== queries.jsonl\n{"_id": "q1", "text": "x"}\n=== qrels/test.tsv\nquery-id\tcorpus-id\tscore\nq1\td1\t1\n',
    )
    yield "text-folder", "valid-text", b"=== a.txt\nA title\nand text\n=== sub/b.md\n# Heading\n"
    yield "text-folder", "valid-reuters", b"=== a.sgm\n" + reuters
    yield (
        "text-folder",
        "valid-cacm",
        b"=== cacm.all\n.I 1\n.T\nA title\n.B\nMay\n.I 1410\n.T\nAnother\n=== query.text\n.I 1\n.W\n what\n.N\n 1. x\n=== qrels.text\n01 1410  0 0\n01 0001  0 0\n02 7  0 0\n=== common_words\na\n=== README\nx\n=== cite.info\ny\n",
    )
    yield (
        "language",
        "valid",
        "Das ist nicht das Haus, von dem sie erzählt hat.\n다른 문서\nhva er det for en og som\n".encode(),
    )


def experiments() -> Seeds:
    full = (
        b'seed = 1\n[data]\nsource = "synthetic:mq2007"\nqueries = 60\nnormalize = "query"\n[ranker]\nkind = "mlp"\nhidden = 8\n[users]\nkind = "cascade"\n'
        b'preset = "perfect"\n[learner]\nkind = "pdgd"\neta = 0.1\n[federation]\nclients = 20\ninteractions = 4\nrounds = 5\naggregation = { kind = "krum", byzantine = 3 }\n'
        b'server = { kind = "adam", step = 0.1 }\nparticipation = { kind = "sampled", cohort = 10 }\n[attack]\nkind = "sign-flip"\nclients = 2\n[evaluation]\nevery = 1\nno_relevant = "skip"\n'
    )
    private = b'[federation]\nclients = 100\nrounds = 10\n[privacy]\nkind = "gaussian"\nepsilon = 8.0\ndelta = 1e-5\nclip = 0.1\n'
    for target_ in ("experiment", "run-toml"):
        yield target_, "valid", full if target_ == "experiment" else SMALL.encode()
        yield target_, "long-integer", b"seed = " + b"1" * 4301 + b"\n"
        yield target_, "deep-list", b"seed = " + b"[" * 2000 + b"]" * 2000
        yield target_, "deep-table", b"a = " + b"{a=" * 1500 + b"1" + b"}" * 1500
        yield target_, "deep-key", b"a" + b".a" * 1500 + b" = 1\n"
        yield target_, "deep-header", b"[" + b"a." * 1500 + b"a]\n"
    yield "experiment", "valid-empty", b""
    yield "experiment", "valid-private", private
    yield "experiment", "valid-partition", b'[partition]\nkind = "labels"\n[federation]\nclients = 5\nrounds = 2\n'
    yield "experiment", "huge-epsilon", b'[privacy]\nkind = "gaussian"\nepsilon = 1e300\n'
    yield "experiment", "infinite-epsilon", b'[privacy]\nkind = "gaussian"\nepsilon = inf\n'
    yield "experiment", "tiny-delta", b'[privacy]\nkind = "gaussian"\ndelta = 1e-320\n'
    yield "experiment", "table-for-a-word", b"[partition]\nkind = {}\n"
    yield "experiment", "table-for-a-choice", b'[partition]\nkind = "quantity"\nlaw = {}\n'
    yield "experiment", "list-for-a-kind", b'[privacy]\nkind = ["none"]\n'
    yield "experiment", "large-mlp", b'[ranker]\nkind = "mlp"\nhidden = 9223372036854775807\n'
    yield (
        "experiment",
        "valid-start",
        b'[ranker]\nstart = { 5 = 20.0, 13 = 10.0, bm25-of-body = 1 }\nstart_scale = "rule"\n',
    )
    yield (
        "experiment",
        "valid-start-of-a-network",
        b'[ranker]\nkind = "mlp"\nhidden = 2\nstart = [0.5, 0.0]\nstart_scale = 2\n',
    )
    yield "experiment", "start-with-a-long-name", b'[ranker]\nstart = "' + b"x" * 4000 + b'.json"\n'
    yield "experiment", "date", b"seed = 1979-05-27\n"
    yield "experiment", "not-utf-8", b"seed = \xff\n"
    yield "experiment", "two-lines", b'seed = "a\\nb"\n'
    yield (
        "grid",
        "valid",
        b"[federation]\nclients = 5\nrounds = 2\n[grid]\nseed = [1, 2]\nfederation.clients = [3, 4]\n",
    )
    yield "grid", "valid-parts", b'[grid]\nfederation.aggregation = ["mean", { kind = "krum", byzantine = 3 }]\n'
    yield "grid", "deep", b"[grid]\nseed = " + b"[" * 2000 + b"]" * 2000
    yield "grid", "deep-key", b"[grid]\na" + b".a" * 1500 + b" = [1]\n"
    yield "grid", "name-of-a-folder", b'[grid]\ndata.source = ["../x", "/y", "a\\u0000b", ""]\n'
    for name, text in (
        ("valid", b"federation.clients=100"),
        ("valid-table", b"federation.server.beta=0.5"),
        ("valid-word", b"users.preset=perfect"),
        ("long-integer", b"seed=" + b"1" * 4301),
        ("deep", b"seed=" + b"[" * 3000),
        ("deep-key", b"a" + b".a" * 3000 + b"=1"),
        ("not-text", b"seed=\xff"),
        ("two-lines", b"seed=1\nx=2"),
        ("epsilon", b"privacy.kind=gaussian\x1fprivacy.epsilon=1e300"),
    ):
        yield "set", name, text


def runs(folder: Path) -> Seeds:
    """A finished run with unlearning notes, a stopped one, and their files one by one."""
    finished, stopped, private = folder / "finished", folder / "stopped", folder / "private"
    run_experiment(Experiment.read(parse_experiment_file(SMALL, "small.toml")), finished, threads=1, report=report_page)
    run_experiment(Experiment.read(parse_experiment_file(SMALL + PRIVATE, "small.toml")), private, threads=1)
    rounds = iter(range(9))
    with suppress(Interrupted):
        run_experiment(
            Experiment.read(parse_experiment_file(SMALL, "small.toml")),
            stopped,
            threads=1,
            stop=lambda: next(rounds) == 1,
        )
    for kind, path in (("finished", finished), ("stopped", stopped)):
        for file in sorted(path.rglob("*")):
            if file.is_file() and file.name != "report.html":
                yield "run", f"{kind}/{file.relative_to(path)}", file.read_bytes()
    summary = (finished / "summary.json").read_bytes()
    yield "summary", "valid", summary
    yield "summary", "valid-private", (private / "summary.json").read_bytes()
    unlearned = {
        "clients": [1],
        "as_run": {"ndcg@10": 0.4, "maxrr": 0.5},
        "before": {"ndcg@10": 0.4, "maxrr": 0.5},
        "after": {"ndcg@10": 0.4, "maxrr": 0.5},
        "local_updates_share": 0.1,
        "interval": 1,
        "local_steps": 4,
        "method": "fresh",
        "rounds": 3,
        "local_updates": 12,
    }
    content = json.loads(summary)
    yield "summary", "unlearned", json.dumps(content | {"unlearned": unlearned}).encode()
    for name, changed in (
        ("nan", content | {"rounds": float("nan")}),
        ("infinite-seed", content | {"seed": float("inf")}),
        ("null-figures", content | {"offline": {"ndcg@10": None}}),
        ("privacy-empty", content | {"privacy": {}}),
        ("evaluation-list", content | {"evaluation": []}),
        ("unlearned-list", content | {"unlearned": []}),
        ("version-object", content | {"version": {}}),
        ("long-integer", content | {"rounds": 10**4200}),
        ("texts", content | {"offline": {"ndcg@10": "x"}, "seconds": {"train": "x"}}),
    ):
        yield "summary", name, json.dumps(changed).encode()
    yield "summary", "deep", b"[" * 2_000
    yield "history", "valid", (finished / "history.parquet").read_bytes()
    for name, columns in (
        ("texts", {"round": ["a"], "interactions": ["b"]}),
        ("lists", {"round": [[1]], "interactions": [[2]]}),
        ("nulls", {"round": [None], "interactions": [None]}),
        ("empty", {"round": pa.array([], pa.int64()), "interactions": pa.array([], pa.int64())}),
        ("no-round", {"x": [1]}),
        ("dates", {"round": pa.array([5], pa.date32()), "interactions": [1]}),
        ("text-column", {"round": [1], "interactions": [1], "name": ["x"]}),
    ):
        buffer = io.BytesIO()
        pq.write_table(pa.table(columns), buffer)
        yield "history", name, buffer.getvalue()
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["round", "round"])
    buffer = io.BytesIO()
    pq.write_table(twice, buffer)
    yield "history", "column-twice", buffer.getvalue()
    yield "history", "cut-off", (finished / "history.parquet").read_bytes()[:-9]
    book = json.loads((private / "ledger.json").read_text())
    yield "ledger", "valid", (finished / "ledger.json").read_bytes()
    yield "ledger", "valid-private", json.dumps(book).encode()
    for name, changed in (
        ("spent-text", book | {"spent": ["x"]}),
        ("spent-null", book | {"spent": [{"round": None, "epsilon": None}]}),
        ("mechanism-unknown", book | {"mechanism": {"kind": "x"}}),
        ("mechanism-empty", book | {"mechanism": {}}),
        ("setting-huge", book | {"setting": book["setting"] | {"rounds": 10**30, "clients": 10**30}}),
        ("setting-negative", book | {"setting": book["setting"] | {"clients": -1}}),
        ("participation-list", book | {"setting": book["setting"] | {"participation": []}}),
        ("releases-null", book | {"releases": [None]}),
        (
            "release-nan",
            book | {"releases": [book["releases"][0] | {"noise": float("nan"), "last_round": float("nan")}]},
        ),
        ("sensitivity-zero", book | {"releases": [book["releases"][0] | {"sensitivity": 0, "releases": 1}]}),
        ("unlearning-null", book | {"unlearning": None}),
        ("epsilon-truth", book | {"privacy": book["privacy"] | {"epsilon": True}}),
        ("infinite", book | {"spent": [{"round": float("inf"), "epsilon": 1}]}),
    ):
        yield "ledger", name, json.dumps(changed).encode()
    yield "ledger", "deep", b"[" * 2_000
    ranker = json.loads((finished / "ranker.json").read_text())
    yield "ranker", "valid", json.dumps(ranker).encode()
    for name, changed in (
        ("mlp-huge", ranker | {"ranker": {"kind": "mlp", "hidden": 2**60}}),
        ("features-huge", ranker | {"n_features": 10**30}),
        ("features-negative", ranker | {"n_features": -1}),
        ("parameters-table", ranker | {"parameters": {}}),
        ("parameters-ragged", ranker | {"parameters": [1, [2]]}),
        ("parameters-texts", ranker | {"parameters": ["1"] * 46}),
        ("normalize-list", ranker | {"normalisation": []}),
        ("kind-list", ranker | {"ranker": {"kind": []}}),
        ("features-infinite", ranker | {"n_features": float("inf")}),
    ):
        yield "ranker", name, json.dumps(changed).encode()
    stated = {"epsilon": 1.5, "delta": 1e-5, "unit": "client", "horizon": "the run's 3 rounds"}
    private_origin = files_codec.encode(Origin("run", "0" * 64, 3, 3, stated))
    fixed = SavedRanker(Linear(), 2, np.array([0.5, -1.0]), FixedRange((0.0, -3.0), (1e6, -3.0)), ("length", "clicks"))
    yield "ranker", "valid-2", ranker_bytes(fixed)
    second = fixed.content() | {"digest": fixed.digest}
    yield "ranker", "valid-private-origin", json.dumps(second | {"origin": private_origin}).encode()
    for name, changed in (
        ("names-too-few", second | {"feature_names": ["length"]}),
        ("names-twice", second | {"feature_names": ["length", "length"]}),
        ("fixed-without-constants", second | {"normalisation": {"kind": "fixed"}}),
        ("fixed-upside-down", second | {"normalisation": {"kind": "fixed", "low": [1, 1], "high": [0, 2]}}),
        ("fixed-beyond-doubles", second | {"normalisation": {"kind": "fixed", "low": [-1e308, 0], "high": [1e308, 2]}}),
        ("query-with-constants", second | {"normalisation": {"kind": "query", "low": [1, 1], "high": [1, 2]}}),
        ("missing-infinite", second | {"missing": float("inf")}),
        ("origin-list", second | {"origin": []}),
    ):
        yield "ranker", name, json.dumps(changed).encode()
    yield "ranker", "deep", b"[" * 2_000
    yield "ranker", "long-integer", b'{"format": ' + b"1" * 4301 + b"}"
    yield "run-toml", "valid-complete", (finished / "run.toml").read_bytes()
    yield (
        "run-toml",
        "words-for-tables",
        b"data = 1\nusers = 2\nlearner = 3\nfederation = 4\nprivacy = 5\nevaluation = []\nranker = {}\n",
    )
    yield "grid-json", "valid", json.dumps({"axes": {"seed": [1]}, "runs": ["run"]}).encode()
    for name, listed in (
        ("outside", ["../.."]),
        ("null-byte", ["a\0b"]),
        ("long", ["x" * 5000]),
        ("itself", ["."]),
        ("surrogate", ["\ud800"]),
    ):
        yield "grid-json", name, json.dumps({"axes": {}, "runs": listed}).encode()
    yield "grid-json", "deep", b"[" * 2_000
    checkpoint, kept = (stopped / "checkpoint.npz").read_bytes(), (stopped / "clients" / "0.npz").read_bytes()
    yield "checkpoint", "valid", checkpoint
    yield "kept-updates", "valid", kept
    other = (stopped / "clients" / "1.npz").read_bytes()
    yield "kept-updates", "of-another-client", other
    for target_, content_ in (("checkpoint", checkpoint), ("kept-updates", kept)):
        yield target_, "cut-off", content_[:-40]
        for name, offsets, new in (
            ("foreign-compression", (8, 10), 99),
            ("lzma", (8, 10), 14),
            ("encrypted", (6, 8), 1),
        ):
            changed_ = bytearray(content_)
            for mark, offset in zip((b"PK\x03\x04", b"PK\x01\x02"), offsets, strict=True):
                changed_[changed_.index(mark) + offset] = new
            yield target_, name, bytes(changed_)
        with np.load(io.BytesIO(content_)) as saved:
            arrays = dict(saved)
        for name in list(arrays)[:14:2]:
            buffer = io.BytesIO()
            np.savez(buffer, **{key: value for key, value in arrays.items() if key != name})
            yield target_, f"without-{name.replace(':', '-')}", buffer.getvalue()
        for name, wrong in (
            ("texts", np.array(["a"])),
            ("empty", np.zeros(0)),
            ("square", np.zeros((2, 2))),
            ("not-finite", np.array([np.nan, np.inf])),
            ("truths", np.array(True)),
            ("complex", np.array(1j)),
        ):
            for key in list(arrays)[:14]:
                if (len(name) + len(key)) % 9 == 0:
                    buffer = io.BytesIO()
                    np.savez(buffer, **(arrays | {key: wrong}))
                    yield target_, f"{name}-for-{key.replace(':', '-')}", buffer.getvalue()
    yield "unlearned", "valid", b'{"clients": [1], "after": 0.4}'
    yield "unlearned", "texts", b'{"clients": ["1"]}'
    yield "unlearned", "deep", b"[" * 2_000
    files = {
        "ledger.json": (finished / "ledger.json").read_text(),
        "ranker.json": json.dumps(ranker),
        "summary.json": summary.decode(),
        "report.html": "<html></html>",
    }
    digests = json.loads((finished / "manifest.json").read_text())["files"]
    note = {
        "clients": [1],
        "before": 0.4,
        "after": 0.4,
        "pending": {"clients": [1], "leavers": [1], "files": files, "digests": digests},
    }
    yield "unlearning-note", "valid", json.dumps(note).encode()
    yield "unlearning-note", "valid-done", b'{"clients": [1], "before": 0.4, "after": 0.4}'
    for name, plan in (
        ("no-plan", {}),
        ("no-files", note["pending"] | {"files": {}}),
        ("outside", note["pending"] | {"files": files | {"../x": "x"}}),
        ("leavers", note["pending"] | {"leavers": [None]}),
    ):  # type: ignore[operator]
        yield "unlearning-note", name, json.dumps(note | {"pending": plan}).encode()
    yield "unlearning-note", "deep", b"[" * 2_000


def federations() -> Seeds:
    theta = np.linspace(-1.0, 1.0, 5)
    reply = encode_reply(Reply("run", 3, 7, theta, 4, True, (0.5, 0.25, 0.0)))
    yield "wire-task", "valid", encode_task(Task("run", 3, theta, {"clip": np.array([0.5])}, (1, 2)))
    yield "wire-task", "valid-empty", encode_task(Task("r", 0, np.zeros(0)))
    yield (
        "wire-task",
        "twice-private",
        encode_task(Task("r", 0, theta, {"a": theta, "b": theta})).replace(b'["a","b"]', b'["a","a"]'),
    )
    yield "wire-reply", "valid", reply
    yield "wire-reply", "deep", reply[:7] + struct.pack("<I", 6000) + b"[" * 6000
    yield "frames", "valid", frames.pack([b"one", b"", b"three"])
    yield "frames", "valid-none", frames.pack([])
    yield "frames", "many", b"\xff\xff\xff\xff"
    bundles = [frames.pack(parts) for parts in ([b"one", b"two"], [], [b"x" * 50])]
    yield "frames-stream", "valid", b"".join(struct.pack("<Q", len(bundle)) + bundle for bundle in bundles)
    yield "frames-stream", "long", struct.pack("<Q", 2**40) + b"x"
    report = Report(*[1 if name in ("round", "interactions", "participants") else 0.5 for name in Report._fields])
    saved = CoordinatorCheckpoint(
        State(1, theta, {"m": theta}, {"clip": np.array([1.0])}), "run", [report], {"reply.late": 2}
    )
    yield "coordinator-checkpoint", "valid", saved.to_bytes()


def secure_sums() -> Seeds:
    tag = bytes(range(16))
    head = (7, tag, 300)
    keys, sealed = ((1, b"a" * KEY_BYTES), (300, b"b" * KEY_BYTES)), ((5, b"x" * SEALED), (2**31 - 1, b"y" * SEALED))
    pairs = tuple((client, 2 * key) for client, key in keys)
    committed = tuple((client, b"h" * COMMITMENTS) for client, _ in sealed)
    delivered = tuple((client, box + b"h" * COMMITMENTS) for client, box in sealed)
    advertised = AdvertiseKeys(*head, b"c" * 32, b"m" * 32)
    for message in (
        advertised,
        KeyList(*head, 2, b"roster", pairs),
        ShareKeys(*head, sealed, committed, b"s" * KEY_BYTES),
        ShareDelivery(*head, b"\x07", delivered),
        MaskedInput(*head, np.arange(5, dtype="<u4").tobytes()),
        UnmaskRequest(*head, (300, 4, 9), (8,)),
        UnmaskReply(*head, keys, ()),
    ):
        yield "secure-message", f"valid-{type(message).__name__}", message.to_bytes()
    yield "secure-keys", "valid", SignedKeys(advertised, b"s" * 64).to_bytes()
    yield "secure-envelope", "valid", envelope_of(KEYS, [b"a", b"b"])
    yield (
        "secure-envelope",
        "valid-several",
        b"QSCB" + frames.pack([struct.pack("<I", 1) + b"abc", struct.pack("<I", 2) + b"d"]),
    )
    yield (
        "member-list",
        "valid",
        bytes(16) + struct.pack("<I32s64sI32s64s", 1, b"a" * 32, b"s" * 64, 2, b"b" * 32, b"t" * 64),
    )


def silos(folder: Path) -> Seeds:
    message = SiloMessage(3, bytes(16), 5, 6, ((True, b"abc"), (False, b"d")))
    yield "silo-message", "valid", message.to_bytes(to_party=False)[:-16]
    yield "silo-message", "valid-to-party", message.to_bytes(to_party=True)[:-16]
    yield "silo-record", "valid", encode(Record.ASK_SUM, np.ones(2), head=SumHead(3, (0, 2), asked={"step": "bins"}))
    envelope = Envelope(Kind.SEARCH, "north", "south", 9, b"body").to_bytes()
    yield "silo-record", "envelope", b"\x01" + envelope
    yield "tree-request", "valid-bins", b'[false, {"step": "bins"}, []]'
    yield (
        "tree-request",
        "valid-level",
        b'[false, {"step": "level", "splits": [[[0, 1, 0, 1, 2]]], "wanted": [1], "edges": [1, 1, 1]}, [0.5, 0.25, 0.5]]',
    )
    yield (
        "tree-request",
        "valid-judged",
        json.dumps([True, {"step": "judge", "trees": 1}, [0] * 12 + [1, 2, 3, 4]]).encode(),
    )
    yield "tree-request", "of-another-tree", b'[false, {"step": "level", "trees": 2, "splits": [[]], "wanted": []}, []]'
    yield "silo-envelope", "valid", envelope
    yield "silo-body", "valid-hello", b"h" + Hello(b"i" * 32, b"e" * 32, b"c" * 32, {"a": "1", "b": "x"}).to_bytes()
    yield "silo-body", "valid-refusal", b"r" + Refuse(5).to_bytes()
    yield "search-message", "valid-question", b"q" + ASKED
    named = NamedDocuments(np.array([4, 2**31 - 1]), np.array([[1, 0, 65535], [0, 2, 0]]))
    nothing = NamedDocuments(np.zeros(0, np.int64), np.zeros((0, 3), np.int64))
    answer = SearchAnswer(question_digest(ASKED), (named, nothing), SearchSpending(1, 200, 3, 486))
    yield "search-message", "valid-answer", b"a" + answer.to_bytes(3, 2)
    yield "word-vectors", "valid", b"3 2\nWing 1 0\nflutter 0.5 -1e-3\nplate 0 -1\n"
    yield "word-vectors", "huge", b"wing 1e38 1e38\nflutter 3e38 3e38\nplate -3e38 3e38\n"
    yield (
        "silo-body",
        "valid-catalogue",
        b"c" + Catalogue(np.array([4, 9], np.int32), np.array([100, 3], np.int32)).to_bytes(),
    )


def networks(folder: Path) -> Seeds:
    experiment = Experiment.read(
        parse_experiment_file(
            '[federation]\nclients = 4\nrounds = 5\n[privacy]\nkind = "gaussian"\nepsilon = 50.0\n', "e.toml"
        )
    )
    home = Home.create(folder / "coordinator", experiment, Settings("run", 46, "search.example.org:9092"))
    with closing(home.store()) as store:
        invite(home, store, "alice", folder / "alice.json")
    backup(folder / "coordinator", "", folder / "backup")
    yield "restored", "valid", (folder / "backup").read_bytes()
    for file in sorted((folder / "coordinator").iterdir()):
        if not file.name.startswith(("service.sqlite", "lock")):
            yield "folders", f"coordinator/{file.name}", file.read_bytes()
    bundle = Invitation.read(folder / "alice.json")
    yield "invitation", "valid", (folder / "alice.json").read_bytes()
    table = json.loads(bundle.text())
    for name, changed in (
        ("identities-long", table | {"identities": {"9" * 4400: "00"}}),
        ("identities-numbers", table | {"identities": {"1": 5}}),
        ("url-digits", table | {"url": "https://a:٣"}),
        ("url-long", table | {"url": "https://a:" + "9" * 5000}),
        ("url-file", table | {"url": "file:///etc/passwd"}),
        ("url-brackets", table | {"url": "https://[::1"}),
        ("code-number", table | {"code": 5}),
        ("kind-list", table | {"kind": []}),
        ("name-lines", table | {"name": "a\nb"}),
        ("version-list", table | {"version": []}),
        ("format-list", table | {"format": []}),
    ):
        yield "invitation", name, json.dumps(changed).encode()
    yield "invitation", "deep", b"[" * 2_000
    key = MemberKey(bytes(range(32)))
    proof = base64.b64encode(key.sign(enrolment_content(bytes(32), bytes(32), key.public))).decode()
    fields = {"protocol": 1, "code": bytes(32).hex(), "key": key.public.hex(), "proof": proof}
    yield "enrolment", "valid", json.dumps(fields).encode()
    yield "enrolment", "token", json.dumps({**fields, "token": "spring", "code": None}).encode()
    yield "enrolment", "deep", b"[" * 2_000
    head = signed_headers(key, bytes(32), 0, "GET", "/v1/task", b"", 1000, bytes(16))
    yield "request", "valid", "\n".join(f"{name}: {value}" for name, value in head.items()).encode()
    yield (
        "request",
        "member-huge",
        "\n".join(f"{name}: {value}" for name, value in (head | {"quorank-member": "9" * 5000}).items()).encode(),
    )
    terms = dict(bundle.terms)
    yield "terms", "valid", json.dumps(terms).encode()
    for name, changed in (
        ("epsilon-huge", terms | {"privacy": terms["privacy"] | {"epsilon": 1e300}}),
        ("version-list", terms | {"version": []}),
        ("setting-texts", terms | {"setting": dict.fromkeys(terms["setting"], "x")}),
        ("setting-nulls", terms | {"setting": dict.fromkeys(terms["setting"])}),
        ("mlp-huge", terms | {"ranker": {"kind": "mlp", "hidden": 2**60}}),
        ("ranker-list", terms | {"ranker": []}),
        ("setting-huge", terms | {"setting": terms["setting"] | {"clients": 10**30, "cohort": 10**30}}),
        ("setting-negative", terms | {"setting": terms["setting"] | {"parameters": -21}}),
        ("kind-table", terms | {"privacy": {"kind": {}}}),
        ("reports-nan", terms | {"version": 2, "report_epsilon": float("nan")}),
        ("participation-list", terms | {"setting": terms["setting"] | {"participation": []}}),
    ):
        yield "terms", name, json.dumps(changed).encode()
    secure = terms_of(
        Experiment.read(
            parse_experiment_file('[federation]\nclients = 4\nrounds = 5\n[privacy]\nkind = "secure-sum"\n', "e")
        ),
        46,
        0,
    )
    yield "terms", "valid-secure", json.dumps(secure.table()).encode()
    group = SiloTerms.read({"version": 3, "run": "run", "parties": ["north", "south"]})
    silo_home = SiloHome.make(folder / "group", group, settings_of("run", address="silo.example.org:9092"))
    with closing(silo_home.store()) as store:
        silo_home.invite(store, "north", folder / "north.json", {"south": bytes(range(32))})
    for file in sorted((folder / "group").iterdir()):
        if not file.name.startswith("service.sqlite"):
            yield "folders", f"group/{file.name}", file.read_bytes()
    yield "silo-invitation", "valid", (folder / "north.json").read_bytes()
    yield "silo-invitation", "of-a-device", (folder / "alice.json").read_bytes()
    searching = dataclasses.replace(group, search=SearchTerms())
    yield "silo-terms", "valid", json.dumps(searching.table()).encode()
    yield "silo-terms", "short", b'{"version": 3, "run": "run", "parties": ["north", "south"]}'
    yield (
        "silo-experiment",
        "valid",
        b'seed = 1\ntraining = "trees"\n[silo]\nparties = ["north", "south"]\nlabelled = 3\n[ranking]\nevidence = []\n[search]\nk = 3\n[features]\n',
    )
    yield "identities-argument", "valid", b"north=" + bytes(range(32)).hex().encode()
    coordinator = folder / "coordinator"
    yield "authority", "valid", (coordinator / "ca.pem").read_bytes() + b"=== " + (coordinator / "ca.key").read_bytes()
    yield (
        "authority",
        "encrypted",
        (coordinator / "ca.pem").read_bytes()
        + b"=== -----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    yield "server-certificate", "valid", (coordinator / "server.pem").read_bytes()
    settings = json.loads((coordinator / "coordinator.json").read_text())
    yield "coordinator-settings", "valid", json.dumps(settings).encode()
    for name, changed in (
        ("port-text", settings | {"port": "x"}),
        ("address-list", settings | {"address": []}),
        ("nan", settings | {"least": float("nan")}),
        ("run-number", settings | {"run": 5}),
        ("features-text", settings | {"n_features": "46"}),
        ("address-long", settings | {"address": "a:" + "9" * 5000}),
    ):
        yield "coordinator-settings", name, json.dumps(changed).encode()
    yield "coordinator-settings", "deep", b"[" * 2_000
    yield "coordinator-experiment", "valid", (coordinator / "experiment.toml").read_bytes()
    yield "group-settings", "valid", (folder / "group" / "coordinator.json").read_bytes()
    yield "group-settings", "deep", b"[" * 2_000
    yield "group-terms", "valid", (folder / "group" / "terms.json").read_bytes()
    yield "group-terms", "deep", b"[" * 2_000
    yield "group-identities", "valid", json.dumps({"south": bytes(range(32)).hex()}).encode()
    yield "group-identities", "list", b'["south"]'
    yield "group-identities", "deep", b"[" * 2_000
    request = leaving_request(Terms.read(bundle.terms), key, 5.0, bytes(16))
    yield "leaving", "valid", request
    yield "leaving", "unsigned", request.partition(b"\n")[0] + b"\n00"
    yield "leaving", "list", b"[]\n00"
    yield "left", "valid", b'{"run": "run", "client": 0, "request": "ab", "at": 5.0, "erased": null}'
    yield "left", "deep", b"[" * 2_000
    yield "left", "not-text", b"\xff\xfe"
    yield from stores(folder)


def stores(folder: Path) -> Seeds:
    (folder / "device").mkdir()
    device = PrivateStore(folder / "device")
    with device.transaction():
        device.set_consent(True, 5.0)
        device.set_personal(np.array([0.5, 0.25]))
    device.close()
    yield "device-store", "valid", _database(folder / "device" / "device.sqlite")
    store = SiloStore(folder / "party", "party")
    with store.transaction():
        store.set_note("asks", [1, 2])
        store.put("server", encode(Record.KEPT))
    store.close()
    yield "party-store", "valid", _database(folder / "party" / "party.sqlite")


def _database(path: Path) -> bytes:
    """A database without its log."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    return path.read_bytes()


PLACES = """
CREATE TABLE moz_places (id INTEGER PRIMARY KEY, url, title, hidden);
CREATE TABLE moz_historyvisits (id INTEGER PRIMARY KEY, place_id, visit_date, visit_type);
CREATE TABLE moz_inputhistory (place_id, input, use_count);
CREATE TABLE moz_bookmarks (id INTEGER PRIMARY KEY, type, fk);
"""
URLS = """
CREATE TABLE urls (id INTEGER PRIMARY KEY, url, title, hidden);
CREATE TABLE visits (id INTEGER PRIMARY KEY, url, visit_time, transition);
"""


def _history(schema: str, rows: dict[str, list[tuple[object, ...]]]) -> bytes:
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.execute("PRAGMA page_size = 512")
        memory.executescript(schema)
        for insert, values in rows.items():
            memory.executemany(insert, values)
        memory.commit()
        memory.execute("VACUUM")
        return bytes(memory.serialize())


def tunings(folder: Path) -> Seeds:
    pages: list[tuple[object, ...]] = [(i, f"https://site{i}.example/", f"Site {i}", 0) for i in range(1, 5)]
    visits: list[tuple[object, ...]] = [(1 + i % 4, 1_700_000_000_000_000 + i * 10**9, 1 + i % 3) for i in range(12)]
    place, visit = (
        "INSERT INTO moz_places VALUES (?, ?, ?, ?)",
        "INSERT INTO moz_historyvisits (place_id, visit_date, visit_type) VALUES (?, ?, ?)",
    )
    typed, marked = (
        "INSERT INTO moz_inputhistory VALUES (?, ?, ?)",
        "INSERT INTO moz_bookmarks (type, fk) VALUES (?, ?)",
    )
    base: dict[str, list[tuple[object, ...]]] = {
        place: pages,
        visit: visits,
        typed: [(1, "si", 0.5)],
        marked: [(1, 2), (2, None)],
    }
    yield "browser-history", "valid-firefox", _history(PLACES, base)
    yield (
        "browser-history",
        "page-id-null",
        _history(
            PLACES.replace("id INTEGER PRIMARY KEY, url, title, hidden", "id, url, title, hidden"),
            base | {place: [*pages, (None, "x", "x", 0)]},
        ),
    )
    yield (
        "browser-history",
        "page-id-text",
        _history(
            PLACES.replace("id INTEGER PRIMARY KEY, url, title, hidden", "id, url, title, hidden"),
            base | {place: [*pages, ("x", "x", "x", 0)]},
        ),
    )
    yield (
        "browser-history",
        "visit-nulls",
        _history(PLACES, base | {visit: [(None, None, None), ("x", "y", "z"), (1, 2**63 - 1, 2**62), *visits]}),
    )
    yield "browser-history", "input-null", _history(PLACES, base | {typed: [(1, None, None), (1, b"\xff", "x")]})
    yield (
        "browser-history",
        "hidden-blob",
        _history(PLACES, base | {place: [(1, b"\xff\x00", b"\xff", "x"), (2, 5, 1.5, None)]}),
    )
    yield (
        "browser-history",
        "view",
        _history(
            PLACES.replace(
                "CREATE TABLE moz_places (id INTEGER PRIMARY KEY, url, title, hidden);",
                "CREATE VIEW moz_places AS SELECT 1 AS id, 'x' AS url, NULL AS title, 0 AS hidden;",
            ),
            {visit: visits},
        ),
    )
    yield "browser-history", "no-table", _history("CREATE TABLE moz_places (id);", {})
    opened, seen = (
        "INSERT INTO urls VALUES (?, ?, ?, ?)",
        "INSERT INTO visits (url, visit_time, transition) VALUES (?, ?, ?)",
    )
    found: list[tuple[object, ...]] = [
        (1 + i % 4, 13_344_473_600_000_000 + i * 10**9, (0, 1, 0xC0000000 - 2**32)[i % 3]) for i in range(12)
    ]
    yield "browser-history", "valid-chromium", _history(URLS, {opened: pages, seen: found})
    yield (
        "browser-history",
        "chromium-extremes",
        _history(URLS, {opened: pages, seen: [*found, (1, 2**63 - 1, 1), (1, -(2**63), 1)]}),
    )
    yield "bookmarks", "valid", b'{"roots": {"bar": {"children": [{"url": "https://x"}]}}}'
    yield "bookmarks", "deep", b'{"roots": ' + b"[" * 2_000
    yield (
        "study",
        "valid",
        b'name = "spring"\nmetric = "rank"\neffect = 0.1\n[arms]\na = 0.5\nb = 0.5\n[largest]\nrank = 9\n',
    )
    yield "study", "long-integer", b'name = "x"\nalpha = ' + b"1" * 4301
    yield "study", "deep", b'name = "x"\nalpha = ' + b"[" * 3000
    yield "study", "share-huge", b'name = "x"\n[arms]\na = ' + b"9" * 400 + b"\nb = 1\n"
    yield "study", "name-number", b"name = 5\n"
    yield "study", "shares-infinite", b'name="x"\n[arms]\na=-inf\nb=inf\n'
    yield "study", "shares-overflow", b'name="x"\n[arms]\na=1e308\nb=1e308\n'
    arm = Study("spring").assign("person-1")
    yield "collected", "valid", f"client,arm,characters,rank\nperson-1,{arm},3,0\nperson-1,{arm},2,1\n".encode()
    yield "collected", "valid-pilot", b"client,characters,rank\nx,3,0\n"
    yield "collected", "long-number", b"client,characters,rank\nx," + b"1" * 4400 + b",1\n"
    yield "collected", "null", b"client,characters,rank\nx\x00,1,1\n"
    yield "collected", "surrogates", b"client,arm,characters,rank\n\xed\xa0\x80,a,1,1\n"
    write_model(
        Model("frecency", 3, {"a": 1.0, "b": 2.0}, 5, 0.5, "rprop", {"steps": [1.0, 2.0]}), folder / "weights.json"
    )
    yield "weights", "valid", (folder / "weights.json").read_bytes()
    yield "weights", "deep", b"[" * 2_000
    yield (
        "visits",
        "valid",
        b"person,time,url,type,title,bookmarked\nann,1,https://a,typed,t,1\nann,2026-03-01,https://a,typed,,\n",
    )
    yield "visits", "time-huge", b"time,url\n1e400,x\n"
    yield "visits", "quote-open", b'time,url\n1,"x\n'
    plan = FieldTuning(FRECENCY, study=Study("spring", {"a": 0.5, "b": 0.5}, epsilon=2.0), answers=5)
    yield "tuning-terms", "valid", json.dumps(plan.terms("run").table()).encode()
    yield "tuning-terms", "no-study", json.dumps(plan.terms("run").table() | {"study": None, "rounds": 0}).encode()
    yield "tuning-task", "valid", TuningTask(0, *[FRECENCY.shipped] * 3, asks_metrics=False).encode("run")
    yield "tuning-folder", "valid", json.dumps(plan.table()).encode()


def persons() -> Seeds:
    word = '<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>some words</w:t><w:tab/></w:r></w:p></w:body></w:document>'
    members = {
        "word/document.xml": word.encode(),
        "docProps/core.xml": b'<c xmlns:dc="d"><dc:title>A title</dc:title></c>',
    }
    yield "person-docx", "valid", packed(members)
    yield "person-docx", "valid-stored", packed(members, zipfile.ZIP_STORED)
    yield "person-docx", "entities", packed({"word/document.xml": b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"})
    yield "person-docx", "cut-off", packed(members)[:-20]
    yield "person-docx", "old-format", b"\xd0\xcf\x11\xe0" + bytes(100)
    yield (
        "person-page",
        "valid",
        b"<html><meta charset=koi8-r><title>A &amp; B</title><p>\xc1<script>x</script> y < z<!-- c --></p>",
    )
    yield "person-page", "encoding-unknown", b"<meta charset=unicode_escape>\\ud800"
    yield "person-text", "valid", b"---\ntitle: 'A plan'\n---\n# First\nwords\n"
    yield "person-text", "valid-utf-16", "words\n# A".encode("utf-16")
    yield "person-text", "null", b"a\0b"
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length 31 >>\nstream\nBT /F1 12 Tf 9 9 Td (fox) Tj ET\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    parts, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(parts))
        parts += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % place for place in places)
    pdf = parts + table + b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(parts)
    yield "person-pdf", "valid", pdf
    yield "person-pdf", "pages-in-themselves", pdf.replace(b"/Kids [3 0 R]", b"/Kids [2 0 R]")
    yield "person-pdf", "cut-off", pdf[:200]
    mail = b"From a\nSubject: x\nMessage-ID: <1@x>\nDate: Mon, 1 Jan 2024 10:00:00 +0000\n\nHello\n\n"
    yield "person-mailbox", "valid", mail + mail + b"From b\nSubject: no id\nX-Mozilla-Status: 0001\n\nHi\n"
    yield "person-mailbox", "valid-nothing", b"no mailbox"
    yield "person-mailbox", "deleted", b"From b\nX-Mozilla-Status: 0009\n\nHi\n"
    yield "person-mailbox", "deleted-copy", b"From \nMessage-ID:a\nX-Mozilla-Status:0008\nFrom \nMessage-ID:a>"
    yield "person-mailbox", "half-a-header", mail + b"From b\nMessage-I"
    pages: list[tuple[object, ...]] = [(i, f"https://site{i}.example/", f"Site {i}", 0) for i in range(1, 5)]
    places_of: dict[str, list[tuple[object, ...]]] = {
        "INSERT INTO moz_places VALUES (?, ?, ?, ?)": pages,
        "INSERT INTO moz_historyvisits (place_id, visit_date, visit_type) VALUES (?, ?, ?)": [
            (1 + i % 4, 1_700_000_000_000_000 + i * 10**9, 1) for i in range(30)
        ],
        "INSERT INTO moz_bookmarks (type, fk) VALUES (?, ?)": [(1, 2), (2, None)],
    }
    yield "person-firefox", "valid", _history(PLACES, places_of)
    yield "person-firefox", "no-table", _history("CREATE TABLE moz_places (id);", {})
    yield (
        "person-firefox",
        "odd-rows",
        _history(
            PLACES,
            places_of
            | {
                "INSERT INTO moz_places VALUES (?, ?, ?, ?)": [
                    (1, "https://x\0y/", b"\xff", "x"),
                    (2, "https://z/%ed%a0%80", 1.5, None),
                ]
            },
        ),
    )
    urls_of: dict[str, list[tuple[object, ...]]] = {
        "INSERT INTO urls VALUES (?, ?, ?, ?)": pages,
        "INSERT INTO visits (url, visit_time, transition) VALUES (?, ?, ?)": [
            (1 + i % 4, 13_344_473_600_000_000 + i * 10**9, 1) for i in range(12)
        ],
    }
    yield "person-chromium", "valid", _history(URLS, urls_of)
    yield (
        "person-chromium",
        "extremes",
        _history(
            URLS,
            urls_of
            | {
                "INSERT INTO visits (url, visit_time, transition) VALUES (?, ?, ?)": [
                    (1, 2**63 - 1, 1),
                    (1, -(2**63), 1),
                ]
            },
        ),
    )
    yield (
        "person-folder",
        "valid",
        b"=== a.txt\nwords\n=== b/c.md\n# A\n=== .gitignore\n*.log\n=== d.log\nx\n=== e.html\n<p>x\n",
    )
    yield "person-folder", "no-docx", b"=== a.docx\nwords\n"
    yield "ignore-rules", "valid", b"# comment\n*.log\n!keep.log\n/build/\ndoc/**/x\n[a-c]?\\*\n[[:alpha:]]\n"
    yield "ignore-rules", "malformed", b"[\n[a\n\\\n[[:x:]]\n/\n//\n**\n!\n"
    yield "file-name", "valid", b"/people/ann/caf\xe9 \xef\x9f\xa9.txt"


def others() -> Seeds:
    yield (
        "intents",
        "valid",
        b"fold\tqid\tdocid\tgraded\ti0\ti1\ti2\ti3\n"
        + b"".join(b"%d\t%d\td%d\t%d\t1\t1\t0\t1\n" % (f, f, label, label) for f in range(1, 6) for label in range(3)),
    )
    yield "library", "valid-damaged", b"{}"
    yield (
        "library",
        "gone",
        json.dumps({"name": "c", "path": "gone", "folds": 1, "features": 3, "queries": 1, "rows": 3}).encode(),
    )
    for name, entry in (
        ("path-number", {"path": 5}),
        ("path-null-byte", {"path": "a\0b"}),
        ("name-list", {"name": []}),
        ("name-number", {"name": 5}),
    ):
        yield (
            "library",
            name,
            json.dumps({"name": "c", "path": "x", "folds": 1, "features": 3, "queries": 1, "rows": 3} | entry).encode(),
        )
    yield "library", "deep", b"[" * 2_000
    folder = scratch()
    os.environ["QUORANK_CACHE"] = str(folder / "cache")
    for name in ("train", "test"):
        (folder / f"{name}.txt").write_bytes(ROW * 3)
    load(DataSource(str(folder), normalize="none"))
    file = next((folder / "cache").rglob("*.arrow"))
    yield "cache", "valid", file.read_bytes()
    yield "cache", "cut-off", file.read_bytes()[:-30]
    del os.environ["QUORANK_CACHE"]


def exports() -> Seeds:
    """A whole export."""
    whole = files_of(TARGETS["ranklib"], small_ranker(), "seed")
    content = b"".join(b"=== %s\n%s" % (name.encode(), content) for name, content in whole.items())
    yield "export-folder", "valid", content


def all_seeds() -> Seeds:
    """Every seed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from letor()
        yield from logs()
        yield from archives()
        yield from texts()
        yield from experiments()
        yield from runs(folder)
        yield from federations()
        yield from secure_sums()
        yield from silos(folder)
        yield from networks(folder)
        yield from tunings(folder)
        yield from persons()
        yield from exports()
        yield from others()


def main() -> None:
    """Write the corpus, or the inputs of the targets that are named: names that are not generated stay as they are."""
    total, wanted = 0, set(sys.argv[1:])
    for target_, name, content in all_seeds():
        if wanted and target_ not in wanted:
            continue
        path = CORPUS / target_ / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        total += len(content)
    print(f"{total:,} bytes in {CORPUS}")


if __name__ == "__main__":
    main()

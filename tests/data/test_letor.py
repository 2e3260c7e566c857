"""The reader against a slow one that does what the documentation says and nothing else."""

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.data import read_letor
from quorank.data.letor import reader as letor
from quorank.errors import BadInput

LARGEST = float(np.finfo(np.float32).max)


def naive(text: str):
    """(features, labels, offsets, query ids, document ids) with Python's own split, int and float."""
    queries: dict[str, list[tuple[int, dict[int, float], str]]] = {}
    for line in text.split("\n"):
        data, _, comment = line.partition("#")
        words = data.split()
        if not words:
            continue
        features = {}
        for word in words[2:]:
            index, value = word.split(":")
            features[int(index)] = 0.0 if value.lower().lstrip("+-") == "nan" else float(value)
        named = comment.split()
        document = named[2] if named[:2] == ["docid", "="] and len(named) > 2 else ""
        queries.setdefault(words[1].removeprefix("qid:"), []).append((int(float(words[0])), features, document))
    rows = [row for of_query in queries.values() for row in of_query]
    width = max(max(features, default=0) for _, features, _ in rows)
    table = np.zeros((len(rows), width), np.float32)
    for r, (_, features, _) in enumerate(rows):
        for index, value in features.items():
            table[r, index - 1] = np.float32(max(min(value, LARGEST), -LARGEST))
    offsets = np.cumsum([0] + [len(of_query) for of_query in queries.values()])
    documents = [document for _, _, document in rows]
    return (table, [label for label, _, _ in rows], offsets, list(queries), documents if any(documents) else None)


def write(text: str | bytes, name: str = "train.txt") -> Path:
    path = Path(tempfile.mkdtemp()) / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def bits(values):
    return np.ascontiguousarray(values, np.float32).view(np.int32)


def same(data, expected):
    table, labels, offsets, ids, documents = expected
    assert data.n_features == table.shape[1]
    assert np.array_equal(bits(data.features), bits(table))
    assert not data.padded[:, data.n_features :].any()
    assert data.labels.tolist() == labels
    assert data.offsets.tolist() == offsets.tolist()
    assert list(data.query_ids) == ids
    assert (None if data.document_ids is None else list(data.document_ids)) == documents


space = st.sampled_from([" ", "  ", "\t", " \t "])
plain_number = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.decimals(-(10**4), 10**4, places=6).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["nan", "NaN", "-0", "0.0", ".5", "5.", "+3", "1e-40", "1e39", "1E+05", "00012.50"]),
)
word = st.text(st.characters(min_codepoint=33, max_codepoint=1000, exclude_characters="#\x7f\x85\xa0"), min_size=1)


@st.composite
def lines(draw):
    kind = draw(st.sampled_from(["row"] * 8 + ["blank", "comment"]))
    if kind == "blank":
        return draw(st.sampled_from(["", "   ", "\t"]))
    if kind == "comment":
        return draw(space) + "# " + draw(word)
    indices = draw(st.lists(st.integers(1, 40), unique=True, max_size=12))
    label = str(draw(st.integers(0, 4))) + draw(st.sampled_from(["", "", ".0"]))
    words = [label, "qid:" + draw(st.sampled_from(["1", "2", "q-3", "é", "1:2", "10"]))]
    words += [f"{index}:{draw(plain_number)}" for index in indices]
    comment = draw(st.sampled_from(["", "", "#docid = GX0-1 inc = 1 prob = 0.5", "# docid = cw09-2 ", "#x"]))
    return draw(space).join(words) + draw(st.sampled_from(["", " ", "\t"])) + comment


@settings(max_examples=150, deadline=None)
@given(st.lists(lines(), min_size=1, max_size=20), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_any_file_is_read_like_the_slow_reader_reads_it(rows, ending, ended):
    text = ending.join(["0 qid:first 3:1", *rows]) + (ending if ended else "")
    same(read_letor(write(text)), naive(text))


def test_many_chunks_give_what_one_chunk_gives(monkeypatch):
    generator = np.random.default_rng(3)
    rows = []
    for r in range(400):
        features = generator.choice(np.arange(1, 60), generator.integers(0, 30), replace=False)
        number = " ".join(f"{f}:{generator.normal():.7g}" for f in features)
        rows.append(f"{generator.integers(0, 5)} qid:{generator.integers(0, 30)} {number} #docid = d{r}")
        if r % 7 == 0:
            rows.append("# a line without data")
    text = "\n".join(rows)
    monkeypatch.setattr(letor, "_CHUNK", 1500)
    same(read_letor(write(text)), naive(text))


def test_rows_of_a_query_come_together_in_file_order():
    data = read_letor(write("0 qid:b 1:1\n1 qid:a 1:2\n2 qid:b 1:3 #docid = x\n"))
    assert list(data.query_ids) == ["b", "a"]
    assert data.features[:, 0].tolist() == [1, 3, 2]
    assert data.labels.tolist() == [0, 2, 1]
    assert list(data.document_ids) == ["", "x", ""]


def test_a_byte_order_mark_is_skipped():
    assert read_letor(write(b"\xef\xbb\xbf1 qid:1 1:2\n")).labels.tolist() == [1]


GOOD = "1 qid:1 1:0.5\n"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("abc qid:1 1:2", "found label 'abc', expected an integer from 0 to 127"),
        ("-1 qid:1 1:2", "found label '-1', expected an integer from 0 to 127"),
        ("99999999999999999999 qid:1 1:2", "found label '99999999999999999999', expected an integer"),
        ("1 1:2 2:3", "found '1:2' behind the label, expected qid:ID"),
        ("1", "found nothing behind the label, expected qid:ID"),
        ("1 qid: 1:2", "found 'qid:' without an id, expected qid:ID"),
        ("1 qid:1 7:abc", "found '7:abc', expected a finite float32 number behind the colon"),
        ("1 qid:1 7:", "found '7:', expected a finite float32 number behind the colon"),
        ("1 qid:1 :3", "found ':3', expected a feature as index:value"),
        ("1 qid:1 7", "found '7', expected a feature as index:value"),
        ("1 qid:1 0:3", "found '0:3', expected a feature index from 1 to 65535"),
        ("1 qid:1 99999999999999999999:3", "expected a feature index from 1 to 65535"),
        ("1 qid:1 2:3 1:1 2:4", "found '2:4' whose index stands twice, expected each feature once"),
        ("\x00\x01\x02", "found label '\\x00\\x01\\x02', expected an integer"),
    ],
)
def test_a_malformed_line_is_named(line, found):
    path = write(f"# head\n{GOOD}\n{line}\n{GOOD}")
    with pytest.raises(BadInput) as refusal:
        read_letor(path)
    assert refusal.value.where == f"{path}:4" and refusal.value.code.startswith("letor.")
    assert found in refusal.value.sentence
    assert "\n" not in str(refusal.value)


def test_all_malformed_lines_are_counted_and_the_first_ones_listed():
    bad = {5, 8, 20, 21, 22, 30, 41, 59}
    path = write("".join("1 qid:1 1:x\n" if line in bad else GOOD for line in range(1, 61)))
    with pytest.raises(BadInput, match=r"train.txt:5: found '1:x', .*; also malformed: 8, 20, 21, 22, 30, …$"):
        read_letor(path)


def test_malformed_lines_are_numbered_across_chunks(monkeypatch):
    monkeypatch.setattr(letor, "_CHUNK", 256)
    path = write(GOOD * 500 + "1 qid:1 1:x\n" + GOOD * 300 + "oops\n" + GOOD)
    with pytest.raises(
        BadInput, match=r"train.txt:501: found '1:x', expected a finite float32 number behind the colon$"
    ):
        read_letor(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"1 qid:1\n0 qid:1\n", "holds no features in its 2 rows"),
        (bytes(range(256)) * 20, "expected an integer"),
        ("1 qid:1 1:2\n".encode("utf-16"), "expected an integer"),
        (b"1 qid:\xff\xfe 1:2\n", "expected UTF-8 text"),
        (b"1 qid:1 1:2 #docid = \xff\xfe\n", "not UTF-8 text"),
    ],
)
def test_files_that_hold_no_data(content, sentence):
    path = write(content)
    with pytest.raises(BadInput) as refusal:
        read_letor(path)
    assert str(path) in str(refusal.value)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_damaged_gzip_files():
    whole = gzip.compress((GOOD * 1000).encode())
    with pytest.raises(BadInput, match="is cut off"):
        read_letor(write(whole[:-20], "cut.txt.gz"))
    with pytest.raises(BadInput, match="is not sound gzip data"):
        read_letor(write(whole[:-8] + b"\0\0\0\0" + whole[-4:], "sum.txt.gz"))
    with pytest.raises(BadInput, match="is not sound gzip data"):
        read_letor(write(whole[:12] + b"\xff" * 20 + whole[32:], "inside.txt.gz"))
    with pytest.raises(BadInput, match=r"not a gzip file although its name ends in .gz"):
        read_letor(write(GOOD, "plain.txt.gz"))


def test_what_is_not_a_file(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        read_letor(tmp_path / "none.txt")
    with pytest.raises(BadInput, match="is a folder"):
        read_letor(tmp_path)


def test_ids_without_an_object_for_each(tmp_path):
    data = read_letor(write("".join(f"0 qid:1 1:1 #docid = d{r}\n" for r in range(10_000))))
    assert data.document_ids[9_999] == data.document_ids[-1] == "d9999"
    assert list(data.document_ids[2:4]) == ["d2", "d3"]
    assert sum(1 for _ in data.document_ids) == len(data.document_ids) == 10_000
    with pytest.raises(IndexError):
        data.document_ids[10_000]

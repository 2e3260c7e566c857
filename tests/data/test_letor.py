"""The reader against a slow one that does what the documentation says, a grammar, and Python's `float`."""

from __future__ import annotations

import gzip
import random
import re
import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

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


LABEL = re.compile(r"\+?(\d+)(\.0*)?")
FEATURE = re.compile(r"(\d{1,9}):([+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[nN][aA][nN]))")


def is_row(line: str) -> bool | None:
    """True for a good row, False for a malformed line, None for a line without data."""
    words = line.partition("#")[0].split()
    if not words:
        return None
    label = LABEL.fullmatch(words[0])
    if not label or int(label[1]) > 127 or len(words) < 2 or not re.fullmatch("qid:.+", words[1]):
        return False
    features = [FEATURE.fullmatch(word) for word in words[2:]]
    if not all(features):
        return False
    indices = [int(feature[1]) for feature in features]
    finite = all(abs(float(feature[2])) < float("inf") or "n" in feature[2].lower() for feature in features)
    return finite and len(set(indices)) == len(indices) and all(1 <= index <= 65_535 for index in indices)


@st.composite
def nearly_rows(draw):
    values = st.sampled_from(["1", "0.5", "-2e3", "nan", "1.25e-7", "12345678901234567890", ".5"])
    indices = draw(st.lists(st.integers(1, 12), unique=True, max_size=4))
    line = " ".join(["1 qid:a", *(f"{index}:{draw(values)}" for index in indices)])
    line += draw(st.sampled_from(["", " #docid = z", "# docid=q", " # x"]))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(line)))
        cut = draw(st.integers(0, 1))
        line = line[:place] + draw(st.sampled_from(["", *"0123456789.:eE+-# qid\tnax"])) + line[place + cut :]
    return line


@settings(max_examples=200, deadline=None)
@given(st.lists(nearly_rows(), min_size=1, max_size=4))
def test_the_reader_and_the_grammar_agree(lines):
    path = Path(tempfile.mkdtemp()) / "x.txt"
    path.write_text("\n".join(["0 qid:first 1:1", *lines, ""]))
    malformed = [number for number, line in enumerate(lines, 2) if is_row(line) is False]
    try:
        data = read_letor(path)
    except BadInput as refusal:
        assert malformed, refusal
        assert f"x.txt:{malformed[0]}: found" in str(refusal)
        more = re.search(r"also malformed: (.*)$", str(refusal))
        assert ([int(n) for n in more[1].split(", ")] if more else []) == malformed[1:]
    else:
        assert not malformed
        assert data.n_rows == 1 + sum(is_row(line) is True for line in lines)


NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def python_float(text: str) -> np.float32:
    """What is documented: float(text), the largest float32 for what is beyond it."""
    assert NUMBER.fullmatch(text)
    return np.float32(max(min(float(text), LARGEST), -LARGEST))


def read_numbers(tmp_path: Path, texts: list[str]) -> np.ndarray:
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"0 qid:1 1:{text}\n" for text in texts))
    return read_letor(path).features[:, 0]


def check_numbers(tmp_path: Path, texts: list[str]) -> None:
    found = read_numbers(tmp_path, texts)
    wanted = np.array([python_float(text) for text in texts], np.float32)
    wrong = np.flatnonzero(found.view(np.int32) != wanted.view(np.int32))
    assert [(texts[i], found[i], wanted[i]) for i in wrong[:5]] == []


def test_zero_is_zero_whatever_its_exponent(tmp_path: Path) -> None:
    mantissas = ["0", "-0", "+0", "0.0", ".0", "0.", "000", "-0.000000000000000000000000"]
    exponents = ["E+39", "e308", "e309", "e99999", "e-40", "e-99999", "e0", "e00000000040"]
    check_numbers(tmp_path, [mantissa + exponent for mantissa in mantissas for exponent in exponents])


def test_halfway_cases_subnormals_and_the_largest(tmp_path: Path) -> None:
    numbers = random.Random(1)
    texts = ["3.4028235e38", "3.4028234663852886e38", "1e39", "-1e39", "9e307", "1.7976931348623157e308", "1e-45"]
    texts += ["7.0064923216240853e-46", "7.006492321624085e-46", "1.17549435e-38", "1e-50", "1e-400", "0" * 400 + "1"]
    for _ in range(1500):
        low = np.uint32(numbers.randrange(0x7F7FFFFF)).view(np.float32)
        high = np.nextafter(low, np.float32(np.inf))
        middle = (Decimal(float(low)) + Decimal(float(high))) / 2
        for nudge in (Decimal(0), Decimal(1), Decimal(-1)):
            texts.append(format(middle + nudge * middle.scaleb(-numbers.randrange(10, 60)), "e"))
        texts.append(f"{Decimal(float(low)):f}")
    check_numbers(tmp_path, texts)


def test_generated_numbers(tmp_path: Path) -> None:
    numbers = random.Random(2)
    texts = []
    for _ in range(40_000):
        digits = "".join(numbers.choices("0123456789", k=numbers.choice((1, 2, 6, 9, 17, 18, 19, 20, 25, 45))))
        point = numbers.randrange(len(digits) + 1)
        text = numbers.choice(("", "-", "+")) + "0" * numbers.choice((0, 0, 1, 30)) + digits[:point]
        text += numbers.choice(("", ".")) + digits[point:]
        if numbers.random() < 0.6:
            text += (
                numbers.choice("eE")
                + numbers.choice(("", "-", "+"))
                + str(numbers.randrange(10 ** numbers.randrange(1, 3)))
            )
        texts.append(text)
    check_numbers(tmp_path, [text for text in texts if np.isfinite(float(text))])


@pytest.mark.parametrize(
    "text", ["1e309", "-1e400", "1e99999", "1.8e308", "inf", "e5", ".", "+", "-.", "1e", "1e+", "0x1", "1_0"]
)
def test_what_is_no_finite_number_is_refused(tmp_path: Path, text: str) -> None:
    with refused("letor.not-a-number", f"{tmp_path / 'numbers.txt'}:1"):
        read_numbers(tmp_path, [text])


def test_a_long_number_takes_linear_time(tmp_path: Path) -> None:
    """A million digits and one wrong letter: a pattern that tries all ways to divide the digits would take hours."""
    with refused("letor.not-a-number"):
        read_numbers(tmp_path, ["1" * 1_000_000 + "x"])

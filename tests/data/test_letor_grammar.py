"""A line is refused exactly when a grammar written down a second time refuses it, and the first is named."""

import re
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.data import read_letor
from quorank.errors import BadInput

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

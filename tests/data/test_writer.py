"""What is written reads back to the same bits."""

import gzip
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from quorank.data import RankingData, read_letor, write_letor
from quorank.data.letor.writer import shortest_texts
from quorank.data.ranking import pad
from quorank.errors import BadInput

number = st.floats(width=32, allow_nan=False, allow_infinity=False)
word = st.text(st.characters(codec="utf-8", exclude_characters="# \t\n\v\f\r"), min_size=1)


@st.composite
def ranking_data(draw):
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    rows, width = sum(lengths), draw(st.integers(1, 9))
    documents = draw(st.none() | st.lists(word | st.just(""), min_size=rows, max_size=rows))
    if documents is not None and not any(documents):
        documents = None
    return RankingData.from_arrays(
        draw(arrays.arrays(np.float32, (rows, width), elements=number)),
        draw(arrays.arrays(np.int8, rows, elements=st.integers(0, 127))),
        np.cumsum([0, *lengths]),
        draw(st.lists(word, min_size=len(lengths), max_size=len(lengths), unique=True)),
        documents,
    )


@settings(max_examples=120, deadline=None)
@given(ranking_data(), st.sampled_from(["x.txt", "x.txt.gz"]))
def test_round_trip(data, name):
    path = Path(tempfile.mkdtemp()) / name
    write_letor(data, path)
    back = read_letor(path)
    assert np.array_equal(back.padded.view(np.int32), data.padded.view(np.int32))
    assert back.n_features == data.n_features
    assert back.labels.tolist() == data.labels.tolist()
    assert back.offsets.tolist() == data.offsets.tolist()
    assert list(back.query_ids) == list(data.query_ids)
    assert (back.document_ids and list(back.document_ids)) == data.document_ids
    assert [entry.name for entry in path.parent.iterdir()] == [name]


def test_the_text_is_short_and_the_file_the_same_each_time(tmp_path):
    data = RankingData.from_arrays([[0.1, 3], [1e-7, 0]], [2, 0], [0, 2], ["q"], ["d1", ""])
    for name in ("a.txt.gz", "b.txt.gz"):
        write_letor(data, tmp_path / name)
    assert (tmp_path / "a.txt.gz").read_bytes() == (tmp_path / "b.txt.gz").read_bytes()
    text = gzip.decompress((tmp_path / "a.txt.gz").read_bytes()).decode()
    assert text == "2 qid:q 1:0.1 2:3 #docid = d1\n0 qid:q 1:1e-7 2:0\n"


def test_many_bit_patterns_survive():
    patterns = np.random.default_rng(1).integers(0, 2**32, 300_000, dtype=np.uint32).view(np.float32)
    patterns = patterns[np.isfinite(patterns)]
    back = np.array([np.float32(float(text)) for text in shortest_texts(patterns)])
    assert np.array_equal(back.view(np.int32), patterns.view(np.int32))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"query_ids": ["a b", "c"]}, "query id 'a b' is not one word"),
        ({"query_ids": ["a", "a"]}, "query id 'a' stands for two queries"),
        ({"document_ids": ["x y", "z"]}, "document id 'x y' is not one word"),
        ({"labels": [-1, 0]}, "label -1 cannot be written"),
        ({"features": [[np.inf], [0]]}, "not finite"),
        ({"offsets": [0, 0, 2]}, "a query without documents"),
    ],
)
def test_what_the_text_cannot_say_is_refused(tmp_path, change, sentence):
    fields = {"features": [[1], [2]], "labels": [0, 1], "offsets": [0, 1, 2], "query_ids": ["a", "b"]} | change
    raw = {"labels": np.array(fields.pop("labels"), dtype=np.int8), "padded": pad(np.float32(fields.pop("features")))}
    data = replace(RankingData.from_arrays([[1], [2]], [0, 1], **fields), **raw)  # as a program could have made it
    with pytest.raises(BadInput, match=sentence):
        write_letor(data, tmp_path / "x.txt")
    assert not list(tmp_path.glob("*x.txt*"))

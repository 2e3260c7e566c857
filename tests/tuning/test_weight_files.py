"""Files of weights: a checksum that anyone can compute, and damage that is always seen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.tuning.heuristics.decay import DECAY_FRECENCY
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.models import Model, model_file_name, read_model, write_model

MODEL = Model(
    "frecency", 7, FRECENCY.named(FRECENCY.shipped * (1 + 1e-16) / 1.0), 400, 12.5, "Rprop()", {"step": [0.1, 1 / 3]}
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_model(MODEL, tmp_path / model_file_name(7))


def test_a_file_is_read_back_to_the_last_bit(file: Path) -> None:
    assert read_model(file, FRECENCY) == MODEL
    assert [path.name for path in file.parent.iterdir()] == ["weights-000007.json"]


def test_the_checksum_is_sha256_of_the_rest(file: Path) -> None:
    content = json.loads(file.read_text())
    said = content.pop("checksum")
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert said == hashlib.sha256(text.encode()).hexdigest()


def test_every_damaged_byte_is_seen(file: Path) -> None:
    whole = file.read_bytes()

    @given(st.integers(0, len(whole) - 1), st.integers(0, 255))
    @hypothesis_settings(max_examples=120)
    def damage(at: int, byte: int) -> None:
        broken = whole[:at] + bytes([byte]) + whole[at + 1 :]
        file.write_bytes(broken)
        try:
            again = read_model(file, FRECENCY)
        except BadInput as error:
            assert str(file) in str(error)
        else:  # white space between tokens is not content
            assert again == MODEL and json.loads(broken) == json.loads(whole)

    damage()


def test_weights_of_another_heuristic_or_outside_of_the_constraints(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="heuristic 'frecency'; expected those of 'decay'"):
        read_model(file, DECAY_FRECENCY)
    wrong = dict(MODEL.weights) | {"recency.older": 60.0}
    other = write_model(Model("frecency", 8, wrong), tmp_path / "other.json")
    assert read_model(other).version == 8
    with pytest.raises(BadInput, match=r"recency\.older = 60 is above recency\.90-days = 30"):
        read_model(other, FRECENCY)
    short = write_model(Model("frecency", 8, {"recency.older": 1.0}), tmp_path / "short.json")
    with pytest.raises(BadInput, match="a value is missing"):
        read_model(short, FRECENCY)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_model(tmp_path / "none.json")
    for text, words in (
        ("[1, 2]", 'expected "format"'),
        ('{"format": "quorank-wei', "not a file of weights"),
        ("", "not a"),
    ):
        (tmp_path / "list.json").write_text(text)
        with pytest.raises(BadInput, match=words):
            read_model(tmp_path / "list.json")
    content = json.loads(write_model(MODEL, tmp_path / "m.json").read_text())
    del content["weights"]
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(BadInput, match="damaged file of weights"):
        read_model(tmp_path / "m.json")

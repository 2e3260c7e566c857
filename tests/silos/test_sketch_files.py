"""A saved RTK-Sketch comes back whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.silos.sketch.hashing import Hashing
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape

KEY = bytes(range(32))
SHAPES = [Shape("count", "recommended", 2, 6, 50, 60), Shape("count", "literal", 2, 6, 5, 60)]


def filled(shape: Shape, documents: int = 30) -> ReverseTopK:
    sketch = ReverseTopK(shape.hashing(KEY), shape)
    random = np.random.default_rng(4)
    for number in range(documents):
        sketch.add(number, [f"t{i}" for i in random.permutation(20)[:5]], random.integers(1, 9, 5))
    sketch.remove(3, 4)
    return sketch


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_round_trip_and_life_after_it(shape: Shape, tmp_path: Path) -> None:
    sketch = filled(shape)
    again = ReverseTopK.load(sketch.save(tmp_path / "body.rtk"), shape.hashing(KEY))
    assert (again.shape, len(again), again.stored, again.limit) == (shape, 28, sketch.stored, sketch.limit)
    for structure in (sketch, again):
        structure.remove(7)
        for number in range(100, 140):
            structure.add(number, [f"t{number % 20}", "t20"], [number % 7 + 1, 1])
    for term in range(20):
        ids, estimates = sketch.top(f"t{term}", 9)
        others, same = again.top(f"t{term}", 9)
        assert ids.tolist() == others.tolist()
        assert estimates.tolist() == same.tolist()
    assert 3 not in again
    with pytest.raises(BadInput, match="already"):
        again.add(1, ["t1"], [1])
    assert list(tmp_path.iterdir()) == [tmp_path / "body.rtk"]


def test_no_key_and_no_term_is_in_the_file(tmp_path: Path) -> None:
    content = filled(SHAPES[0]).save(tmp_path / "body.rtk").read_bytes()
    assert KEY not in content
    assert KEY.hex().encode() not in content
    assert b"t1" not in content


@settings(max_examples=60)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_a_changed_byte_is_refused(tmp_path_factory, where: float, change: int) -> None:
    path = tmp_path_factory.mktemp("sketch") / "body.rtk"
    content = bytearray(filled(SHAPES[0], 8).save(path).read_bytes())
    content[int(where * len(content))] ^= change
    path.write_bytes(bytes(content))
    with pytest.raises(BadInput, match=str(path)):
        ReverseTopK.load(path, SHAPES[0].hashing(KEY))


@pytest.mark.parametrize("left", [0, 1, 50, 400, -1])
def test_a_cut_file_is_refused(tmp_path: Path, left: int) -> None:
    path = tmp_path / "body.rtk"
    path.write_bytes(filled(SHAPES[0]).save(path).read_bytes()[:left])
    with pytest.raises(BadInput, match=r"damaged|not a saved sketch"):
        ReverseTopK.load(path, SHAPES[0].hashing(KEY))


def test_other_keys_versions_and_places_are_refused(tmp_path: Path) -> None:
    path = filled(SHAPES[0]).save(tmp_path / "body.rtk")
    for hashing in (Hashing(bytes(32), 2, 6), Hashing(KEY, 3, 6), Hashing(KEY, 2, 7)):
        with pytest.raises(BadInput, match="another key") as refused:
            ReverseTopK.load(path, hashing)
        assert (refused.value.code, refused.value.where) == ("sketch.other-hashing", str(path))
    with pytest.raises(BadInput, match="does not exist"):
        ReverseTopK.load(tmp_path / "nothing.rtk", SHAPES[0].hashing(KEY))
    with pytest.raises(BadInput, match="does not exist"):
        filled(SHAPES[0]).save(tmp_path / "nowhere" / "body.rtk")
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(BadInput, match="version 2"):
        ReverseTopK.load(path, SHAPES[0].hashing(KEY))

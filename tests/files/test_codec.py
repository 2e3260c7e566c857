"""Dataclasses from and to the values of JSON and TOML: what fits comes back equal, what does not names its key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput, require_range
from quorank.files.codec import Length, Pattern, Range, decode, encode
from quorank.files.documents import json_bytes, parse_json


@dataclass(frozen=True)
class Step:
    kind: ClassVar[str] = "step"
    size: float = 0.1

    def __post_init__(self) -> None:
        require_range("size", self.size, above=0.0)


class Totals(TypedDict):
    rounds: Annotated[int, Range(0)]


@dataclass(frozen=True)
class Plan:
    rounds: Annotated[int, Range(1, 100)]
    name: Annotated[str, Length(10)] = ""
    mode: Literal["full", "sampled"] = "full"
    limit: int | None = None
    key: Annotated[bytes, Length(4, 4)] = b"\0\1\2\3"
    digest: Annotated[str | None, Pattern("[0-9a-f]{2}", "two digits")] = None
    steps: tuple[Step, ...] = ()
    pair: tuple[int, str] = (1, "a")
    means: Mapping[str, float] | None = None
    totals: Totals | None = None
    either: int | str = 0
    flag: bool = False


PLANS = st.builds(
    Plan,
    rounds=st.integers(1, 100),
    name=st.text(max_size=10).filter(lambda text: text.isascii()),
    mode=st.sampled_from(["full", "sampled"]),
    limit=st.none() | st.integers(-(2**63), 2**64 - 1),
    key=st.binary(min_size=4, max_size=4),
    digest=st.none() | st.just("0f"),
    steps=st.lists(st.builds(Step, st.floats(1e-9, 1e9)), max_size=3).map(tuple),
    pair=st.tuples(st.integers(0, 9), st.just("b")),
    means=st.none() | st.dictionaries(st.just("x"), st.floats(-1e300, 1e300)),
    totals=st.none() | st.just({"rounds": 1, "more": [1]}),
    either=st.integers(0, 9) | st.just("word"),
    flag=st.booleans(),
)


@given(PLANS, st.booleans())
def test_decoding_undoes_encoding(plan, defaults) -> None:
    table = encode(plan, defaults=defaults)
    assert decode(Plan, table) == plan
    assert parse_json(json_bytes(table), Plan) == plan
    assert encode(decode(Plan, table), defaults=defaults) == table


def test_defaults_may_be_left_out() -> None:
    assert encode(Plan(3), defaults=False) == {"rounds": 3}
    assert encode(Step()) == {"kind": "step", "size": 0.1}
    assert encode({"theta": np.arange(2.0), "n": np.int64(3)}) == {"theta": [0.0, 1.0], "n": 3}


def test_an_integer_may_stand_for_a_number() -> None:
    step = decode(Step, {"size": 2})
    assert step == Step(2.0)
    assert isinstance(step.size, float)


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a key too many": ({"colour": 1}, "part.unknown-key", "colour"),
    "a range": ({"rounds": 101}, "value.out-of-range", "rounds"),
    "a boolean for an integer": ({"rounds": True}, "value.wrong-type", "rounds"),
    "a float for an integer": ({"rounds": 1.0}, "value.wrong-type", "rounds"),
    "a huge integer": ({"limit": 2**70}, "value.out-of-range", "limit"),
    "a long string": ({"name": "x" * 11}, "value.out-of-range", "name"),
    "no choice": ({"mode": "ful"}, "value.not-a-choice", "mode"),
    "a short key": ({"key": "0001"}, "value.out-of-range", "key"),
    "no hexadecimal": ({"key": "xx"}, "value.wrong-type", "key"),
    "a pattern": ({"digest": "0g"}, "value.out-of-range", "digest"),
    "below a list": ({"steps": [{"size": 1}, {"size": "1"}]}, "value.wrong-type", "steps.1.size"),
    "the dataclass's own check": ({"steps": [{"size": -1.0}]}, "value.out-of-range", "steps.0.size"),
    "another kind": ({"steps": [{"kind": "stop"}]}, "value.not-a-choice", "steps.0.kind"),
    "a long pair": ({"pair": [1, "a", 2]}, "value.wrong-type", "pair"),
    "not a number": ({"means": {"x": float("nan")}}, "value.out-of-range", "means.x"),
    "infinity": ({"means": {"x": float("inf")}}, "value.out-of-range", "means.x"),
    "too large a number": ({"means": {"x": 10**400}}, "value.out-of-range", "means.x"),
    "a key of a typed dictionary": ({"totals": {}}, "value.missing", "totals.rounds"),
    "an unprintable key": ({"means": {"\n": ""}}, "value.wrong-type", "means.'\\n'"),
    "no branch of a union": ({"either": []}, "value.wrong-type", "either"),
    "no table": ({"totals": 3}, "value.wrong-type", "totals"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_at_its_key(case) -> None:
    table, code, where = REFUSED[case]
    with pytest.raises(BadInput) as refused:
        decode(Plan, {"rounds": 1} | table, "plan")
    assert (refused.value.code, refused.value.where) == (code, f"plan.{where}")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(BadInput, match=r"plan\.rounds: is missing"):
        decode(Plan, {}, "plan")
    with pytest.raises(BadInput, match=r"^a.json: damaged: rounds: is missing; ask again$"):
        parse_json(b"{}", Plan, "a.json", advice="; ask again")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": 1e999}', "too large a number"),
        ('{"a": ' + "1" * 41 + "}", "a number of 41 digits"),
        ('{"a": ' + "[" * 40 + "]" * 40 + "}", "nested too deep"),
        ('{"a": ' + "[" * 10**5 + "]" * 10**5 + "}", "nested too deep"),
        ('{"a": "\\ud800"}', "not UTF-8"),
        ("[]", "expected a table"),
        ("{", "not readable as JSON"),
    ],
)
def test_json_that_is_none_of_ours(text, sentence) -> None:
    with pytest.raises(BadInput, match=sentence) as refused:
        parse_json(text, where="file.json")
    assert (refused.value.code, refused.value.where) == ("file.damaged", "file.json")


def test_a_million_numbers_are_decoded_in_a_second() -> None:
    numbers = json.loads(json.dumps(list(range(10**6))))
    assert len(decode(tuple[int, ...], numbers)) == 10**6

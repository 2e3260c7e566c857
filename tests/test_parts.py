"""The contract of every part of every family: a value that prints as its spec and is read back from it."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from part_examples import EXAMPLES, FAMILIES, REFUSED

from quorank.errors import BadInput
from quorank.parts import to_table


@pytest.mark.parametrize("family", EXAMPLES)
def test_every_member_has_an_example(family) -> None:
    """So that no part escapes the contract: add a new one to part_examples.py."""
    assert {*map(type, EXAMPLES[family])} >= {*FAMILIES[family].members.values()}


@pytest.mark.parametrize("family", EXAMPLES)
def test_parts_print_and_read_back(family) -> None:
    known = FAMILIES[family]
    for part in EXAMPLES[family]:
        assert known.parse(str(part)) == known.parse(repr(part)) == part
        table = to_table(part)
        assert table["kind"] == part.kind
        assert known.read(table, "here") == part
        assert to_table(known.read(table, "here")) == table
        assert known.read(to_table(part, complete=False), "here") == part
        assert pickle.loads(pickle.dumps(part)) == part
        assert hash(part) == hash(known.parse(str(part)))
        for f in dataclasses.fields(part):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, f.name, getattr(part, f.name))
            with pytest.raises(BadInput, match=rf"place\.{f.name}"):
                known.read({"kind": part.kind, f.name: object()}, "place")
    assert len({*map(str, EXAMPLES[family])}) == len({*EXAMPLES[family]})


@pytest.mark.parametrize("family", EXAMPLES)
def test_words_of_a_family(family) -> None:
    known = FAMILIES[family]
    for kind, cls in known.members.items():
        assert cls.kind == kind
        assert (
            known.read(kind, "here") == known.read({"kind": kind}, "here") == known.parse(f"{cls.__name__}()") == cls()
        )
        with pytest.raises(BadInput, match=r"place\.colour.*'colour'"):
            known.read({"kind": kind, "colour": 1}, "place")
        wrong = kind[:-1] if len(kind) > 3 else kind + "s"
        with pytest.raises(BadInput, match=rf"unknown .*{wrong}.*did you mean '{kind}'.*known: .*{kind}"):
            known.read(wrong, "place")


@pytest.mark.parametrize("family", EXAMPLES)
def test_bad_values_are_refused(family) -> None:
    for other, table in REFUSED:
        if other == family:
            with pytest.raises(BadInput, match=r"^place"):
                FAMILIES[family].read(table, "place")


def test_misspelt_keys_and_choices_get_a_suggestion() -> None:
    with pytest.raises(BadInput, match=r"unknown key 'hiden' \(did you mean 'hidden'\?\)"):
        FAMILIES["rankers"].read({"kind": "mlp", "hiden": 3}, "ranker")
    with pytest.raises(BadInput, match=r"users\.preset: expected one of .*did you mean 'navigational'"):
        FAMILIES["users"].read({"preset": "navigatonal"}, "users")


NO_PARTS = [
    "", "pdgd", "PDGD", "PDGD(0.1)", "PDGD(eta=", "PDGD(eta=1", "Krum()", "a.PDGD()", "PDGD(eta=x)", "PDGD(eta={[]: 1})",
    'PDGD(**{"eta": 3})', "PDGD(" + "(" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("text", NO_PARTS)
def test_what_is_no_printed_part_is_refused(text) -> None:
    with pytest.raises(BadInput):
        FAMILIES["learners"].parse(text)


def test_parsing_never_runs_code() -> None:
    with pytest.raises(BadInput):
        FAMILIES["learners"].parse("PDGD(eta=__import__('os').getpid())")


@pytest.mark.parametrize("spec", [None, 3, 1.5, True, ["pdgd"]])
def test_neither_word_nor_table_is_refused(spec) -> None:
    with pytest.raises(BadInput, match=r"place: expected a learner \(.*pdgd.*\) or a table"):
        FAMILIES["learners"].read(spec, "place")


def test_whole_numbers_may_stand_for_numbers() -> None:
    part = FAMILIES["servers"].read({"kind": "add", "step": 20}, "server")
    assert part.step == 20.0
    assert isinstance(part.step, float)

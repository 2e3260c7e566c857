"""The contract of every part of every family: a value that prints as its spec and is read back from it."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from part_examples import EXAMPLES, FAMILIES, REFUSED

from quorank.errors import BadInput
from quorank.parts import to_table

PARTS = [pytest.param(family, part, id=f"{family}-{part}") for family in EXAMPLES for part in EXAMPLES[family]]
MEMBERS = [pytest.param(f, kind, id=f"{f}-{kind}") for f, family in FAMILIES.items() for kind in family.members]


@pytest.mark.parametrize(("family", "kind"), MEMBERS)
def test_every_member_has_an_example(family, kind) -> None:
    """So that no part escapes the contract: add a new one to part_examples.py."""
    assert any(type(part) is FAMILIES[family].members[kind] for part in EXAMPLES[family])


@pytest.mark.parametrize(("family", "part"), PARTS)
def test_parts_print_and_read_back(family, part) -> None:
    assert FAMILIES[family].parse(str(part)) == part
    assert FAMILIES[family].parse(repr(part)) == part
    table = to_table(part)
    assert table["kind"] == part.kind
    assert FAMILIES[family].read(table, "here") == part
    assert to_table(FAMILIES[family].read(table, "here")) == table
    assert pickle.loads(pickle.dumps(part)) == part


@pytest.mark.parametrize(("family", "kind"), MEMBERS)
def test_the_bare_word_is_the_part_with_its_defaults(family, kind) -> None:
    cls = FAMILIES[family].members[kind]
    assert cls.kind == kind
    assert FAMILIES[family].read(kind, "here") == cls()
    assert FAMILIES[family].read({"kind": kind}, "here") == cls()
    assert FAMILIES[family].parse(f"{cls.__name__}()") == cls()


@pytest.mark.parametrize(("family", "part"), PARTS)
def test_parts_are_frozen_and_hashable(family, part) -> None:
    assert hash(part) == hash(FAMILIES[family].parse(str(part)))
    for f in dataclasses.fields(part):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, f.name, getattr(part, f.name))


@pytest.mark.parametrize("family", EXAMPLES)
def test_different_parts_print_differently(family) -> None:
    assert len({str(part) for part in EXAMPLES[family]}) == len(set(EXAMPLES[family]))


@pytest.mark.parametrize(("family", "kind"), MEMBERS)
def test_an_unknown_key_is_refused_by_name(family, kind) -> None:
    with pytest.raises(BadInput, match=r"place\.colour.*'colour'"):
        FAMILIES[family].read({"kind": kind, "colour": 1}, "place")


@pytest.mark.parametrize(("family", "part"), PARTS)
def test_a_wrong_type_is_refused_by_the_field_s_name(family, part) -> None:
    for f in dataclasses.fields(part):
        with pytest.raises(BadInput, match=rf"place\.{f.name}"):
            FAMILIES[family].read({"kind": part.kind, f.name: object()}, "place")


@pytest.mark.parametrize(("family", "table"), REFUSED)
def test_bad_values_are_refused(family, table) -> None:
    with pytest.raises(BadInput, match=r"^place"):
        FAMILIES[family].read(table, "place")


@pytest.mark.parametrize(("family", "kind"), MEMBERS)
def test_misspelt_words_get_a_suggestion(family, kind) -> None:
    wrong = kind[:-1] if len(kind) > 3 else kind + "s"
    assert wrong not in FAMILIES[family].members
    with pytest.raises(BadInput, match=rf"unknown .*{wrong}.*did you mean '{kind}'.*known: .*{kind}"):
        FAMILIES[family].read(wrong, "place")


def test_misspelt_keys_and_choices_get_a_suggestion() -> None:
    with pytest.raises(BadInput, match=r"unknown key 'hiden' \(did you mean 'hidden'\?\)"):
        FAMILIES["rankers"].read({"kind": "mlp", "hiden": 3}, "ranker")
    with pytest.raises(BadInput, match=r"users\.preset: expected one of .*did you mean 'navigational'"):
        FAMILIES["users"].read({"preset": "navigatonal"}, "users")


@pytest.mark.parametrize("text", ["", "pdgd", "PDGD", "PDGD(0.1)", "PDGD(eta=", "Krum()", "a.PDGD()", "PDGD(eta=x)"])
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

"""Parties whose texts do not fit: a sentence that names the party, before anything of its documents is sent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from silo_sessions import HOLDINGS, Group, terms_of

from quorank.errors import BadInput
from quorank.silos.holdings import check_texts
from quorank.silos.session.records import MEANINGS
from quorank.silos.training.comparison import check_same_text, prepare_lists
from quorank.text import Tokeniser
from quorank.text.collection import Document, TextCollection

GERMAN = "Die Verbindung der Häuser mit der großen Straße ist nicht gut und der Fluss ist breit, sie haben das gesehen"
ENGLISH = "The connection of the houses with the large street is not good and the river is wide, they have seen that"


def texts(*bodies: str) -> TextCollection:
    documents = tuple(Document(str(at), "", body) for at, body in enumerate(bodies))
    return TextCollection("texts", documents, (), {})


@pytest.mark.parametrize(
    ("collection", "tokeniser", "code"),
    [
        (texts(), Tokeniser.for_language("english"), "party.no-documents"),
        (texts(*[GERMAN] * 5), Tokeniser.for_language("english"), "party.other-language"),
        (texts(*[ENGLISH] * 5), Tokeniser.for_language("german"), "party.other-language"),
        (texts(*[GERMAN] * 5), Tokeniser("english", "porter"), "party.other-language"),
    ],
)
def test_no_documents_and_another_language_are_refused_by_name(
    collection: TextCollection, tokeniser: Tokeniser, code: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        check_texts("clinic", collection, tokeniser)
    assert refusal.value.code == code and "clinic" in refusal.value.sentence


@pytest.mark.parametrize(
    ("collection", "tokeniser"),
    [
        (texts(*[GERMAN] * 5), Tokeniser.for_language("german")),
        (texts(*[ENGLISH] * 5), Tokeniser("english", "porter")),
        (texts(*[GERMAN] * 5), Tokeniser("none", "none")),
        (texts("x1 y2 z3"), Tokeniser.for_language("english")),
    ],
)
def test_texts_that_fit_or_tell_no_language_are_taken(collection: TextCollection, tokeniser: Tokeniser) -> None:
    check_texts("clinic", collection, tokeniser)


def test_parties_with_different_tokenisers_are_told_apart_by_name() -> None:
    documents = HOLDINGS[1].documents
    other = replace(documents, body=replace(documents.body, tokeniser=Tokeniser.for_language("german")))
    with pytest.raises(BadInput) as refusal:
        check_same_text([HOLDINGS[0], replace(HOLDINGS[1], documents=other)])
    assert refusal.value.code == "party.other-tokeniser" and HOLDINGS[1].name in refusal.value.sentence


def test_a_party_whose_library_makes_other_terms_stops_the_session_before_anything_is_sent(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hello says what it makes of probe words; the others name it and send neither tables nor questions."""
    group = Group(tmp_path, terms_of())
    try:
        with monkeypatch.context() as patched:
            patched.setattr(Tokeniser, "fingerprint", lambda self: "0" * 16)
            group.kill("south")
            group.message("south")
        for _ in range(6):
            for name in group.terms.parties:
                group.message(name)
        stopped = [group.parties[name].stopped or "" for name in ("north", "west")]
        assert all("south" in sentence for sentence in stopped), stopped
        from quorank.member.party_folder import sent_log

        for name in group.terms.parties:
            kinds = {entry["kind"] for entry in sent_log(tmp_path / name)}
            assert kinds <= {"hello", "contribution"} and all(MEANINGS[kind.upper()] for kind in kinds)
    finally:
        group.close()


def test_a_party_without_labels_takes_part_with_its_documents(tmp_path) -> None:
    holding = HOLDINGS[2]
    silent = replace(holding, grades=tuple({} for _ in holding.grades))
    setting = terms_of().setting
    lists = [own for own, _ in prepare_lists([*HOLDINGS[:2], silent], setting, 5)]
    assert lists[2].n_lists == 0 and silent.n_answered == 0
    w0 = setting.searched.prior_direction()
    _, alone = setting.training.train(lists[:2], w0)
    _, together = setting.training.train(lists, w0)
    assert together.tobytes() == alone.tobytes(), "what it cannot say changes nothing"

"""Attacks that measure the budgets of searches: dictionaries, and a document with an anchor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from quorank.errors import BadInput
from quorank.silos.holdings import Holding
from quorank.silos.search.decoys import Bundle
from quorank.silos.search.ledger import SearchLedger
from quorank.silos.search.messages import SearchAnswer, SearchQuestion, by_column
from quorank.silos.search.owner import SearchOwner, search_hashing, seeded_owner_secret
from quorank.silos.search.settings import SearchTerms, distinct_share
from quorank.text import UNSEEN, Index

ATTACKER = "attacker"
PATIENCE = 30  # consecutive refusals after which an attacker gives up


class AttackOutcome(NamedTuple):
    """(document, term) pairs of an owner that an attacker has learned."""

    questions: int
    refused: bool
    recovered: float  # share of the owner's pairs that were told and are true
    precision: float  # share of the told pairs that are true
    document: float = 0.0  # share of the pairs of the attacked document, where there is one


class SearchAttacker:
    """Attacker that asks one owner as fast as it answers, and waits for the next day when refused.

    It has the group's hashing key, as every party does, and knows the vocabulary.
    """

    def __init__(self, holding: Holding, terms: SearchTerms, seed: int = 1) -> None:
        self._now = 0.0
        self.terms, self.index = terms, holding.documents.body
        self.hashing = search_hashing(seed, terms)
        ledger = SearchLedger(holding.name, clock=lambda: self._now)
        secret = seeded_owner_secret(seed, holding.name)
        body = self.index.statistics(self.index.term_ids(()))  # in place of the group's statistics
        self.owner = SearchOwner(holding, self.hashing, secret, terms, ledger, distinct=distinct_share(body))
        self.told: set[tuple[int, str]] = set()  # (row of the document, term)
        self.questions = 0

    def ask(self, bundles: Sequence[Bundle]) -> None:
        """Ask about bundles of equal length, and note the cells in the answer."""
        words = [by_column(self.hashing, bundle) for bundle in bundles]
        raw = SearchQuestion(tuple(columns for _, columns in words)).to_bytes()
        try:
            answer = self.owner.answer(ATTACKER, raw)
        except BadInput as error:
            if error.code != "silo-search.day-spent":
                raise
            self._now += 86_400.0
            answer = self.owner.answer(ATTACKER, raw)
        self.questions += 1
        read = SearchAnswer.from_bytes(answer, "owner", raw, self.terms)
        for (bundle, _), named in zip(words, read.bundles, strict=True):
            for number, cells in zip(named.numbers.tolist(), named.cells, strict=True):
                row = self.owner.row_of(number)
                self.told |= {(row, bundle[at]) for at in np.flatnonzero(cells)}

    def ask_everything(self, bundles: Sequence[Bundle]) -> bool:
        """Ask about all bundles, several per question, one by one after a refusal; return whether the attacker gave up."""
        refusals = 0
        for at in range(0, len(bundles), self.terms.among):
            together = bundles[at : at + self.terms.among]
            for part in (together, *([each] for each in together)):
                try:
                    self.ask(part)
                except BadInput:
                    refusals += 1
                    if refusals >= PATIENCE:
                        return True
                else:
                    refusals = 0
                    if part is together:
                        break
        return False


def compare_pairs(
    index: Index, told: set[tuple[int, str]], questions: int, *, refused: bool, document: int | None = None
) -> AttackOutcome:
    """Compare the learned (row of the document, term) pairs with the owner's documents."""
    right = [(row, term) for row, term in told if row in index.postings(index.ids.get(term, UNSEEN))[0]]
    of_document = 0.0 if document is None else sum(row == document for row, _ in right) / index.distinct[document]
    precision = len(right) / max(len(told), 1)
    return AttackOutcome(questions, refused, len(right) / max(len(index.terms), 1), precision, float(of_document))


def without_budgets(terms: SearchTerms) -> SearchTerms:
    """Return the same search with limits that are never reached, to measure what budgets prevent."""
    return replace(terms, share=1.0, share_of_all=1.0, share_of_document=1.0, questions_a_day=10**9)


def dictionary_attack(holding: Holding, dictionary: Sequence[str], terms: SearchTerms, seed: int = 1) -> AttackOutcome:
    """Ask about every word of a dictionary in order, one word per bundle, until the owner refuses."""
    attacker = SearchAttacker(holding, terms, seed)
    refused = attacker.ask_everything([(word,) for word in dictionary])
    return compare_pairs(holding.documents.body, attacker.told, attacker.questions, refused=refused)


def anchor_attack(holding: Holding, dictionary: Sequence[str], terms: SearchTerms, seed: int = 1) -> AttackOutcome:
    """Rebuild the first document with a unique word: ask about that word together with every word of a dictionary."""
    index = holding.documents.body
    alone = np.flatnonzero(index.document_frequency == 1)
    document = int(index.postings(int(alone[0]))[0][0]) if len(alone) else 0
    anchor = index.vocabulary[int(alone[0])] if len(alone) else dictionary[0]
    attacker = SearchAttacker(holding, terms, seed)
    refused = attacker.ask_everything([(anchor, word) for word in dictionary if word != anchor])
    return compare_pairs(index, attacker.told, attacker.questions, refused=refused, document=document)


def dictionary_of(holdings: Sequence[Holding], words: int) -> tuple[list[str], list[str]]:
    """Return the most frequent words of all parties, and those in at least two documents, the rarest first."""
    held: Counter[str] = Counter()
    for each in holdings:
        index = each.documents.body
        held.update(dict(zip(index.vocabulary, index.document_frequency.tolist(), strict=True)))
    known = sorted((word for word, count in held.items() if count), key=lambda word: (-held[word], word))[:words]
    return known, [word for word in sorted(known, key=lambda word: (held[word], word)) if held[word] >= 2]

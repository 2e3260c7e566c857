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
    recovered: float  # share of the owner's pairs that were disclosed and are true
    precision: float  # share of the disclosed pairs that are true
    document: float = 0.0  # share of the pairs of the attacked document, where there is one


class SearchAttacker:
    """Attacker that asks one owner under the names of one or several members, as often as a day allows.

    It has the group's hashing key, as every party does, and knows the vocabulary. Members take turns by question and pool
    the answers.
    """

    def __init__(self, holding: Holding, terms: SearchTerms, seed: int = 1, members: int = 1) -> None:
        self._now, self.terms, self.index, self.members = 0.0, terms, holding.documents.body, members
        self.hashing = search_hashing(seed, terms)
        ledger = SearchLedger(holding.name, clock=lambda: self._now)
        secret = seeded_owner_secret(seed, holding.name)
        body = self.index.statistics(self.index.term_ids(()))  # in place of the group's statistics
        self.owner = SearchOwner(
            holding, self.hashing, secret, terms, ledger, askers=members, distinct=distinct_share(body)
        )
        self.told: set[tuple[int, str]] = set()  # (row of the document, term)
        self.questions = 0

    def ask(self, bundles: Sequence[Bundle]) -> list[set[int]]:
        """Ask about bundles of equal length, note the cells in the answer, and return the rows named for each."""
        if self.questions and self.questions % (self.terms.questions_a_day * self.members) == 0:
            self._now += 86_400.0
        words = [by_column(self.hashing, bundle) for bundle in bundles]
        raw = SearchQuestion(tuple(columns for _, columns in words)).to_bytes()
        self.questions += 1
        answer = self.owner.answer(f"{ATTACKER}{self.questions % self.members}", raw)
        read, found = SearchAnswer.from_bytes(answer, "owner", raw, self.terms), list[set[int]]()
        for (bundle, _), named in zip(words, read.bundles, strict=True):
            rows = [self.owner.row_of(number) for number in named.numbers.tolist()]
            found.append(set(rows))
            for row, cells in zip(rows, named.cells, strict=True):
                self.told |= {(row, bundle[at]) for at in np.flatnonzero(cells)}
        return found

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
                    if refusals >= PATIENCE * self.members:
                        return True
                else:
                    refusals = 0
                    if part is together:
                        break
        return False

    def probe(self, anchor: str, row: int, word: str) -> str:
        """Ask for a word together with the unique word of a document; return everything that distinguishes the outcomes."""
        try:
            (named,) = self.ask([(anchor, word)])
        except BadInput as error:
            return str(error)
        return "told" if (row, word) in self.told else "named" if row in named else "passed over"


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


def dictionary_attack(
    holding: Holding, dictionary: Sequence[str], terms: SearchTerms, seed: int = 1, members: int = 1
) -> AttackOutcome:
    """Ask about every word of a dictionary in order, one word per bundle, until the owner refuses all members."""
    attacker = SearchAttacker(holding, terms, seed, members)
    refused = attacker.ask_everything([(word,) for word in dictionary])
    return compare_pairs(holding.documents.body, attacker.told, attacker.questions, refused=refused)


def anchor_attack(
    holding: Holding, dictionary: Sequence[str], terms: SearchTerms, seed: int = 1, members: int = 1
) -> AttackOutcome:
    """Rebuild the first document with a unique word: ask about that word together with every word of a dictionary."""
    index = holding.documents.body
    alone = np.flatnonzero(index.document_frequency == 1)
    document = int(index.postings(int(alone[0]))[0][0]) if len(alone) else 0
    anchor = index.vocabulary[int(alone[0])] if len(alone) else dictionary[0]
    attacker = SearchAttacker(holding, terms, seed, members)
    refused = attacker.ask_everything([(anchor, word) for word in dictionary if word != anchor])
    return compare_pairs(index, attacker.told, attacker.questions, refused=refused, document=document)


def probe_attack(
    holding: Holding, dictionary: Sequence[str], terms: SearchTerms, seed: int = 1, *, probes: int, spend: bool
) -> AttackOutcome:
    """Rebuild documents from how a spent limit shows: each with a unique word, together with words of a dictionary.

    With `spend` the budget is spent first, and refusals are compared; without it, documents whose own limit is reached.
    Outcomes of a word are compared over all documents, and those of a document at its limit over all words: the most
    frequent one says that the word is not there.
    """
    index, attacker = holding.documents.body, SearchAttacker(holding, terms, seed)
    refused = spend and attacker.ask_everything([(word,) for word in dictionary])
    alone = np.flatnonzero(index.document_frequency == 1).tolist()
    anchors = {int(index.postings(term)[0][0]): index.vocabulary[term] for term in alone}  # by document
    outcomes: dict[str | int, dict[tuple[int, str], str]] = {}
    pairs = (
        [(word, row) for word in dictionary for row in anchors]
        if spend
        else [(word, row) for row in anchors for word in dictionary]
    )
    for word, row in pairs[:probes]:
        if word != anchors[row]:
            outcome = attacker.probe(anchors[row], row, word)
            outcomes.setdefault(word if spend else row, {})[row, word] = outcome
    for compared in outcomes.values():
        usual = Counter(compared.values()).most_common(1)[0][0]
        claimed = (pair for pair, each in compared.items() if each != usual and (spend or each == "passed over"))
        attacker.told.update(claimed)
    return compare_pairs(index, attacker.told, attacker.questions, refused=refused)


def dictionary_of(holdings: Sequence[Holding], words: int) -> tuple[list[str], list[str]]:
    """Return the most frequent words of all parties, and those in at least two documents, the rarest first."""
    held: Counter[str] = Counter()
    for each in holdings:
        index = each.documents.body
        held.update(dict(zip(index.vocabulary, index.document_frequency.tolist(), strict=True)))
    known = sorted((word for word, count in held.items() if count), key=lambda word: (-held[word], word))[:words]
    return known, [word for word in sorted(known, key=lambda word: (held[word], word)) if held[word] >= 2]

"""A party's searches over a network: it asks the others, answers them from its own documents, and ranks what comes back.

Searches begin once the group has its ranker, with the session's keys. A question and its answers are sealed envelopes; an
owner that has not told this asker the noisy lengths of its documents does so before its first answer. What was asked and
what came back is kept, so a party that is killed goes on; an answer that was charged and not sent is charged nothing when
it is made again, since told entries are free.

In a rehearsal keys and secrets follow from the seed, as in one process (`silos.search.in_process`), and so do the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, MutableMapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quorank.errors import BadInput, require
from quorank.files.atomic import write_whole
from quorank.silos.learning.exchange import seeded_secret
from quorank.silos.learning.holdings import Holding
from quorank.silos.learning.shared_statistics import SharedStatistics, read_total
from quorank.silos.party.secrets import Secrets
from quorank.silos.protocol.keys import derive
from quorank.silos.protocol.messages import Kind, Refuse
from quorank.silos.protocol.stream_store import SiloStore
from quorank.silos.protocol.terms import SiloTerms
from quorank.silos.search.asker import AskedQuery, SearchAsker, rank_found
from quorank.silos.search.in_process import GroupSearchResult, search_hashing
from quorank.silos.search.ledger import SearchLedger
from quorank.silos.search.messages import question_digest
from quorank.silos.search.owner import SearchOwner, seeded_owner_secret
from quorank.silos.search.settings import FIELD, SearchTerms, distinct_share
from quorank.silos.sketch.hashing import Hashing

LEDGER, NUMBERS = "search.sqlite", "numbers.json"
"""Ledger of what others were told, and which document has which number in searches: both for the owner's eyes."""
MOST_SEARCHES = 64
"""Searches of a party that wait for answers at the same time."""
Seal = Callable[[str, Kind, bytes], int]
"""Seal a text for another party and send it: the number of its envelope."""


class PartySearches:
    """Searches of one party, its own and those of the others that it answers."""

    def __init__(
        self,
        store: SiloStore,
        folder: Path,
        name: str,
        terms: SiloTerms,
        holding: Holding,
        secrets: Secrets,
        hashing_key: bytes,
        statistics: Hashing,
        seal: Seal,
    ) -> None:
        assert terms.search is not None
        self.store, self.folder, self.name, self.terms, self.holding = store, folder, name, terms, holding
        self.settings: SearchTerms = terms.search
        self._secrets, self._hashing_key, self._hashing_of_statistics, self._seal = (
            secrets, hashing_key, statistics, seal
        )  # fmt: skip

    # ------------------------------------------------------------ what both sides need

    @cached_property
    def _hashing(self) -> Hashing:
        if self.terms.seed is not None:
            return search_hashing(self.terms.seed, self.settings)
        return Hashing(derive(self._hashing_key, "field", FIELD.encode()), 1, self.settings.columns)

    @cached_property
    def _statistics(self) -> SharedStatistics:
        raw = self.store.fact("sum")
        require(raw is not None, "silo-search.too-early", "the group has not added up its statistics; search later")
        total = np.frombuffer(raw or b"", dtype="<u4").astype(np.uint32)
        return read_total(total, self._hashing_of_statistics, self.terms.protocol.statistics_epsilon)

    @cached_property
    def owner(self) -> SearchOwner:
        """This party as others search it."""
        seed = self.terms.seed
        secret = self._secrets.search if seed is None else seeded_owner_secret(seed, self.name)
        ledger = SearchLedger(self.name, self.folder / LEDGER, salt=None if seed is None else bytes(16))
        distinct = distinct_share(self._statistics(())[0])
        documents = self.holding.documents
        owner = SearchOwner(self.name, documents, self._hashing, secret, self.settings, ledger, distinct=distinct)
        numbers = zip(owner.table.numbers.tolist(), owner.table.rows.tolist(), strict=True)
        told = {str(number): documents.ids[row] for number, row in numbers}
        write_whole(self.folder / NUMBERS, json.dumps(told), private=True)
        return owner

    @cached_property
    def asker(self) -> SearchAsker:
        """This party as it searches the others."""
        seed = self.terms.seed
        key = self._secrets.obfuscation_key if seed is None else seeded_secret(seed, f"search decoys {self.name}")
        asker = SearchAsker(
            self.name,
            self.holding.documents,
            self._hashing,
            key,
            self.settings,
            self._statistics,
            _KeptDecoys(self.store),
        )
        for other in self._others:
            told = self.store.fact(f"described {other}")
            if told is not None:
                asker.receive_catalogue(other, told)
        return asker

    @property
    def _others(self) -> tuple[str, ...]:
        return tuple(party for party in self.terms.parties if party != self.name)

    def close(self) -> None:
        """Let go of the ledger."""
        if "owner" in self.__dict__:
            self.owner.ledger.close()

    # ------------------------------------------------------------ as an owner

    def answer(self, asker: str, number: int, text: bytes) -> None:
        """Answer a search of another party, or say why not; before the first answer tell it the documents' lengths."""
        try:
            answer = self.owner.answer(asker, text)
        except BadInput as error:
            self._seal(asker, Kind.REFUSE, Refuse(number, str(error)).to_bytes())
            return
        if not self.store.note(f"describes {asker}", False):
            self._seal(asker, Kind.DESCRIPTION, self.owner.catalogue())
            self.store.set_note(f"describes {asker}", True)
        self._seal(asker, Kind.FOUND, answer)

    # ------------------------------------------------------------ as an asker

    @property
    def open(self) -> dict[str, Any]:
        """Searches that wait for answers, by their names."""
        found: dict[str, Any] = self.store.note("searches", {})
        return found

    def begin(self, name: str, query: str, top: int, until: float) -> None:
        """Ask all others, inside a transaction; a query that cannot be asked is refused, and nothing is sent.

        `until` is when the result is wanted even if somebody has not answered, in seconds since 1970.
        """
        waiting = self.open
        said = f"{len(waiting)} searches wait for answers already; ask again when they are done"
        require(len(waiting) < MOST_SEARCHES, "silo-search.too-many", said)
        asked = self._asked(query)
        numbers = {other: self._seal(other, Kind.SEARCH, asked.sent) for other in self._others}
        digest = question_digest(asked.sent).hex()
        waiting[name] = {
            "query": query, "top": top, "until": until, "digest": digest, "sent": numbers, "found": {}, "refused": {},
        }  # fmt: skip
        self.store.set_note("searches", waiting)

    def _asked(self, query: str) -> AskedQuery:
        """Return the question about a query, the same whenever it is made."""
        words = self.terms.setting.tokeniser.tokenise(query)
        require(words, "silo-search.no-term", "nothing is left of the query without stop words; ask with other words")
        return self.asker.question(words)

    def receive_description(self, owner: str, text: bytes) -> None:
        """Keep the numbers and noisy lengths of an owner's documents."""
        self.asker.receive_catalogue(owner, text)
        self.store.set_fact(f"described {owner}", text)

    def receive_answer(self, owner: str, text: bytes) -> None:
        """Keep an owner's answer with the search that it belongs to; one that nobody waits for is refused."""
        waiting = self.open
        for search in waiting.values():
            waits = owner not in search["found"] and owner not in search["refused"]
            if waits and search["digest"] == text[4:12].hex():
                self.asker.read(self._asked(search["query"]), text, owner)
                search["found"][owner] = text.hex()
                self.store.set_note("searches", waiting)
                return
        raise BadInput("silo-answer.unexpected", f"{owner} answers a search that nobody is waiting for")

    def receive_refusal(self, owner: str, refuse: Refuse) -> None:
        """Keep why an owner does not answer."""
        waiting = self.open
        for search in waiting.values():
            if search["sent"].get(owner) == refuse.asked and owner not in search["found"]:
                search["refused"][owner] = refuse.reason
                self.store.set_note("searches", waiting)
                return
        raise BadInput("silo-answer.unexpected", f"{owner} refuses a search that nobody is waiting for")

    def results(self, now: float) -> list[tuple[str, GroupSearchResult]]:
        """Return the searches that all others have answered or refused, or whose time is over."""
        return [
            (name, self._result(search))
            for name, search in self.open.items()
            if search["until"] <= now or len(search["found"]) + len(search["refused"]) == len(self._others)
        ]

    def finish(self, name: str) -> None:
        """Forget a search, inside a transaction: its result was handed over."""
        waiting = self.open
        waiting.pop(name, None)
        self.store.set_note("searches", waiting)

    def _result(self, search: dict[str, Any]) -> GroupSearchResult:
        asked = self._asked(search["query"])
        found = self.asker.own(asked.terms)
        parties = {}
        for owner, text in search["found"].items():
            raw = bytes.fromhex(text)
            found += self.asker.read(asked, raw, owner)
            parties[owner] = {"question_bytes": len(asked.sent), "answer_bytes": len(raw)}
        missing = {
            other: "has not answered yet"
            for other in self._others
            if other not in search["found"] and other not in search["refused"]
        }
        ranked = tuple(rank_found(found, search["top"]))
        epsilon = self.terms.protocol.statistics_epsilon
        return GroupSearchResult(self.name, asked.terms, ranked, dict(search["refused"]) | missing, parties, epsilon)


class _KeptDecoys(MutableMapping[tuple[str, ...], tuple[tuple[str, ...], ...]]):
    """Decoys of every query that was ever asked, in the party's store: the same query is always hidden alike."""

    def __init__(self, store: SiloStore) -> None:
        self._store = store

    @staticmethod
    def _name(terms: tuple[str, ...]) -> str:
        return "decoys " + " ".join(terms)

    def __getitem__(self, terms: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        found = self._store.note(self._name(terms))
        if found is None:
            raise KeyError(terms)
        return tuple(tuple(bundle) for bundle in found)

    def __setitem__(self, terms: tuple[str, ...], bundles: tuple[tuple[str, ...], ...]) -> None:
        self._store.set_note(self._name(terms), [list(bundle) for bundle in bundles])

    def __delitem__(self, terms: tuple[str, ...]) -> None:
        self._store.drop_fact(self._name(terms))

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        found = self._store.rows("SELECT name FROM facts WHERE name LIKE 'decoys %' ORDER BY name")
        return iter([tuple(str(name).split()[1:]) for (name,) in found])

    def __len__(self) -> int:
        return int(self._store.rows("SELECT count(*) FROM facts WHERE name LIKE 'decoys %'")[0][0])

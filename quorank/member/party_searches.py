"""A party's searches over a network: its questions, its answers to the others, and the ranking of what they find.

Searches begin when the group has its ranker, with the session's keys. Before its first answer an owner sends the asker the
noisy lengths of its documents. Questions and answers are stored, so a party that is killed continues; an answer that
was charged but not sent costs nothing when it is computed again, since disclosed entries are free.

The party's own people leave searches as files in its folder (`FolderDesk`), from which the process that runs the party
takes them: `NAME.json` appears atomically, and `NAME.found.json` replaces it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from quorank.errors import BadInput, require
from quorank.files.atomic import write_whole
from quorank.files.codec import Length, Range
from quorank.files.documents import json_bytes, read_json
from quorank.member.party_keys import Secrets
from quorank.protocol.certificates import write_private
from quorank.silos.envelopes import Kind, Refuse
from quorank.silos.holdings import Holding
from quorank.silos.search.asker import AskedQuery, SearchAsker
from quorank.silos.search.decoys import Bundle
from quorank.silos.search.in_process import GroupSearchResult
from quorank.silos.search.ledger import REFUSED, SearchLedger
from quorank.silos.search.messages import SearchAnswer, question_digest
from quorank.silos.search.owner import SearchOwner
from quorank.silos.search.settings import SearchTerms, distinct_share
from quorank.silos.session.agreement import AgreedKeys
from quorank.silos.session.streams import SiloStore
from quorank.silos.training.ranked_search import RankedSearch
from quorank.silos.training.statistics import SharedStatistics

LEDGER, NUMBERS = (
    "search.sqlite",
    "numbers.json",
)  # private files: entries disclosed to others, and numbers of documents
SPENT = "spent.json"  # private file: what this party has spent at each owner, by the owner's last answer
TEMPORARY = ("file.busy", "file.unwritable")  # error codes after which the same message is handled later
MOST_SEARCHES = 64  # limit on the pending searches of a party
Seal = Callable[[str, Kind, bytes], int]  # seals and sends a body to another party; returns the envelope's number


@dataclass(frozen=True)
class SearchRequest:
    """Search of a party's own people."""

    name: Annotated[str, Length(64)]
    query: Annotated[str, Length(10_000)]
    top: Annotated[int, Range(1, 1000)] = 10  # documents wanted
    patience: float = 60.0  # time to wait for answers, seconds


@dataclass(frozen=True)
class FolderDesk:
    """Searches in one party's folder."""

    folder: Path

    def leave(self, query: str, top: int, patience: float) -> str:
        """Add a search and return its name."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        request = SearchRequest(secrets.token_hex(8), query, top, patience)
        write_private(self.folder / f"{request.name}.json", json_bytes(request))
        return request.name

    def wanted(self) -> list[SearchRequest]:
        """Return the pending searches in the order of their names; other files are skipped."""
        if not self.folder.is_dir():
            return []
        found = []
        files = sorted(file for file in self.folder.glob("*.json") if not file.name.endswith(".found.json"))
        for file in files[:MOST_SEARCHES]:
            with contextlib.suppress(BadInput, OSError):
                request = read_json(file, SearchRequest)
                if file.stem == request.name:
                    found.append(request)
        return found

    def hand_out(self, name: str, found: Mapping[str, Any]) -> None:
        """Write the result of a search, then delete the search."""
        write_private(self.folder / f"{name}.found.json", json_bytes(dict(found)))
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def fetch(self, name: str) -> dict[str, Any] | None:
        """Take a result; None while it is pending."""
        file = self.folder / f"{name}.found.json"
        if not file.is_file():
            return None
        found: dict[str, Any] = read_json(file)
        file.unlink(missing_ok=True)
        return found

    def withdraw(self, name: str) -> None:
        """Delete a search and its result."""
        for file in (f"{name}.json", f"{name}.found.json"):
            (self.folder / file).unlink(missing_ok=True)


class PartySearches:
    """Searches of one party, and those of the others that it answers."""

    def __init__(
        self, store: SiloStore, folder: Path, holding: Holding, secrets: Secrets, keys: AgreedKeys, seal: Seal
    ) -> None:
        self.store, self.folder, self.holding, self.terms, self.name = (
            store, folder, holding, secrets.terms, secrets.name
        )  # fmt: skip
        assert self.terms.search is not None
        self.settings: SearchTerms = self.terms.search
        self._secrets, self._keys, self._seal = secrets, keys, seal
        self._hashing = secrets.search_hashing(keys, self.settings)
        self._others = tuple(party for party in self.terms.parties if party != self.name)

    @cached_property
    def _statistics(self) -> SharedStatistics:
        raw = self.store.fact("sum")
        require(raw is not None, "silo-search.too-early", "the group's statistics are not complete; search later")
        total = np.frombuffer(raw or b"", dtype="<u4").astype(np.uint32)
        return SharedStatistics(self._secrets.statistics_hashing(self._keys), total, self.terms.statistics_epsilon)

    @cached_property
    def owner(self) -> SearchOwner:
        """This party as the others search it."""
        salt = None if self.terms.seed is None else bytes(16)
        ledger = SearchLedger(self.name, self.folder / LEDGER, salt=salt)
        distinct, secret = distinct_share(self._statistics(())[0]), self._secrets.search
        askers = len(self._others)
        owner = SearchOwner(
            self.holding, self._hashing, secret, self.settings, ledger, askers=askers, distinct=distinct
        )
        numbers = zip(owner.table.numbers.tolist(), owner.table.rows.tolist(), strict=True)
        told = {str(number): self.holding.documents.ids[row] for number, row in numbers}
        write_whole(self.folder / NUMBERS, json.dumps(told), private=True)
        return owner

    @cached_property
    def _decoys(self) -> dict[Bundle, tuple[Bundle, ...]]:
        """Decoys of every query asked so far: the same query always has the same decoys."""
        return dict(self.store.note("decoys", list[tuple[Bundle, tuple[Bundle, ...]]], []))

    @cached_property
    def asker(self) -> SearchAsker:
        """This party as it searches the others."""
        secret = self._secrets.decoys
        asker = SearchAsker(self.holding, self._hashing, secret, self.settings, self._statistics, self._decoys)
        for other in self._others:
            told = self.store.fact(f"described {other}")
            if told is not None:
                asker.receive_catalogue(other, told)
        return asker

    @cached_property
    def _own_search(self) -> RankedSearch | None:
        """Search of the own documents by the group's ranker; None where that needs the embedding of a new query."""
        raw, setting = self.store.fact("ranker"), self.terms.setting
        if raw is None or "embedding" in setting.searched.evidence:
            return None
        ranker = self.terms.saved_ranker(np.frombuffer(raw, dtype="<f8").astype(np.float64))
        return RankedSearch(self.holding, setting.searched, ranker, setting.features)

    def close(self) -> None:
        """Close the ledger."""
        if "owner" in self.__dict__:
            self.owner.ledger.close()

    # ------------------------------------------------------------ as an owner

    def answer(self, asker: str, number: int, text: bytes) -> None:
        """Answer a search of another party, or refuse it without a reason."""
        try:
            answer = self.owner.answer(asker, text)
        except BadInput as error:
            if error.code in TEMPORARY:
                raise
            self._seal(asker, Kind.REFUSE, Refuse(number).to_bytes())
            return
        if not self.store.note(f"describes {asker}", default=False):
            self._seal(asker, Kind.DESCRIPTION, self.owner.catalogue())
            self.store.set_note(f"describes {asker}", True)
        self._seal(asker, Kind.FOUND, answer)

    # ------------------------------------------------------------ as an asker

    @property
    def open(self) -> dict[str, Any]:
        """Pending searches by name."""
        found: dict[str, Any] = self.store.note("searches", default={})
        return found

    def begin(self, name: str, query: str, top: int, until: float) -> None:
        """Ask all others, inside a transaction; the result is due at `until`, also without some of the answers."""
        waiting = self.open
        said = f"{len(waiting)} searches are pending; ask again when they are done"
        require(len(waiting) < MOST_SEARCHES, "silo-search.too-many", said)
        asked = self._asked(query)
        self.store.set_note("decoys", [*self._decoys.items()])
        numbers = {other: self._seal(other, Kind.SEARCH, asked.sent) for other in self._others}
        digest = question_digest(asked.sent).hex()
        waiting[name] = {
            "query": query, "top": top, "until": until, "digest": digest, "sent": numbers, "found": {}, "refused": {},
        }  # fmt: skip
        self.store.set_note("searches", waiting)

    def _asked(self, query: str) -> AskedQuery:
        """Return the question about a query, the same every time."""
        words = self.terms.setting.tokeniser.tokenise(query)
        require(words, "silo-search.no-term", "the query has only stop words; use other words")
        return self.asker.question(words)

    def receive_description(self, owner: str, text: bytes) -> None:
        """Store the numbers and noisy lengths of an owner's documents."""
        self.asker.receive_catalogue(owner, text)
        self.store.set_fact(f"described {owner}", text)

    def receive_answer(self, owner: str, text: bytes) -> None:
        """Store an owner's answer with its search; unexpected answers are refused."""
        with self._answered(owner, lambda search: search["digest"] == text[4:12].hex()) as search:
            asked = self._asked(search["query"])
            self.asker.read(asked, text, owner)
            search["found"][owner] = text.hex()
            spent: dict[str, dict[str, int]] = self.store.note("spent", default={})
            spent[owner] = self._spending(asked, owner, text)
            self.store.set_note("spent", spent)
            write_whole(self.folder / SPENT, json.dumps(spent), private=True)

    def _spending(self, asked: AskedQuery, owner: str, text: bytes) -> dict[str, int]:
        """Return what this party has spent at an owner by its answer."""
        return asdict(SearchAnswer.from_bytes(text, owner, asked.sent, self.settings).spending)

    def receive_refusal(self, owner: str, refuse: Refuse) -> None:
        """Note that an owner does not answer."""
        with self._answered(owner, lambda search: search["sent"].get(owner) == refuse.asked) as search:
            search["refused"][owner] = f"{owner} {REFUSED}"

    @contextlib.contextmanager
    def _answered(self, owner: str, fits: Callable[[dict[str, Any]], bool]) -> Iterator[dict[str, Any]]:
        """Yield the pending search that an owner answers, and store its changes."""
        waiting = self.open
        searches = (s for s in waiting.values() if owner not in s["found"] and owner not in s["refused"] and fits(s))
        found = next(searches, None)
        if found is None:
            raise BadInput("silo-answer.unexpected", f"{owner} answers or refuses a search that is not pending")
        yield found
        self.store.set_note("searches", waiting)

    def results(self, now: float) -> list[tuple[str, GroupSearchResult]]:
        """Return the searches that all others have answered or refused, or whose time is up."""
        return [
            (name, self._result(search))
            for name, search in self.open.items()
            if search["until"] <= now or len(search["found"]) + len(search["refused"]) == len(self._others)
        ]

    def finish(self, name: str) -> None:
        """Delete a search, inside a transaction, after its result was delivered."""
        waiting = self.open
        waiting.pop(name, None)
        self.store.set_note("searches", waiting)

    def _result(self, search: dict[str, Any]) -> GroupSearchResult:
        asked = self._asked(search["query"])
        answers = {owner: bytes.fromhex(text) for owner, text in search["found"].items()}
        told = {
            name: {"question_bytes": len(asked.sent), "answer_bytes": len(raw)} | self._spending(asked, name, raw)
            for name, raw in answers.items()
        }
        missing = {
            other: "has not answered yet"
            for other in self._others
            if other not in search["found"] and other not in search["refused"]
        }
        own = self._own_search
        rows = [] if own is None else [row for row, _ in own.ranked(asked.terms)]
        ranked = self.asker.ranked(asked, answers, search["top"], rows)
        epsilon, refused = self.terms.statistics_epsilon, dict(search["refused"]) | missing
        return GroupSearchResult(self.name, asked.terms, ranked, refused, told, epsilon, own is not None)

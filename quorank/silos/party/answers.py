"""A party's memory on disk: its questions to the others, the answers to them, and the instances made of those.

The envelopes between two parties are numbered as in one process (`silos.protocol.exchange`), where party after party asks:
first the catalogues, then what the party earlier in the group asks, then what the later one asks. These numbers address the
noise of a rehearsal and name the question that an answer belongs to.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Integers
from quorank.protocol import frames
from quorank.silos.learning.augmentation import TopDocuments, augmented_instances
from quorank.silos.learning.exchange import announced_lengths, read_top_documents
from quorank.silos.learning.holdings import FIELDS, Holding
from quorank.silos.learning.instances import QuerySplit
from quorank.silos.learning.shared_statistics import read_total, vector_length
from quorank.silos.party.training import InstanceTurns, Masks, PartyTraining, SumTurns
from quorank.silos.protocol.asker import Asker, Question
from quorank.silos.protocol.messages import Catalogue, Refuse
from quorank.silos.protocol.records import read, table_of, whole_numbers
from quorank.silos.protocol.stream_store import SiloStore
from quorank.silos.protocol.terms import SiloTerms
from quorank.silos.sketch.hashing import Hashing

MOST_QUESTIONS = 100_000


class ReceivedAnswers:
    """One party's questions and the answers to them."""

    def __init__(
        self, store: SiloStore, terms: SiloTerms, number: int, holding: Holding, asker: Asker, draws: int
    ) -> None:
        self.store, self.terms, self.number, self.holding = store, terms, number, holding
        self.group, self._asking, self._draws = asker.group, asker, draws
        self._questions: dict[int, Question] = {}

    # ------------------------------------------------------------ asking

    @cached_property
    def _split(self) -> QuerySplit:
        return self.terms.setting.divide(list(self.holding.grades), self._draws, self.number)

    @cached_property
    def batches(self) -> list[tuple[str, tuple[str, ...]]]:
        """(field, terms) of each envelope that every other party is asked with, in order."""
        if not self.terms.asks:
            return []
        asked = self.holding.terms_of(self.terms.setting.asks(self._split))
        return [(name, batch) for name in FIELDS for batch in self._asking.batches(asked, name)]

    def question(self, batch: int) -> Question:
        """The question of one envelope; hidden in the same way whenever it is made."""
        if batch not in self._questions:
            field, terms = self.batches[batch]
            self._questions[batch] = self._asking.question(terms, field)
        return self._questions[batch]

    def _asks(self) -> list[int]:
        found: list[int] = self.store.note("asks")
        return found

    def _number(self, asker: int, owner: int, count: int) -> int:
        """Of the asker's question number `count` (from 1) to this owner."""
        return len(FIELDS) + count + (self._asks()[owner] if asker > owner else 0)

    def question_number(self, asker: str, number: int) -> int:
        """Another party asks, in its envelope `number`: the number of its question."""
        count = self.store.note(f"asked {asker}", 0) + 1
        place = self.terms.number(asker)
        require(count <= self._asks()[place], "silo-message.too-many", f"{asker} asks more than it said it would")
        self.store.set_note(f"asked {asker}", count)
        return self._number(place, self.number, count)

    # ------------------------------------------------------------ received

    @property
    def is_told(self) -> bool:
        """The sum of the statistics is there."""
        return self.store.note("asks") is not None

    @property
    def is_complete(self) -> bool:
        """All catalogues and answers are there; where nothing is asked, the sum of the statistics."""
        heard, expected = self._heard()
        return heard == expected and self.is_told

    def _heard(self) -> tuple[int, int]:
        others = self.group.others(self.terms.parties[self.number])
        answers = sum(self.store.note(f"heard {other}", 0) for other in others)
        catalogues = self.store.rows("SELECT count(*) FROM facts WHERE name LIKE 'catalogue %'")[0][0]
        fields = len(FIELDS) if self.terms.asks else 0
        return answers + catalogues, len(others) * (len(self.batches) + fields)

    def state(self) -> str:
        """How much was heard, in words."""
        heard, expected = self._heard()
        return f"{heard:,} of {expected:,} messages of the others have come"

    def take_sum(self, record: bytes) -> None:
        """The sum of all tables, and how many envelopes with questions each party sends."""
        require(not self.is_told, "silo-message.repeated", "the coordinator tells the statistics a second time")
        head, (raw,) = read(record, 1)
        (asks,) = table_of(head, "asks")
        whole_numbers(asks, len(self.terms.parties), most=MOST_QUESTIONS)
        sound = asks[self.number] == len(self.batches) and len(raw) == 4 * vector_length()
        require(sound, "silo-message.statistics", "the coordinator's sum of the statistics is not of this run")
        self.store.set_note("asks", asks)
        self.store.set_fact("sum", raw)

    def take_catalogue(self, sender: str, text: bytes) -> None:
        """The documents of another party and their lengths; once a field."""
        catalogue = Catalogue.from_bytes(text, sender, self.group.fields)
        name = f"catalogue {sender} {self.group.fields[catalogue.field].name}"
        require(
            self.store.fact(name) is None, "silo-message.repeated", f"{sender} describes its documents a second time"
        )
        self.store.set_fact(name, text)

    def take_answer(self, sender: str, text: bytes) -> None:
        """The answer to the oldest question to this party that has none."""
        count = self.store.note(f"heard {sender}", 0) + 1
        require(count <= len(self.batches), "silo-message.too-many", f"{sender} answers more than it was asked")
        expected = self._number(self.number, self.terms.number(sender), count)
        sentence = f"{sender} answers another question than the next one; the answers cannot be told apart"
        require(int.from_bytes(text[:8], "little") == expected, "silo-message.order", sentence)
        field = self.batches[count - 1][0]
        protocol, parts = self.terms.protocol, []
        for heard in self.question(count - 1).read(text, sender):
            best = read_top_documents(heard, protocol.k, protocol.shape_of(field))
            parts += [best.documents.astype("<i8").tobytes(), best.counts.astype("<f8").tobytes()]
        self.store.set_fact(f"answer {sender} {count}", frames.pack(parts))
        self.store.set_note(f"heard {sender}", count)

    def take_refusal(self, sender: str, refuse: Refuse) -> None:
        """A party that will not answer ends the run here."""
        raise BadInput("silo-message.refused", f"{sender} gives no answer: {refuse.reason}")

    # ------------------------------------------------------------ what follows

    def training(self, hashing: Hashing, masks: Masks) -> PartyTraining:
        """Lists of the own search, or own and augmented instances; `hashing` is that of the statistics."""
        terms, setting, holding, draws = self.terms, self.terms.setting, self.holding, self._draws
        if setting.training.learns_from_sums:
            lists = setting.search_lists(holding, list(holding.grades), self._split, draws, self.number)
            return SumTurns(terms, self.number, *lists, masks, self.store)
        raw = self.store.fact("sum")
        assert raw is not None
        total = np.frombuffer(raw, dtype="<u4").astype(np.uint32)
        statistics = read_total(total, hashing, terms.protocol.statistics_epsilon)
        own, test = setting.instances(holding, list(holding.grades), self._split, statistics, draws, self.number)
        found = augmented_instances(
            setting.augment,
            _ReadAnswers(self),
            [holding] * len(terms.parties),
            self.number,
            setting.asks(self._split),
            statistics,
            setting.features,
            draws,
        )
        return InstanceTurns(terms, draws, own, found, test)

    def forget(self) -> None:
        """Inside a transaction: what the others told is not needed any more; searches need the sum of the statistics."""
        if self.terms.search is None:
            self.store.drop_fact("sum")
        self.store.rows(
            "DELETE FROM facts WHERE name LIKE 'answer %' OR name LIKE 'catalogue %' OR name LIKE 'training %'"
        )


class _ReadAnswers:
    """The answers of all owners to this party, read once."""

    def __init__(self, received: ReceivedAnswers) -> None:
        store, terms = received.store, received.terms
        self._found: dict[tuple[int, str, str], TopDocuments] = {}
        self._lengths: dict[tuple[int, str], Integers] = {}
        for other in received.group.others(terms.parties[received.number]):
            owner = terms.number(other)
            for count, (field, batch) in enumerate(received.batches, 1):
                parts = frames.unpack(store.fact(f"answer {other} {count}") or b"")
                for at, term in enumerate(batch):
                    documents = np.frombuffer(parts[2 * at], dtype="<i8").astype(np.int64)
                    counts = np.frombuffer(parts[2 * at + 1], dtype="<f8").astype(np.float64)
                    self._found[owner, field, term] = TopDocuments(documents, counts)
            told = {
                name: Catalogue.from_bytes(store.fact(f"catalogue {other} {name}") or b"", other, received.group.fields)
                for name in FIELDS
            }
            self._lengths |= {(owner, name): found for name, found in announced_lengths(told).items()}
            named = (answer.documents for (who, _, _), answer in self._found.items() if who == owner)
            sentence = f"{other} names a document that it did not describe"
            require(
                max((int(each.max(initial=-1)) for each in named), default=-1) < len(self.lengths(owner, FIELDS[0])),
                "silo-message.unknown-document",
                sentence,
            )

    def answer(self, asker: int, owner: int, field: str, term: str) -> TopDocuments:
        """Of one owner about one term."""
        return self._found[owner, field, term]

    def lengths(self, owner: int, field: str) -> Integers:
        """As the owner told them."""
        return self._lengths[owner, field]

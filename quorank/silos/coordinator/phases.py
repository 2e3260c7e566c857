"""What the coordinator of a group makes of each record: the phases of a run, without any disk or network.

Agreement, statistics, asking, validation, training, end. Which record may come follows from what was said before: a
party's envelopes are counted against what it has to say to each other one, and anything beyond that is refused.

A party may leave. Until all have asked and answered, the others need it: masks that only it can take off, answers that only
it can give, so the session stops there. From then on it goes on without the leaver: its turns pass, or the sum that it was
missing from is asked for again among the others.

A training from sums (`masked_course`) has one phase of turns, and validates behind its last one; a training as published
(`course`) validates first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles
from quorank.silos.coordinator.course import TrainingCourse
from quorank.silos.coordinator.masked_course import MaskedCourse
from quorank.silos.learning.comparison import FOLDS
from quorank.silos.learning.shared_statistics import vector_length
from quorank.silos.learning.summed_training import SumTraining
from quorank.silos.learning.validation import Tally, choose_weight
from quorank.silos.protocol.messages import Envelope, Kind
from quorank.silos.protocol.records import (
    Record,
    doubles,
    enclosed,
    kind_of,
    read,
    table_of,
    tag_of,
    whole_numbers,
    written,
)
from quorank.silos.protocol.relay import Relay, RelayTraffic
from quorank.silos.protocol.terms import SiloTerms

Put = Callable[[int, bytes], None]
"""Adds a record to what a party is told."""

PHASES = ("agreement", "statistics", "asking", "validation", "training", "end", "done")
AGREEMENT, STATISTICS, ASKING, VALIDATION, TRAINING, END, DONE = range(7)
MOST_QUESTIONS = 100_000
"""Envelopes with questions that a party may send each other one."""
MOST_SEARCHES = 1_000_000
"""Searches that a party may send each other one; owners count them by the day."""
_NOT_NOW = "a party sent what was not its turn to send; it is refused"


class Phases:
    """The state of a run. `table` is all of it but the sum of the statistics, which is in `total`."""

    def __init__(self, terms: SiloTerms, table: dict[str, Any], total: bytes | None) -> None:
        parties = terms.parties
        self.terms, self._fields = terms, len(terms.group().fields)
        self._features, self._length = len(terms.feature_names), vector_length()
        self.total = None if total is None else np.frombuffer(total, dtype=np.uint32).copy()
        self.phase: int = table.get("phase", AGREEMENT)
        self._asks: list[int | None] = table.get("asks", [None] * len(parties))
        self._rows: list[Any] = table.get("rows", [None] * len(parties))
        self._tallies: list[Any] = table.get("tallies", [None] * len(parties))
        self._weight: int = table.get("weight", 0)
        self._heard: list[dict[str, int]] = table.get("heard", [{} for _ in parties])
        self._said: list[dict[str, int]] = table.get("said", [{} for _ in parties])
        self.gone: set[int] = set(table.get("gone", []))
        ranker, course = table.get("ranker"), table.get("course")
        self.ranker = None if ranker is None else np.array(ranker)
        self.course = None if course is None else TrainingCourse.read(terms.descent, course, self.gone)
        sums = table.get("sums")
        self.sums = None if sums is None else MaskedCourse.read(*self._summed_training(), sums)
        self.relay = Relay(parties)
        for sender, receiver, kind, envelopes, size in table.get("traffic", []):
            self.relay.traffic[sender, receiver, Kind(kind)] = RelayTraffic(envelopes, size)

    def table(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "phase": self.phase,
            "asks": self._asks,
            "rows": self._rows,
            "tallies": self._tallies,
            "weight": self._weight,
            "heard": self._heard,
            "said": self._said,
            "gone": sorted(self.gone),
            "ranker": None if self.ranker is None else self.ranker.tolist(),
            "course": None if self.course is None else self.course.table(),
            "sums": None if self.sums is None else self.sums.table(),
            "traffic": [
                (sender, receiver, int(kind), way.envelopes, way.bytes)
                for (sender, receiver, kind), way in self.relay.traffic.items()
            ],
        }

    @property
    def folds(self) -> int:
        """Folds of a validation before the training: none where there is one weight, or sums are learned from."""
        setting = self.terms.setting
        return FOLDS if len(setting.augment.weights) > 1 and not setting.training.learns_from_sums else 0

    @property
    def turns(self) -> tuple[int, int]:
        """Turns of training that are done, and how many there are in all."""
        each = self.terms.turns
        planned = 2 * each if self.folds else each
        if self.phase >= END:
            return planned, planned
        if self.sums is not None:
            return self.sums.course.turn, planned
        before = planned - each if self.phase == TRAINING else 0
        return before + (0 if self.course is None else self.course.turn), planned

    # ------------------------------------------------------------ who leaves

    @property
    def blocked(self) -> bool:
        """Whether the others need what a party that has left can give no more, or there is no other."""
        left = len(self.terms.parties) - len(self.gone)
        alone = self.sums is not None and self.phase == TRAINING and left < 2  # a sum would be one party's own
        return bool(self.gone) and (self.phase < VALIDATION or left == 0 or alone)

    def leave(self, number: int, put: Put) -> None:
        """A party has left: what was waited for from it alone is over."""
        self.gone.add(number)
        if self.sums is not None and self.phase == TRAINING:
            self.sums.leave(number)
        if self.blocked:
            return
        if self.sums is not None and self.phase == TRAINING:
            self._ask_for_sums(put)
        elif self.phase in (VALIDATION, TRAINING) and self.course is not None and not self.course.done:
            if self.course.end_turn():
                self._go_on(put)
        elif self.phase == VALIDATION:
            self._choose_weight(put)
        elif self.phase == END:
            self._end()

    # ------------------------------------------------------------ who has something to say

    def delivered(self, number: int, tag: str) -> None:
        """A party has this record."""
        self._heard[number][tag] = self._heard[number].get(tag, 0) + 1

    def owes(self, number: int) -> bool:
        """Whether a party has something to say, after what it was told."""
        heard, said = self._heard[number].get, self._said[number].get
        others, asks = len(self.terms.parties) - 1, self._asks[number] or 0
        described = others * (self._fields if self.terms.asks else 0)

        def behind(what: str, due: int) -> bool:
            return said(what, 0) < due

        told = heard("SUM", 0) == 1
        complete = told and heard("CATALOGUE", 0) == described
        complete = complete and heard("ANSWER", 0) == asks * others
        return (
            behind("HELLO", others)
            or (heard("HELLO", 0) == others and behind("CONTRIBUTION", others))
            or (heard("CONTRIBUTION", 0) == others and behind("MASKED", 1))
            or (told and (behind("CATALOGUE", described) or behind("ASK", asks * others)))
            or said("ANSWER", 0) + said("REFUSE", 0) < heard("ASK", 0)
            or (complete and behind("ROWS", 1))
            or behind("LEARNED", heard("LEARN", 0))
            or behind("TALLY", heard("JUDGE", 0))
            or behind("KEPT", heard("RANKER", 0))
        )

    # ------------------------------------------------------------ what is said

    def handle(self, number: int, record: bytes, put: Put) -> None:
        """Take one record of a party; `BadInput` leaves this state to be thrown away."""
        kind = kind_of(record)
        handlers = {
            Record.ENVELOPE: self._envelope,
            Record.MASKED: self._masked,
            Record.ROWS: self._counted,
            Record.LEARNED: self._learned,
            Record.TALLY: self._tallied,
            Record.KEPT: self._kept,
        }
        require(kind in handlers, "silo-message.kind", "a party sent what only a coordinator sends; it is refused")
        handlers[kind](number, record, put)
        tag = tag_of(record)
        self._said[number][tag] = self._said[number].get(tag, 0) + 1

    def _everyone(self, record: bytes, put: Put) -> None:
        for number in range(len(self.terms.parties)):
            if number not in self.gone:
                put(number, record)

    def _envelope(self, number: int, record: bytes, put: Put) -> None:
        raw = record[1:]
        envelope = Envelope.from_bytes(raw)
        receiver, _ = self.relay.pass_on(raw, self.terms.parties[number])
        way = (envelope.sender, receiver)
        counts = {kind: self.relay.traffic.get((*way, kind), RelayTraffic()).envelopes for kind in Kind}
        asked = self.relay.traffic.get((receiver, envelope.sender, Kind.ASK), RelayTraffic()).envelopes
        begun = self.phase == ASKING
        most = {
            Kind.HELLO: 1,
            Kind.CONTRIBUTION: 1,
            Kind.CATALOGUE: self._fields if begun and self.terms.asks else 0,
            Kind.ASK: (self._asks[number] or 0) if begun else 0,
            Kind.ANSWER: asked - counts[Kind.REFUSE],
            Kind.REFUSE: asked - counts[Kind.ANSWER],
        }
        if self.phase == DONE and self.terms.search is not None:
            searched = self.relay.traffic.get((receiver, envelope.sender, Kind.SEARCH), RelayTraffic()).envelopes
            most |= {
                Kind.SEARCH: MOST_SEARCHES,
                Kind.DESCRIPTION: 1,
                Kind.FOUND: searched - counts[Kind.REFUSE] + asked,
                Kind.REFUSE: searched + asked - counts[Kind.FOUND] - counts[Kind.ANSWER],
            }
        require(counts[envelope.kind] <= most.get(envelope.kind, 0), "silo-message.phase", _NOT_NOW)
        put(self.terms.number(receiver), enclosed(raw))
        others = len(self.terms.parties) - 1
        sent = sum(way.envelopes for (_, _, k), way in self.relay.traffic.items() if k is Kind.CONTRIBUTION)
        if self.phase == AGREEMENT and sent == others * (others + 1):
            self.phase = STATISTICS

    def _masked(self, number: int, record: bytes, put: Put) -> None:
        require(self.phase in (AGREEMENT, STATISTICS) and self._asks[number] is None, "silo-message.phase", _NOT_NOW)
        head, (raw,) = read(record, 1)
        (asks,) = whole_numbers(table_of(head, "asks"), 1, most=MOST_QUESTIONS)
        require(
            len(raw) == 4 * self._length, "silo-message.shape", "the tables of a party have another size than agreed"
        )
        own = np.frombuffer(raw, dtype="<u4").astype(np.uint32)
        self.total = own if self.total is None else self.total + own
        self._asks[number] = asks
        if None in self._asks:
            return
        self.phase = ASKING
        self._everyone(written(Record.SUM, {"asks": self._asks}, self.total.astype("<u4")), put)

    def _counted(self, number: int, record: bytes, put: Put) -> None:
        require(self.phase == ASKING and self._rows[number] is None, "silo-message.phase", _NOT_NOW)
        head, _ = read(record)
        if self.terms.setting.training.learns_from_sums:
            require(head is None, "silo-message.shape", "a party tells of instances where sums are learned from")
            self._rows[number] = {}
            if None not in self._rows:
                self._begin_sums(put)
            return
        weights = max(1, len(self.terms.setting.augment.weights))
        kept, models, final = table_of(head, "kept", "models", "final")
        self._rows[number] = {
            "kept": whole_numbers(kept, self.folds),
            "models": whole_numbers(models, self.folds * weights),
            "final": whole_numbers(final, weights),
        }
        if None in self._rows:
            return
        folds = self._used()
        if not folds:
            self._begin_training(0, put)
            return
        rows = [[own["models"][model] for model in self._models()] for own in self._rows]
        self.phase = VALIDATION
        self.course = TrainingCourse.begin(self.terms.descent, rows, self._features, self.gone)
        self._ask_to_learn(put)

    # ------------------------------------------------------------ sums

    def _summed_training(self) -> tuple[SumTraining, Doubles]:
        setting = self.terms.setting
        return setting.from_sums, setting.searched.prior_direction()

    def _begin_sums(self, put: Put) -> None:
        present = [n for n in range(len(self.terms.parties)) if n not in self.gone]
        training, w0 = self._summed_training()
        self.phase = TRAINING
        self.sums = MaskedCourse(training.course(w0), present)
        self._ask_for_sums(put)

    def _ask_for_sums(self, put: Put) -> None:
        assert self.sums is not None
        asked = self.sums.course.request
        head = {"turn": self.sums.sums, "among": self.sums.among, "asked": dict(asked.head)}
        self._everyone(written(Record.JUDGE if asked.judging else Record.LEARN, head, asked.numbers.astype("<f8")), put)

    def _summed(self, number: int, record: bytes, put: Put) -> None:
        """A party's masked part of a sum."""
        sums = self.sums
        require(sums is not None and self.phase == TRAINING, "silo-message.phase", _NOT_NOW)
        assert sums is not None
        head, (raw,) = read(record, 1)
        turn, among = table_of(head, "turn", "among")
        whole_numbers(among, most=len(self.terms.parties))
        if len(among) > len(sums.among):
            return  # of a roster that somebody has left since
        due = [turn, among] == [sums.sums, sums.among] and number in sums.among and number not in sums.answered
        due = due and (kind_of(record) is Record.TALLY) == sums.course.request.judging
        require(due, "silo-message.phase", _NOT_NOW)
        sentence = "the sums of a party have another size than agreed"
        require(len(raw) == 8 * sums.course.length, "silo-message.shape", sentence)
        if not sums.take(number, np.frombuffer(raw, dtype="<u8").astype(np.uint64)):
            return
        if sums.ranker is None:
            self._ask_for_sums(put)
        else:
            self._hand_out(sums.ranker, put)

    def _hand_out(self, ranker: Doubles, put: Put) -> None:
        self.phase, self.ranker, self.sums, self.course = END, ranker, None, None
        self._everyone(written(Record.RANKER, None, ranker.astype("<f8")), put)

    # ------------------------------------------------------------ turns on instances

    def _used(self) -> list[int]:
        """The folds without which somebody has a list left to learn from."""
        return [fold for fold in range(self.folds) if any(own["kept"][fold] for own in self._rows)]

    def _models(self) -> list[int]:
        """The numbers of the rankers of this stage: by fold and weight, or of the weight that was chosen."""
        weights = len(self.terms.setting.augment.weights)
        if self.phase >= TRAINING:
            return [self._weight]
        return [fold * weights + weight for fold in self._used() for weight in range(weights)]

    def _begin_training(self, weight: int, put: Put) -> None:
        self._weight, self.phase = weight, TRAINING
        rows = [[own["final"][weight]] for own in self._rows]
        self.course = TrainingCourse.begin(self.terms.descent, rows, self._features, self.gone)
        self.course.end_turn()  # where it is a leaver's
        self._go_on(put)

    def _ask_to_learn(self, put: Put) -> None:
        assert self.course is not None
        names = self._models()
        for party, plays in self.course.plays().items():
            if party in self.gone:
                continue
            models = [model for model, _ in plays]
            head = {
                "stage": self.phase - VALIDATION,
                "turn": self.course.turn,
                "models": [names[model] for model in models],
                "clients": [client for _, client in plays],
            }
            put(party, written(Record.LEARN, head, self.course.thetas[models].astype("<f8")))

    def _learned(self, number: int, record: bytes, put: Put) -> None:
        if self.terms.setting.training.learns_from_sums:
            self._summed(number, record, put)
            return
        head, (raw,) = read(record, 1)
        course, place = self.course, table_of(head, "stage", "turn")
        sentence = _NOT_NOW
        require(
            course is not None and not course.done and place == [self.phase - VALIDATION, course.turn],
            "silo-message.phase",
            sentence,
        )
        assert course is not None
        models = len(course.plays().get(number, []))
        if course.take(number, doubles(raw, models, self._features + 1)):
            self._go_on(put)

    def _go_on(self, put: Put) -> None:
        """A turn is over, or a training begins: the next turn, or what follows the last one."""
        course = self.course
        assert course is not None
        if not course.done:
            self._ask_to_learn(put)
        elif self.phase == VALIDATION:
            thetas = np.ascontiguousarray(course.thetas[:, :-1]).astype("<f8")
            self._everyone(written(Record.JUDGE, {"folds": self._used()}, thetas), put)
        else:
            self._hand_out(course.thetas[0, :-1].copy(), put)

    def _tallied(self, number: int, record: bytes, put: Put) -> None:
        if self.terms.setting.training.learns_from_sums:
            self._summed(number, record, put)
            return
        waits = self.phase == VALIDATION and self.course is not None and self.course.done
        require(waits and self._tallies[number] is None, "silo-message.phase", _NOT_NOW)
        head, (gains, squares) = read(record, 2)
        (lists,) = whole_numbers(table_of(head, "lists"), 1)
        weights = self.terms.setting.augment.weights
        sums = [doubles(raw, len(weights)).tolist() for raw in (gains, squares)]
        self._tallies[number] = [lists, *sums]
        self._choose_weight(put)

    def _choose_weight(self, put: Put) -> None:
        """Begin the last training with the weight that the tallies tell for, once all have told theirs."""
        if any(one is None and number not in self.gone for number, one in enumerate(self._tallies)):
            return
        weights, told = self.terms.setting.augment.weights, [one for one in self._tallies if one is not None]
        tallies = [Tally(n, np.array(first), np.array(second)) for n, first, second in told]
        self._begin_training(weights.index(choose_weight(weights, tallies)), put)

    def _kept(self, number: int, record: bytes, put: Put) -> None:
        require(self.phase == END and not self._said[number].get("KEPT"), "silo-message.phase", _NOT_NOW)
        self._end(number)

    def _end(self, number: int | None = None) -> None:
        """All is done once everybody has the ranker, `number` being the one that says so now."""
        if all(said.get("KEPT") for n, said in enumerate(self._said) if n != number and n not in self.gone):
            self.phase = DONE

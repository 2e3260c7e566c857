"""A party's side of silo training: what it learns from, one turn of learning, and its metrics on held-out lists.

`SumTurns` is the side of a training from sums: all that leaves are sums over the party's lists (of derivatives, or the
histograms of a tree's level, and of gains in the end), under masks that cancel in the sum over all parties.

`InstanceTurns` is that of a training as published. A ranker of the validation is named fold·weights + weight, the last one
by its weight. What leaves: how many instances there are, parameters after a turn, and sums over held-out lists;
`silos.coordinator.course` says what these reveal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Uint64s
from quorank.silos.learning.comparison import FOLDS
from quorank.silos.learning.instances import Instances
from quorank.silos.learning.searched_lists import Figures, SearchedLists
from quorank.silos.learning.summed_training import SumRequest, TrainingMemory
from quorank.silos.learning.training import Learnable
from quorank.silos.learning.validation import held_out_ndcg, split_fold, tally_gains, weigh_augmented
from quorank.silos.protocol.records import Record, doubles, read, table_of, whole_numbers, written
from quorank.silos.protocol.terms import SiloTerms

VALIDATION, FINAL = 0, 1
_NOT_AGREED = "the coordinator asks to learn what was not agreed"
_OVER = "the coordinator asks to learn in a turn that is over"


Masks = Callable[[int, Sequence[int], int], Uint64s]
"""Sum of a party's masks with some others: by the number of the sum, those who are in it, and its length."""


class PartyTraining(Protocol):
    """What a party does in the training: tells that it is ready, learns, judges, takes the ranker and tests it."""

    def rows(self) -> bytes: ...

    def learn(self, record: bytes, last: Sequence[int]) -> tuple[bytes, list[int]]: ...

    def judge(self, record: bytes, last: Sequence[int]) -> tuple[bytes, list[int]]: ...

    def ranker(self, record: bytes) -> Doubles: ...

    def figures(self, theta: Doubles) -> Figures: ...


class SumTurns:
    """Training from sums at one party: its part of each sum over its lists as its search returns them."""

    def __init__(
        self,
        terms: SiloTerms,
        number: int,
        own: SearchedLists,
        test: SearchedLists,
        masks: Masks,
        memory: TrainingMemory,
    ) -> None:
        self.terms, self.test, self._number, self._masks = terms, test, number, masks
        training, self._w0 = terms.setting.from_sums, terms.setting.searched.prior_direction()
        self._most, self._kind = training.most_sums(len(terms.parties)), training.ranker_part
        self._answers = training.answers(own, self._w0, memory)

    def rows(self) -> bytes:
        """That it is ready; how many lists it has is in the sums."""
        return written(Record.ROWS)

    def learn(self, record: bytes, last: Sequence[int]) -> tuple[bytes, list[int]]:
        """A masked part of a sum, and (number, leavers) of it, which must come after the last."""
        return self._told(record, last, Record.LEARNED)

    def judge(self, record: bytes, last: Sequence[int]) -> tuple[bytes, list[int]]:
        """The masked part of a sum over held-out lists: again only where somebody has left since."""
        require(not last or self._place(record)[1] > last[1], "silo-message.turn", _OVER)
        return self._told(record, last, Record.TALLY)

    def ranker(self, record: bytes) -> Doubles:
        """The parameters that all parties end with."""
        found = _final(record, self._kind.size(len(self._w0)))
        self._kind.check_size(found, len(self._w0))
        return found

    def figures(self, theta: Doubles) -> Figures:
        """How the ranker, the prior and the party's own search do on its test lists; the party keeps that to itself."""
        if not self.test.n_lists:
            return {"test_lists": 0}
        (ranked,) = self.test.figures([theta], self._kind)
        prior, search = self.test.figures([self._w0, np.zeros(len(self._w0))])
        return ranked | {"prior": prior["ndcg@10"], "bm25": search["ndcg@10"], "test_lists": self.test.n_lists}

    def _place(self, record: bytes) -> tuple[int, int, list[int], Any, bytes]:
        """Number of a sum, how many have left, who is in it, what is asked, and its numbers.

        A sum over fewer than two, or without this party, would show one party's own part.
        """
        head, (raw,) = read(record, 1)
        turn, among, asked = table_of(head, "turn", "among", "asked")
        whole_numbers([turn], most=self._most)
        parties = len(self.terms.parties)
        found = whole_numbers(among, most=parties)
        sound = found == sorted(set(found)) and self._number in found and len(found) >= 2
        require(sound, "silo-message.not-agreed", "the coordinator asks for a sum that would show one party's own part")
        require(isinstance(asked, dict), "silo-message.not-agreed", _NOT_AGREED)
        return turn, parties - len(found), found, asked, raw

    def _told(self, record: bytes, last: Sequence[int], kind: Record) -> tuple[bytes, list[int]]:
        turn, left, among, asked, raw = self._place(record)
        require([turn, left] > list(last), "silo-message.turn", _OVER)
        require(len(raw) % 8 == 0, "silo-message.not-agreed", _NOT_AGREED)
        request = SumRequest(kind is Record.TALLY, asked, doubles(raw, len(raw) // 8))
        sums = self._answers.sums(request)
        # every sum has masks of its own: under the same ones two parts would show their difference
        number = 1 + (2 * turn + request.judging) * len(self.terms.parties) + left
        masks = self._masks(number, [other for other in among if other != self._number], len(sums))
        return written(kind, {"turn": turn, "among": among}, (sums + masks).astype("<u8")), [turn, left]


class InstanceTurns:
    """Training as published at one party, on its own instances and those that it found at the others."""

    def __init__(self, terms: SiloTerms, draws: int, own: Instances, found: Instances, test: SearchedLists) -> None:
        self.terms, self.own, self.found, self.test, self._draws = terms, own, found, test, draws
        self.weights: Sequence[float | None] = terms.setting.augment.weights or (None,)
        self.folds = FOLDS if len(self.weights) > 1 else 0
        self._parts = [split_fold(own, fold, FOLDS) for fold in range(self.folds)]
        self._learnable: dict[tuple[int, int], Learnable] = {}

    def _model(self, stage: int, model: int) -> Learnable:
        """What a ranker is trained on at this party."""
        if (stage, model) not in self._learnable:
            fold, weight = divmod(model, len(self.weights))
            own = self.own if stage == FINAL else self._parts[fold][0]
            self._learnable[stage, model] = Learnable(weigh_augmented(own, self.found, self.weights[weight]))
        return self._learnable[stage, model]

    def rows(self) -> bytes:
        """How many instances there are for each ranker."""
        return written(
            Record.ROWS,
            {
                "kept": [kept.n_rows for kept, _ in self._parts],
                "models": [self._model(VALIDATION, model).n_rows for model in range(self.folds * len(self.weights))],
                "final": [self._model(FINAL, model).n_rows for model in range(len(self.weights))],
            },
        )

    def learn(self, record: bytes, last: Sequence[int]) -> tuple[bytes, list[int]]:
        """One turn: what was learned, and (stage, turn), which must come after the last one."""
        terms, n = self.terms, self.own.data.n_features + 1
        head, (raw,) = read(record, 1)
        stage, turn, models, clients = table_of(head, "stage", "turn", "models", "clients")
        whole_numbers([stage], most=2)
        whole_numbers([turn], most=terms.descent.length)
        require([stage, turn] > list(last), "silo-message.turn", "the coordinator asks to learn in a turn that is over")
        count = len(self.weights) * (self.folds if stage == VALIDATION else 1)
        whole_numbers(models, most=count)
        whole_numbers(clients, len(models), most=len(terms.parties))
        require(models and len(set(models)) == len(models), "silo-message.not-agreed", _NOT_AGREED)
        thetas = doubles(raw, len(models), n)
        out = np.empty_like(thetas)
        for at, (model, client) in enumerate(zip(models, clients, strict=True)):
            own = self._model(stage, model)
            require(own.n_rows, "silo-message.not-agreed", _NOT_AGREED)
            out[at] = terms.descent.learned(thetas[at], own, turn, client, self._draws)
        place = {"stage": stage, "turn": turn}
        return written(Record.LEARNED, place, out.astype("<f8")), [stage, turn]

    def judge(self, record: bytes, last: Sequence[int]) -> tuple[bytes, list[int]]:
        """The sums over held-out lists of the rankers of a validation, once."""
        require(not last, "silo-message.turn", "the coordinator asks to judge rankers a second time")
        head, (raw,) = read(record, 1)
        (folds,) = table_of(head, "folds")
        whole_numbers(folds, most=max(self.folds, 1))
        sentence = "the coordinator asks to judge what was not agreed"
        require(self.folds and folds and len(set(folds)) == len(folds), "silo-message.not-agreed", sentence)
        thetas = doubles(raw, len(folds), len(self.weights), self.own.data.n_features)
        held = [self._parts[fold][1] for fold in folds]
        found = tally_gains(held_out_ndcg(held, [list(of_fold) for of_fold in thetas]))
        sums = (np.asarray(part).astype("<f8") for part in (found.gains, found.squares))
        return written(Record.TALLY, {"lists": found.lists}, *sums), [0]

    def ranker(self, record: bytes) -> Doubles:
        """The weights that all parties end with."""
        return _final(record, self.own.data.n_features)

    def figures(self, theta: Doubles) -> Figures:
        """How a ranker and the party's own search do on its test lists; the party keeps that to itself."""
        if not self.test.n_lists:
            return {"test_lists": 0}
        ranked, search = self.test.figures([theta, np.zeros(len(theta))])
        return ranked | {"bm25": search["ndcg@10"], "test_lists": self.test.n_lists}


def _final(record: bytes, n_features: int) -> Doubles:
    """The weights of the last record."""
    head, (raw,) = read(record, 1)
    require(head is None, "silo-message.not-agreed", "the ranker comes with something that was not agreed")
    return doubles(raw, n_features)

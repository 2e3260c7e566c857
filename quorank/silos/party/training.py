"""A party's side of silo training: its instances, one turn of learning, and its metrics on held-out lists.

A ranker of the validation is named fold·weights + weight, the last one by its weight. What leaves: how many instances
there are, parameters after a turn, and sums over held-out lists; `silos.coordinator.course` says what these reveal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quorank.arrays import Doubles
from quorank.data.ranking import RankingData
from quorank.errors import require
from quorank.silos.learning.comparison import FOLDS, Figures, evaluate_rankers
from quorank.silos.learning.instances import Instances
from quorank.silos.learning.training import Learnable
from quorank.silos.learning.validation import held_out_ndcg, split_fold, tally_gains, weigh_augmented
from quorank.silos.protocol.records import Record, doubles, read, table_of, whole_numbers, written
from quorank.silos.protocol.terms import SiloTerms

VALIDATION, FINAL = 0, 1
_NOT_AGREED = "the coordinator asks to learn what was not agreed"


class PartyTraining:
    """The instances of one party, its own and those that it found at the others."""

    def __init__(self, terms: SiloTerms, draws: int, own: Instances, found: Instances, test: RankingData) -> None:
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
        whole_numbers([turn], most=terms.training.length)
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
            out[at] = terms.training.learned(thetas[at], own, turn, client, self._draws)
        place = {"stage": stage, "turn": turn}
        return written(Record.LEARNED, place, out.astype("<f8")), [stage, turn]

    def judge(self, record: bytes) -> bytes:
        """The sums over held-out lists of the rankers of a validation."""
        head, (raw,) = read(record, 1)
        (folds,) = table_of(head, "folds")
        whole_numbers(folds, most=max(self.folds, 1))
        sentence = "the coordinator asks to judge what was not agreed"
        require(self.folds and folds and len(set(folds)) == len(folds), "silo-message.not-agreed", sentence)
        thetas = doubles(raw, len(folds), len(self.weights), self.own.data.n_features)
        held = [self._parts[fold][1] for fold in folds]
        found = tally_gains(held_out_ndcg(held, [list(of_fold) for of_fold in thetas]))
        sums = (np.asarray(part).astype("<f8") for part in (found.gains, found.squares))
        return written(Record.TALLY, {"lists": found.lists}, *sums)

    def ranker(self, record: bytes) -> Doubles:
        """The weights that all parties end with."""
        head, (raw,) = read(record, 1)
        require(head is None, "silo-message.not-agreed", "the ranker comes with something that was not agreed")
        return doubles(raw, self.own.data.n_features)

    def figures(self, theta: Doubles) -> Figures:
        """How a ranker does on this party's own test lists; the party keeps that to itself."""
        return evaluate_rankers(self.test, [theta])[0]

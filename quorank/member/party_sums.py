"""Training side of a party: its part of each sum over its lists, and the metrics of the ranker on its test lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Uint64s
from quorank.silos.session.records import Record, SumHead, decode_array, decode_sum, encode, finite_doubles
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.lists import Figures, SearchedLists
from quorank.silos.training.sums import SumRequest, check_agreed

Masks = Callable[[int, Sequence[int], int], Uint64s]
"""Sum of a party's masks with some others, by the number of the sum, these others and its length."""


class PartySums:
    """Training side of one party: its part of each sum over its lists."""

    def __init__(self, terms: SiloTerms, number: int, lists: tuple[SearchedLists, SearchedLists], masks: Masks) -> None:
        own, self.test = lists  # of the training and of the test
        self._parties, self._number, self._masks = len(terms.parties), number, masks
        training, self._w0 = terms.setting.training, terms.setting.searched.prior_direction()
        self._most, self._ranker = training.most_sums(self._parties), training.ranker_part
        self._answers = training.answers(own, self._w0)

    def part(self, record: bytes, last: Sequence[int]) -> tuple[bytes, list[int]]:
        """Return the masked part of a requested sum, and the number and leavers of that sum.

        A party takes part in each sum once: `last` is what an earlier call returned, and only a later sum, or the same one
        among fewer parties, is answered. A sum without this party or over fewer than two would show one party's part.
        """
        head, raw = decode_sum(record)
        said = "the coordinator requests a sum that would show one party's own part"
        alone = self._number not in head.among or len(head.among) < 2 or head.among[-1] >= self._parties
        require(not alone, "silo-message.not-agreed", said)
        check_agreed(head.number < self._most)
        left = self._parties - len(head.among)
        place = [head.number, left]
        require(place > list(last), "silo-message.turn", "the coordinator requests a sum that is complete")
        sums = self._answers(SumRequest(head.judging, head.asked, finite_doubles(raw)))
        # every sum has masks of its own: under the same ones two parts would show their difference
        occasion = 1 + (2 * head.number + head.judging) * self._parties + left
        masks = self._masks(occasion, [other for other in head.among if other != self._number], len(sums))
        answer = SumHead(head.number, head.among, head.judging)
        return encode(Record.PART, (sums + masks).astype("<u8"), head=answer), place

    def ranker(self, record: bytes) -> Doubles:
        """Return the final parameters."""
        found = finite_doubles(decode_array(record, 8 * self._ranker.size(len(self._w0))))
        self._ranker.check_size(found, len(self._w0))
        return found

    def figures(self, theta: Doubles) -> Figures:
        """Evaluate the ranker, the prior and the party's own search on its test lists; the results stay with the party."""
        if not self.test.n_lists:
            return {"test_lists": 0}
        (ranked,) = self.test.figures([theta], self._ranker)
        prior, search = self.test.figures([self._w0, np.zeros(len(self._w0))])
        return ranked | {"prior": prior["ndcg@10"], "bm25": search["ndcg@10"], "test_lists": self.test.n_lists}

"""Joint ranker of parties in one process: what the same parties come to over a network, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

from quorank.arrays import Doubles
from quorank.silos.learning.comparison import (
    SiloSetting,
    augment_parties,
    collect_answers,
    prepare_parties,
    sum_statistics,
    train_together,
)
from quorank.silos.learning.exchange import SiloProtocol
from quorank.silos.learning.holdings import Holding


def joint_ranker(parties: Sequence[Holding], setting: SiloSetting, protocol: SiloProtocol, seed: int) -> Doubles:
    """The ranker that all train together, alone."""
    if setting.training.learns_from_sums:
        prepared = prepare_parties(parties, setting, seed)
        return setting.from_sums.train(prepared.labelled, prepared.prior())[1]
    prepared = prepare_parties(parties, setting, seed, sum_statistics(parties, protocol, seed))
    answers, _ = collect_answers(prepared, protocol)
    return train_together(prepared, augment_parties(prepared, answers), range(len(parties)))[1]

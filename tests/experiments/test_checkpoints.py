"""A run goes on from its checkpoint to the same bits, whatever its parts carry from round to round."""

from __future__ import annotations

from pathlib import Path

import pytest
from quick_runs import run_quickly
from small_runs import experiment, files_of

from quorank.errors import Interrupted

CARRIERS = {
    "nothing": [],
    "momentum": ["federation.server=momentum"],
    "means, and what the validation split chose": [
        'federation.server={ kind = "add", average = 3.0, among = [0.0, -0.5] }'
    ],
    "the noise on a mean": [
        'federation.server={ kind = "add", average = 0.0, shrink = 1.0 }',
        'privacy={ kind = "gaussian", epsilon = 100.0 }',
    ],
    "each client's history": [
        'federation.aggregation={ kind = "nearest-neighbour-mixing", byzantine = 2, history = 0.9 }'
    ],
    "personal offsets": ["federation.personal=offset"],
    "momentum of clients": ["federation.client_momentum=0.9"],
    "the turns that were taken": [
        'federation.participation={ kind = "arrivals", enough = 6, least = 2, most = 5, rest = 1 }'
    ],
    "a clip that follows its quantile": ['privacy={ kind = "gaussian", epsilon = 100.0, quantile = 0.5, clip = 0.1 }'],
}


@pytest.mark.parametrize("what", CARRIERS)
def test_a_stopped_run_goes_on_to_the_same_bits(what: str, tmp_path: Path) -> None:
    chosen = experiment(*CARRIERS[what])
    run_quickly(chosen, tmp_path / "whole", threads=1)
    seen = 0

    def stop() -> bool:
        nonlocal seen
        seen += 1
        return seen == 5

    with pytest.raises(Interrupted):
        run_quickly(chosen, tmp_path / "stopped", threads=1, stop=stop)
    run_quickly(chosen, tmp_path / "stopped", threads=2, resume=True)
    assert files_of(tmp_path / "stopped") == files_of(tmp_path / "whole")

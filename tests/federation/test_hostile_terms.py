"""Terms of an invitation whose setting is of other types than were written: one sentence, no traceback."""

from __future__ import annotations

import pytest
from refusals import refused

from quorank.experiments.deployment import terms_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.protocol.terms import Terms


def terms() -> dict:
    experiment = Experiment.read(parse_experiment_file("[federation]\nclients = 4\nrounds = 5\n", "e.toml"))
    return terms_of(experiment, 46, 0).table()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"participation": []}, "value.not-a-choice"),
        ({"participation": "often"}, "value.not-a-choice"),
        ({"clients": "4"}, "terms.malformed"),
        ({"rounds": 1.5}, "terms.malformed"),
        ({"clients": 10**30, "cohort": 10**30}, "value.out-of-range"),
    ],
)
def test_terms_whose_setting_is_of_another_type_are_refused(change, code) -> None:
    table = terms()
    assert Terms.read(table).table() == table
    with refused(code):
        Terms.read(table | {"setting": table["setting"] | change})

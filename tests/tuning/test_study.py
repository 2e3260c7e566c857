"""The analysis of a study against scipy and brute force, and what pooling searches would claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quorank.errors import BadInput
from quorank.tuning.studies.analysis import analyse, client_means, mann_whitney
from quorank.tuning.studies.study import Study, TypedSearches, read_collected, read_pilot

SAMPLE = st.lists(st.integers(-3, 3).map(float) | st.floats(-5, 5, width=16), min_size=1, max_size=12)


@given(a=SAMPLE, b=SAMPLE)
def test_u_by_counting_pairs(a: list[float], b: list[float]) -> None:
    pairs = [(x, y) for x in a for y in b]
    u = sum(1.0 if x > y else 0.5 if x == y else 0.0 for x, y in pairs)
    assert mann_whitney(np.array(a), np.array(b))[0] == u


def sample(random: np.random.Generator, clients: int, first: int, lower: float = 0.0) -> TypedSearches:
    """Clients with a habit of their own and ⌈Exp(12)⌉ searches each."""
    each = np.ceil(random.exponential(12, clients)).astype(int).clip(1)
    client = np.repeat(np.arange(first, first + clients), each)
    habit = np.repeat(random.normal(6 - lower, 2, clients), each)
    characters = np.maximum(1, np.rint(habit + random.normal(0, 2, len(client)))).astype(np.int32)
    return TypedSearches(client, characters, random.integers(0, 3, len(client)).astype(np.int32))


def test_client_means_by_hand() -> None:
    typed = TypedSearches(np.array([7, 3, 7, 7]), np.array([1, 5, 2, 6], np.int32), np.array([0, 1, 0, 3], np.int32))
    assert client_means(typed, "characters").tolist() == [5.0, 3.0]
    assert client_means(typed, "rank").tolist() == [1.0, 1.0]


def test_an_analysis_is_scipy_over_clients_with_bonferroni() -> None:
    random = np.random.default_rng(3)
    study = Study()
    collected = {
        "treatment": sample(random, 300, 0, lower=2.0),
        "control": sample(random, 100, 1000),
        "control-no-decay": sample(random, 100, 2000),
    }
    found = analyse(study, collected)
    assert len(found.comparisons) == 6
    c = found.of("characters", "treatment", "control")
    a, b = (client_means(collected[arm], "characters") for arm in ("treatment", "control"))
    expected = stats.mannwhitneyu(a, b)
    assert (c.u, c.p) == (expected.statistic, expected.pvalue) and c.corrected_p == min(1, 6 * c.p)
    assert c.significant and c.difference == pytest.approx(a.mean() - b.mean())
    assert c.error == pytest.approx(np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)))
    above, below = (a[:, None] > b[None, :]).mean(), (a[:, None] < b[None, :]).mean()
    assert c.rank_biserial == pytest.approx(above - below) and c.common_language == pytest.approx(
        (1 + above - below) / 2
    )
    assert not found.of("rank", "treatment", "control").significant
    arm = found.arms["control"]
    assert arm.clients == 100 and arm.searches == len(collected["control"].client)
    assert arm.mean["characters"] == pytest.approx(b.mean())
    assert arm.mean_of_searches["characters"] == pytest.approx(collected["control"].characters.mean())
    assert found.as_dict()["corrected_alpha"] == pytest.approx(0.05 / 6)


def test_pooled_searches_reject_true_null_hypotheses_and_client_means_do_not() -> None:
    """In A/A studies of people with habits, a test of single searches finds something in far more than 5 % of them."""
    random = np.random.default_rng(11)
    by_client = pooled = 0
    for _ in range(300):
        a, b = sample(random, 60, 0), sample(random, 60, 60)
        by_client += mann_whitney(client_means(a, "characters"), client_means(b, "characters"))[1] < 0.05
        pooled += mann_whitney(a.characters.astype(float), b.characters.astype(float))[1] < 0.05
    assert stats.binomtest(by_client, 300, 0.05).pvalue > 1e-3
    assert stats.binomtest(pooled, 300, 0.25, alternative="less").pvalue > 0.05, "at least a quarter"


def test_an_arm_without_searches_is_refused() -> None:
    random = np.random.default_rng(0)
    with pytest.raises(BadInput, match="arm 'control-no-decay' has no searches"):
        analyse(Study(), {"treatment": sample(random, 5, 0), "control": sample(random, 5, 9)})


def write_collected(path: Path, arms: dict[str, TypedSearches]) -> None:
    rows = [
        f"person-{client},{arm},{characters},{rank}"
        for arm, typed in arms.items()
        for client, characters, rank in zip(*(column.tolist() for column in typed), strict=True)
    ]
    path.write_text("\n".join(("client,arm,characters,rank", *rows)) + "\n")


def arms_of(study: Study, clients: int) -> dict[str, TypedSearches]:
    arms = np.array(study.assign_all(f"person-{n}" for n in range(clients)))
    typed = sample(np.random.default_rng(2), clients, 0)
    return {arm: TypedSearches(*(column[arms[typed.client] == arm] for column in typed)) for arm in study.arms}


def test_a_file_of_searches_is_read_back(tmp_path: Path) -> None:
    study, file = Study(), tmp_path / "results.csv"
    arms = arms_of(study, 60)
    write_collected(file, arms)
    back = read_collected(file, study)
    for arm in study.arms:
        assert np.array_equal(client_means(arms[arm], "rank"), client_means(back[arm], "rank"))
        assert np.array_equal(arms[arm].characters, back[arm].characters)
    assert len(np.unique(read_pilot(file).client)) == 60


def test_files_of_spreadsheets_are_read(tmp_path: Path) -> None:
    file = tmp_path / "pilot.csv"
    file.write_bytes("\ufeffrank,client,characters\r\n1,ä,4\r\n\r\n0,ä,2\r\n".encode())
    typed = read_pilot(file)
    assert (typed.client.tolist(), typed.characters.tolist(), typed.rank.tolist()) == ([0, 0], [4, 2], [1, 0])


def test_a_study_that_was_changed_under_way_is_noticed(tmp_path: Path) -> None:
    study, file = Study("spring"), tmp_path / "results.csv"
    write_collected(file, arms_of(study, 60))
    changed = Study("spring", {"treatment": 0.2, "control": 0.6, "control-no-decay": 0.2})
    with pytest.raises(BadInput, match=r"csv:\d+: client 'person-\d+' is in arm .* needs a new name"):
        read_collected(file, changed)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("client,characters\n", "no column 'rank'"),
        ("client,arm,characters,rank\na,b,c\n", "csv:2: has 3 fields"),
        ("client,arm,characters,rank\na,other,1,0\n", "csv:2: there is no arm 'other'"),
        ("client,characters,rank\na,1,0\nb,x,0\n", "csv:3: characters must be an integer"),
        ("client,characters,rank\na,1,-1\n", "csv:2: rank"),
        ("client,characters,rank\n\xff,1,0\n", "UTF-8"),
    ],
)
def test_bad_results_name_their_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "results.csv"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput, match=words):
        read_collected(file, Study())

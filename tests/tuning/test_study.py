"""Studies: arms and their shares, plans by simulated power, analysis against scipy, means by randomised response."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from chance import UNLIKELY, assert_follows
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from scipy import stats

from quorank.errors import BadInput
from quorank.files.codec import decode
from quorank.privacy.mechanisms.randomised_response import other_probability, true_probability
from quorank.tuning.studies.analysis import PrivateMeans, analyse, client_means, mann_whitney
from quorank.tuning.studies.power import count_rejections, plan_study, with_effect
from quorank.tuning.studies.study import ARMS, Study, TypedSearches, read_collected, read_pilot, read_study


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
    study = Study("frecency")
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
    assert found.corrected_alpha == pytest.approx(0.05 / 6)


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
        analyse(Study("frecency"), {"treatment": sample(random, 5, 0), "control": sample(random, 5, 9)})


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
    study, file = Study("frecency"), tmp_path / "results.csv"
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
        read_collected(file, Study("frecency"))


IDS = [f"client-{n}" for n in range(20_000)]


@pytest.mark.parametrize(
    ("name", "arms"), [("frecency", ARMS), ("ünïcode", {"a": 0.01, "b": 0.9, "c": 0.04, "d": 0.05})]
)
def test_shares(name: str, arms: dict[str, float]) -> None:
    assert_follows(Study(name, arms).assign_all(IDS), arms)


def test_two_studies_have_nothing_to_do_with_each_other() -> None:
    one, other = Study("one").assign_all(IDS), Study("other").assign_all(IDS)
    table = np.array([[sum(a == x and b == y for a, b in zip(one, other, strict=True)) for y in ARMS] for x in ARMS])
    assert stats.chi2_contingency(table).pvalue > UNLIKELY


@given(st.text(max_size=20))
def test_an_arm_depends_on_name_and_id_alone(client: str) -> None:
    study = Study("s")
    assert study.assign(client) == Study("s", effect=3.0).assign(client) == study.assign_all(["x", client])[1]
    assert study.assign(client) in ARMS
    key = client.encode("utf-8", "replace").ljust(32, b"x")[:32]  # of a device, by its public key
    assert study.arm_of(key) == study.assign(key.hex())


def test_assignments_never_change() -> None:
    """Part of the format: a release that moved clients between arms would spoil every study under way."""
    found = Study("frecency").assign_all([*"abcdefgh"])
    assert [(*ARMS,).index(arm) for arm in found] == [1, 0, 0, 0, 0, 2, 2, 0]


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('name = "mine"\neffect = 1\npower = 0.8\n[arms]\nnew = 0.5\nold = 0.5\n')
    assert read_study(file) == Study("mine", {"new": 0.5, "old": 0.5}, effect=1.0, power=0.8)
    file.write_text('name = "mine"\nmetrics = ["rank"]\nmetric = "rank"\n')
    assert read_study(file) == Study("mine", metrics=("rank",), metric="rank")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "name: is missing"),
        ("name = 3", "name"),
        ('name = "x"\narms = 3', "arms: expected a table"),
        ('name = "x"\n[arms]\na = 0.9', "two arms"),
        ('name = "x"\n[arms]\na = 0.5\nb = 0.6', "add up to 1"),
        ('name = "x"\n[arms]\na = -0.5\nb = 1.5', r"arms\.a: must be above 0"),
        ('name = "x"\nmetrics = ["ranks"]', "did you mean 'rank'"),
        ('name = "x"\nmetrics = ["rank", "rank"]\nmetric = "rank"', "named twice"),
        ('name = "x"\nmetrics = []', "metrics: expected 1 to 2 items"),
        ('name = "x"\npower = 1.0', "power"),
        ("name = ", "not a TOML file"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "study.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=words) as refused:
        read_study(file)
    assert str(file) in str(refused.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_study(tmp_path / "missing.toml")
    with pytest.raises(BadInput, match="not a regular file"):
        read_study(tmp_path)


NORMAL = stats.norm(6, 2).ppf((np.arange(4000) + 0.5) / 4000)


def noether(larger: float, share: float, alpha: float, power: float) -> float:
    """Clients of both arms (Noether, JASA 1987): (z_{α/2} + z_β)² / (12·c·(1 − c)·(P(a < b) − 1/2)²)."""
    z = stats.norm.isf(alpha / 2) + stats.norm.isf(1 - power)
    return float(z**2 / (12 * share * (1 - share) * (larger - 0.5) ** 2))


@pytest.mark.parametrize(("effect", "arms"), [(0.5, (0.5, 0.5)), (1.0, (0.75, 0.25)), (1.0, (0.6, 0.2, 0.2))])
def test_a_plan_is_what_the_formula_says_for_the_smallest_arm(effect: float, arms: tuple[float, ...]) -> None:
    study = Study("s", dict(zip("abc", arms, strict=False)), ("characters",), effect=effect, power=0.8)
    found = plan_study(study, NORMAL)
    lowered, both = with_effect(NORMAL, effect, 1.0), arms[0] + arms[1]
    larger = 1.0 - stats.mannwhitneyu(lowered, NORMAL).statistic / len(NORMAL) ** 2
    expected = noether(larger, arms[0] / both, 0.05 / study.comparisons, 0.8)
    assert found.arms["a"] + found.arms["b"] == pytest.approx(expected, rel=0.08)
    assert 0.8 <= found.achieved < 0.85 and found.alpha == 0.05 / study.comparisons
    assert sum(found.arms.values()) == found.clients


def test_rejections_without_an_effect_are_as_many_as_alpha_says() -> None:
    count = count_rejections(NORMAL, NORMAL, 60, 30, 0.05, seed=3, simulations=2000)
    assert stats.binomtest(count, 2000, 0.05).pvalue > 1e-3


@given(
    values=st.lists(st.floats(1, 50), min_size=5, max_size=40).filter(lambda v: np.mean(v) > 1.5),
    share=st.floats(0.01, 0.99),
)
def test_an_effect_lowers_the_mean_by_as_much_and_nobody_below_the_least(values: list[float], share: float) -> None:
    pilot = np.array(values)
    effect = share * (pilot.mean() - 1.0)
    lowered = with_effect(pilot, effect, 1.0)
    assert pilot.mean() - lowered.mean() == pytest.approx(effect) and lowered.min() >= 1.0 - 1e-9


@pytest.mark.parametrize(
    ("pilot", "effect", "words"),
    [
        (NORMAL[:5], 0.5, "at least 20 clients"),
        (np.full(50, 3.0), 0.5, "the same mean"),
        (np.append(NORMAL, np.nan), 0.5, "at least 20"),
        (NORMAL, 9.0, "cannot be had"),
        (NORMAL, 1e-5, "would need more than"),
    ],
)
def test_what_cannot_be_planned_is_said(pilot: np.ndarray, effect: float, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        plan_study(Study("s", effect=effect), pilot, simulations=100)


STUDY = Study("means", {"treatment": 0.5, "control": 0.5})


def collected(means: dict[str, tuple[float, float]], clients: int) -> dict[str, TypedSearches]:
    """Two searches a client, around the arm's means of characters and rank."""
    random = np.random.default_rng(1)
    made = {}
    for arm, (characters, rank) in means.items():
        typed = random.poisson((characters, rank), (2 * clients, 2)).astype(np.int32)
        made[arm] = TypedSearches(np.repeat(np.arange(clients), 2), typed[:, 0], typed[:, 1])
    return made


def answered(private: PrivateMeans, searches: dict[str, TypedSearches], seed: int) -> dict[str, np.ndarray]:
    """The answers of all clients, by arm."""
    return {
        arm: private.answer_all({m: client_means(typed, m) for m in STUDY.metrics}, seed, number << 24)
        for number, (arm, typed) in enumerate(searches.items())
    }


def test_estimates_are_unbiased_and_their_error_is_true() -> None:
    private = PrivateMeans(STUDY, 4.0)
    searches = collected({"treatment": (3.0, 0.5), "control": (4.0, 1.0)}, 400)
    truth = {arm: min(12.0, float(typed.characters.mean())) for arm, typed in searches.items()}
    found = [private.analyse(answered(private, searches, seed)) for seed in range(60)]
    for arm in STUDY.arms:
        means = np.array([one.arms[arm].mean["characters"] for one in found])
        errors = np.array([one.arms[arm].error["characters"] for one in found])
        assert abs(means.mean() - truth[arm]) < 4.0 * errors.mean() / math.sqrt(60)
        # the error also holds the people's own spread, which these repetitions share
        assert 0.6 * errors.mean() < means.std(ddof=1) < 1.1 * errors.mean()
    compared = [c for one in found for c in one.comparisons if c.metric == "characters"]
    assert np.mean([c.difference for c in compared]) == pytest.approx(-1.0, abs=0.2)


def test_a_large_effect_is_found_and_none_is_not() -> None:
    private = PrivateMeans(STUDY, 4.0)
    effect = private.analyse(answered(private, collected({"treatment": (2.0, 1.0), "control": (4.0, 1.0)}, 4000), 1))
    assert [c.significant for c in effect.comparisons] == [True, False]
    none = collected({"treatment": (4.0, 1.0), "control": (4.0, 1.0)}, 400)
    false = [c.significant for seed in range(40) for c in private.analyse(answered(private, none, seed)).comparisons]
    assert np.mean(false) < 0.1


def test_epsilon_is_of_the_whole_report() -> None:
    private = PrivateMeans(STUDY, 3.0)
    steps = private.response.steps
    p, q = (f(private.response.epsilon, steps) for f in (true_probability, other_probability))
    assert len(STUDY.metrics) * math.log(p / q) == pytest.approx(3.0)
    seen = {private.answer({"characters": 0.0, "rank": 0.0}, seed) for seed in range(4000)}
    assert len(seen) == (steps + 1) ** 2  # whoever types nothing sends every answer


def test_means_beyond_the_largest_count_as_the_largest() -> None:
    private = PrivateMeans(STUDY, 4.0)
    for seed in range(20):
        far, near = (
            private.answer({"characters": 500.0, "rank": 6.0}, seed),
            private.answer({"characters": 12.0, "rank": 6.0}, seed),
        )
        assert far == near and private.allows(far)
    steps = private.response.steps
    for bad in ((0.0,), (steps + 1.0, 0.0), (0.5, 0.0), (math.nan, 0.0)):
        assert not private.allows(bad)


def test_refusals() -> None:
    private = PrivateMeans(STUDY, 2.0)
    with refused("study.empty-arm"):
        private.analyse({"treatment": np.zeros((9, 2), np.int64), "control": np.zeros((3, 2), np.int64)})
    with refused("value.out-of-range"):
        PrivateMeans(STUDY, 1000.0)
    for wrong in ({"epsilon": 0.0}, {"largest": {"characters": 0.0, "rank": 1.0}}):
        with refused("value.out-of-range"):
            decode(Study, {"name": "s", **wrong})

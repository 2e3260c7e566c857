"""A learner of ten lines: from a notebook, as `module:Class` or behind an entry point, in every combination."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from command_line import as_process, environment
from equations import document_probabilities
from lists import Contrast, simulate
from refusals import refused

import quorank as qr
from quorank.data.ranking import RankingData
from quorank.experiments.experiment import Experiment
from quorank.federation import Federation
from quorank.learning import LEARNERS, Learner, Simulation
from quorank.parts import to_table
from quorank.privacy import NoPrivacy
from quorank.rankers import Linear
from quorank.users import Cascade

MODULE = """
from dataclasses import dataclass
import quorank as qr

@dataclass(frozen=True)
class ClickContrast(qr.Learner):
    kind = "click-contrast"
    eta: float = 0.1

    def learn(self, theta, shown):
        if shown.clicks.any() and not shown.clicks.all():
            theta = theta + self.eta * (shown.features[shown.clicks].mean(0) - shown.features[~shown.clicks].mean(0))
        return theta
"""
SMALL = ("data.queries=60", "federation.clients=6", "federation.rounds=4", "evaluation.every=2")


@dataclass(frozen=True)
class CompiledContrast(Contrast):
    """The same as kernels, with Gumbel's way to draw a Plackett-Luce list."""

    kind = "compiled-contrast"

    @qr.kernel
    def show(self, scores, draws):
        return np.argsort(-(scores - np.log(-np.log(draws))))

    @qr.kernel
    def learn(self, theta, shown):
        clicks, k = shown.clicks.sum(), len(shown.clicks)
        if 0 < clicks < k:
            chosen, skipped = shown.features[shown.clicks], shown.features[~shown.clicks]
            theta = theta + self.eta * (chosen.sum(0) / clicks - skipped.sum(0) / (k - clicks))
        return theta


@dataclass(frozen=True)
class GumbelContrast(Contrast):
    kind = "gumbel-contrast"

    def show(self, scores, draws):
        return np.argsort(-(scores - np.log(-np.log(draws))))


@pytest.fixture
def simulation(tiny_collection) -> Simulation:
    return Simulation(tiny_collection.train, Linear(), Cascade("informational"), tiny_collection.grades, seed=5)


def settings(*more: str) -> list[str]:
    return [word for key in (*SMALL, *more) for word in ("--set", key)]


def parameters(run: Path) -> list[float]:
    return qr.open_run(run).ranker.theta.tolist()


def spy(seen: list, step: float = 0.0) -> Learner:
    """A learner that writes down what it sees, and moves by a constant."""

    @dataclass(frozen=True)
    class Spy(Learner):
        kind = "spy"

        def learn(self, theta, shown):
            seen.append(shown)
            return theta + step

    return Spy()


QUICK = {"data.queries": 60, "federation.clients": 6, "federation.rounds": 2, "evaluation.every": 2}


def own_parts(step: float) -> dict[str, object]:
    """A learner, a ranker, users and a privacy of this function, which no other process can import."""

    @dataclass(frozen=True)
    class Drift(Learner):
        kind = "drift"

        def learn(self, theta, shown):
            return theta + step

    @dataclass(frozen=True)
    class Plain(Linear):
        kind = "plain"

    @dataclass(frozen=True)
    class Readers(Cascade):
        kind = "readers"
        preset: str = "informational"

    @dataclass(frozen=True)
    class Bare(NoPrivacy):
        kind = "bare"

    return {"learner": Drift(), "ranker": Plain(), "users": Readers(), "privacy": Bare()}


@pytest.mark.parametrize("give", ["set", "tables", "classes", "experiment"])
def test_parts_are_passed_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give: str) -> None:
    """The parts that were passed are those that run, also where a newer class has the same kind."""
    monkeypatch.chdir(tmp_path)
    given = own_parts(1.0)
    newer = own_parts(5.0)
    if give == "classes":
        given = {key: type(part) for key, part in given.items()}
    start: dict | Experiment = given if give == "tables" else {}
    if give == "experiment":
        federation = Federation(learner=given["learner"], privacy=given["privacy"])
        start = Experiment(ranker=given["ranker"], users=given["users"], federation=federation)
    result = qr.run(start, set=QUICK | (given if give in ("set", "classes") else {}), out="run", report=False)
    assert len(newer) == 4
    np.testing.assert_allclose(result.ranker.theta, 4.0 * 2)  # 4 interactions in each of 2 rounds, each by 1
    recorded = {key: result.config[key]["kind"] for key in given}
    assert recorded == {"learner": "drift", "ranker": "plain", "users": "readers", "privacy": "bare"}


def test_what_is_passed_and_is_no_such_part_is_refused_where_it_was_passed(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    @dataclass(frozen=True)
    class Taken(Learner):
        kind = "pdgd"

        def learn(self, theta, shown):
            return theta

    @dataclass(frozen=True)
    class Nameless(Learner):
        def learn(self, theta, shown):
            return theta

    @dataclass(frozen=True)
    class Alone:
        kind = "alone"

    for learner, code in (
        (Cascade(), "plugin.wrong-base"),
        (Alone(), "plugin.wrong-base"),
        (Taken(), "plugin.wrong-kind"),
        (Nameless, "plugin.wrong-kind"),
        (3, "part.not-a-table"),
        ("pdgt", "part.unknown-kind"),
    ):
        with pytest.raises(qr.BadInput) as refusal:
            qr.run("fpdgd", set={"learner": learner}, out="run")
        assert refusal.value.code == code
        assert refusal.value.where.startswith("set['learner']"), "not a line of the shipped file"
    assert not (tmp_path / "run").exists()


def test_learn_sees_each_list_as_it_was_shown_and_clicked(simulation) -> None:
    seen: list = []
    rows = simulate(simulation, spy(seen, 1.0), np.linspace(-1, 1, simulation.parameters), [3], 5)
    size = simulation.parameters
    np.testing.assert_allclose(rows[0, :size], 5.0)  # moved by 1 in each of 5 interactions
    assert len(seen) == 5
    assert rows[0, -1] == sum(shown.clicks.sum() for shown in seen)
    documents = {tuple(row) for row in simulation.inputs.features.astype(np.float64).tolist()}
    for i, shown in enumerate(seen):
        k = len(shown.ranks)
        assert shown.ranks.tolist() == list(range(1, k + 1))
        assert all(tuple(row) in documents for row in shown.features.tolist())
        np.testing.assert_allclose(shown.scores, shown.features @ (np.linspace(-1, 1, size) + i), rtol=1e-4, atol=1e-5)


def test_propensity_is_equation_1_over_the_documents_not_yet_shown() -> None:
    seen: list = []
    data = RankingData.from_arrays(np.eye(5), [0, 1, 2, 1, 0], [0, 5])
    scores = np.array([0.5, -0.5, 0.25, 1.5, 0.0])
    simulate(Simulation(data, Linear(), Cascade(), 3, 3, k=3), spy(seen), scores, range(20), 1)
    for shown in seen:
        left = list(range(5))
        for row, propensity in zip(shown.features, shown.propensity, strict=True):
            document = int(row.argmax())
            expected = document_probabilities(scores[left])[left.index(document)]
            assert propensity == pytest.approx(expected, rel=1e-6)
            left.remove(document)


def test_kernels_give_the_bits_of_numpy(simulation) -> None:
    theta = np.linspace(-1, 1, simulation.parameters)
    compiled = simulate(simulation, CompiledContrast(eta=0.3), theta, range(12), 4)
    plain = simulate(simulation, GumbelContrast(eta=0.3), theta, range(12), 4)
    np.testing.assert_allclose(compiled, plain, rtol=1e-12, atol=1e-15)
    assert np.abs(plain[:, : simulation.parameters]).max() > 0.01


@pytest.mark.parametrize(
    ("method", "result", "code"),
    [
        ("learn", lambda *_: 1 / 0, "learner.failed"),
        ("learn", lambda *_: np.zeros(3), "learner.wrong-result"),
        ("learn", lambda _, theta, __: theta * np.nan, "learner.wrong-result"),
        ("show", lambda *_: [0, 0, 1, 2, 3, 4, 5, 6, 7, 8], "learner.wrong-result"),
        ("show", lambda _, scores, __: np.arange(len(scores)) + 1, "learner.wrong-result"),
        ("show", lambda *_: [], "learner.wrong-result"),
    ],
)
def test_what_cannot_be_used_is_refused_by_method(simulation, method, result, code) -> None:
    base = {"kind": "broken", "learn": lambda _, theta, __: theta, method: result, "__module__": __name__}
    broken = dataclass(frozen=True)(type("Broken", (Learner,), base))
    with refused(code, f"broken.{method}"):
        simulate(simulation, broken(), np.ones(simulation.parameters), range(3), 4)


@pytest.mark.parametrize(
    "combination", [{}, {"federation.aggregation": {"kind": "krum", "byzantine": 1}}, {"privacy": "gaussian"}]
)
def test_a_part_is_used_by_value_and_threads_do_not_matter(tmp_path, combination) -> None:
    base = {key: int(value) for key, value in (word.split("=") for word in SMALL)}
    runs = [
        qr.run(
            "fpdgd",
            set={**base, "learner": Contrast(eta=0.2), **combination},
            out=tmp_path / str(n),
            threads=n,
            report=False,
        )
        for n in (1, 2)
    ]
    assert runs[0].ranker.theta.tolist() == runs[1].ranker.theta.tolist()
    assert runs[0].config["learner"]["eta"] == 0.2
    other = qr.run("fpdgd", set={**base, "learner": Contrast(eta=0.3), **combination}, out=tmp_path / "3", report=False)
    assert runs[0].ranker.theta.tolist() != other.ranker.theta.tolist()


def test_a_class_of_this_process_prints_and_parses_back() -> None:
    part = Contrast(eta=0.25)
    assert LEARNERS.parse(str(part)) == part
    assert LEARNERS.read({"kind": "contrast", "eta": 0.25}, "learner") == part
    assert LEARNERS.read(to_table(part), "learner") == part
    with refused("part.unknown-kind"):
        LEARNERS.read("contrast", "learner", foreign=True)  # of the network: no part of others


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("no_such_module:Nothing", "plugin.not-importable"),
        ("numpy:nothing", "plugin.not-importable"),
        ("numpy:ndarray", "plugin.wrong-base"),
        ("quorank.learning:Learner", "plugin.incomplete"),
    ],
)
def test_a_reference_to_no_learner_is_refused(kind, code) -> None:
    with refused(code, kind):
        LEARNERS.read(kind, "learner")


@pytest.mark.slow
def test_from_a_notebook_and_by_module_in_a_grid_and_over_https(tmp_path) -> None:
    """All ways give one ranker, the same bits as the class of this file."""
    base = {key: int(value) for key, value in (word.split("=") for word in SMALL)}
    here = qr.run("fpdgd", set={**base, "learner": Contrast(eta=0.2)}, out=tmp_path / "here").ranker.theta.tolist()

    cell = f"{MODULE}\nqr.run('fpdgd', set={{**{base!r}, 'learner': ClickContrast(eta=0.2)}}, out='notebook')\n"
    variables = environment(tmp_path)
    subprocess.run([sys.executable, "-"], input=cell, text=True, cwd=tmp_path, env=variables, check=True, timeout=300)
    assert parameters(tmp_path / "notebook") == here

    (tmp_path / "my_module.py").write_text(MODULE)
    (tmp_path / "my.toml").write_text('[learner]\nkind = "my_module:ClickContrast"\neta = 0.2\n')
    done = as_process(tmp_path, tmp_path / "home", "run", "my.toml", *settings(), "--out", "named", "--quiet")
    assert done.code == 0, done.err
    assert parameters(tmp_path / "named") == here
    assert "ClickContrast" in (tmp_path / "named" / "report.html").read_text()
    again = as_process(
        tmp_path, tmp_path / "home", "run", "named/run.toml", "--out", "again", "--threads", 1, "--quiet"
    )
    assert again.code == 0 and parameters(tmp_path / "again") == here, again.err

    over = as_process(
        tmp_path, tmp_path / "home", "run", "my.toml", *settings(), "--out", "https", "--engine", "https", "--quiet"
    )
    assert over.code == 0, over.err
    assert parameters(tmp_path / "https") == here

    (tmp_path / "grid.toml").write_text((tmp_path / "my.toml").read_text() + '[grid]\n"learner.eta" = [0.2, 0.4]\n')
    grid = as_process(
        tmp_path, tmp_path / "home", "run", "grid.toml", *settings(), "--out", "grid", "--jobs", 2, "--quiet"
    )
    assert grid.code == 0, grid.err
    cells = sorted(path.parent for path in (tmp_path / "grid").glob("*/ranker.json"))
    assert [parameters(cell) == here for cell in cells] == [True, False]

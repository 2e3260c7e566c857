"""The holder of a tuning over a store: the versions of `tune simulate` to the bit, whoever dies, lies or leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fleets import enrolled, sent
from postgresql_server import empty_database
from refusals import refused
from tuned_fleets import TunedFleet, rehearsed

from quorank.protocol.messages import leaving_receipt, leaving_request
from quorank.service.holders.tuning import STUDY, VERSIONS, WEIGHTS, TuningHome, settings_of
from quorank.service.store.sql_store import HolderLost
from quorank.tuning.field import TuningTerms, read_field_tuning, read_task, study_reply
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.models import read_model
from quorank.tuning.rules import Count, ImmediateGuard, SignRelease, Stable
from quorank.tuning.studies.analysis import PrivateMeans
from quorank.tuning.studies.study import Study

DEVICES, ITERATIONS = 20, 4


@pytest.mark.parametrize(
    "more",
    [{"guard": ImmediateGuard()}, {"heuristic": "decay", "release": SignRelease()}],
    ids=["frecency at once", "decay by signs"],
)
def test_versions_are_those_of_the_simulation_to_the_bit(tmp_path: Path, more: dict[str, object]) -> None:
    tuning, simulated = rehearsed(DEVICES, ITERATIONS, **more)
    fleet = TunedFleet(tmp_path / "folder", tuning, DEVICES)
    service, random = fleet.service(), np.random.default_rng(1)
    for version, expected in enumerate(simulated.models, 1):
        for member in random.permutation(DEVICES).tolist():  # in any order
            assert not service.version.learned
            service.look()
            assert not fleet.send(member).code
        assert service.look()
        assert read_model(fleet.home.path / VERSIONS / f"weights-{version:06d}.json", fleet.field.heuristic) == expected
    assert service.version.learned and service.play()
    assert read_model(fleet.home.path / WEIGHTS) == simulated.models[-1]
    over = fleet.store.publication()
    assert over is not None and over.kind == "over"
    assert [event["code"] for event in fleet.store.events()].count("version_published") == ITERATIONS


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def test_a_holder_that_dies_anywhere_changes_nothing(tmp_path: Path, database: str) -> None:
    tuning, simulated = rehearsed(DEVICES, ITERATIONS)
    address = "" if database == "sqlite" else empty_database()
    fleet = TunedFleet(tmp_path / "folder", tuning, DEVICES, address)
    old = fleet.service()
    for version in range(ITERATIONS):
        old.look()
        for member in range(DEVICES - 7):
            fleet.send(member)
        old.look()
        fleet.store.release()
        new = fleet.service()  # with nothing but the store
        assert new.version.state.version == version
        for member in range(DEVICES - 7, DEVICES):
            fleet.send(member)
        with pytest.raises(HolderLost):
            old.look()
        assert new.look()
        old = new
    assert new.version.learned and read_model(fleet.home.path / WEIGHTS) == simulated.models[-1]


def test_what_cannot_count_leaves_its_place_to_others(tmp_path: Path) -> None:
    tuning, _ = rehearsed(4, 1)
    fleet = TunedFleet(tmp_path / "folder", tuning, 8)
    service = fleet.service()
    service.look()
    size = fleet.terms.parameters
    assert not fleet.lie(0, release=np.full(size, 1e300)).code
    assert not fleet.lie(1, release=np.concatenate((np.zeros(size - 1), [2.0]))).code  # more than a first place
    assert not fleet.lie(2, client=3).code
    assert not fleet.lie(3, statistics=(1.0, 0.0, 0.0)).code
    assert fleet.send(4).code == "reply.round-full"
    service.look()
    assert (
        service.version.refused == {"reply.not-usable": 2, "reply.other-client": 1, "reply.figure": 1}
        and not service.version.learned
    )
    assert [fleet.send(member).code for member in (4, 5, 6, 7)] == [""] * 4
    service.look()
    assert service.version.learned and not service.version.refused


def test_devices_of_a_control_are_not_learned_from_and_their_figures_are_compared(tmp_path: Path) -> None:
    tuning, _ = rehearsed(4, 1)
    study = Study("spring", {"treatment": 0.5, "control": 0.5}, epsilon=4.0)
    fleet = TunedFleet(tmp_path / "folder", tuning, 24, study=study, answers=24)
    arms = {member: study.arm_of(key.public) for member, key in fleet.keys.items()}
    treated = [member for member, arm in arms.items() if arm == "treatment"]
    controls = [member for member, arm in arms.items() if arm == "control"]
    assert min(len(treated), len(controls)) >= 4
    service = fleet.service()
    service.look()
    fleet.send(controls[0])
    service.look()
    assert service.version.refused == {"reply.not-treated": 1} and service.status("running").arms == {
        "treatment": len(treated), "control": len(controls)
    }  # fmt: skip
    for member in treated[:4]:
        assert not fleet.send(member).code
        service.look()  # the place of the control is given to another once all are taken
    assert service.version.learned and not service.done
    published = fleet.store.publication()
    assert published is not None and read_task(published.content, "run", FRECENCY).asks_metrics
    private = PrivateMeans(study, 4.0)
    service.look()
    for member in fleet.keys:
        means = {"characters": 2.0 if member in treated else 8.0, "rank": 1.0}
        answer = private.answer(means, bytes([member]) * 32, member)
        terms = TuningTerms.read(fleet.terms.table() | {"client": member})
        assert not fleet.send(member, study_reply(terms, 1, answer)).code
    assert service.look() and service.done
    found = json.loads((fleet.home.path / STUDY).read_text())
    assert found["epsilon"] == 4.0 and found["arms"]["control"]["clients"] == len(controls)
    characters = found["comparisons"][0]
    assert characters["metric"] == "characters" and abs(characters["difference"] + 6.0) < 5 * characters["error"]
    assert service.play()


@pytest.mark.parametrize("closing", [Count(20), Stable(least=20)], ids=str)
def test_a_version_that_needs_more_devices_than_can_answer_says_so(tmp_path: Path, closing: Count | Stable) -> None:
    tuning, study = replace(rehearsed(20, 1)[0], closing=closing), Study("spring", {"treatment": 0.5, "control": 0.5})
    fleet = TunedFleet(tmp_path / "folder", tuning, 25, study=study)
    service = fleet.service()
    service.look()
    for member in range(20):
        fleet.send(member)
    service.look()
    treated = service.status().arms["treatment"]
    assert treated < 20 and not service.version.learned
    (problem,) = service.status().problems
    assert problem.code == "tuning.too-few-devices" and f"20 updates and {treated} " in problem.sentence
    enrolled(fleet.store, 60, first=25)
    assert service.status().arms["treatment"] >= 20 and not service.status().problems


def test_who_leaves_is_let_go_at_once(tmp_path: Path) -> None:
    tuning, _ = rehearsed(4, 1)
    fleet = TunedFleet(tmp_path / "folder", tuning, 5)
    service = fleet.service()
    service.look()
    fleet.send(0)
    terms = TuningTerms.read(fleet.terms.table() | {"client": 0})
    request = leaving_request(terms, fleet.keys[0], 1.0, bytes(16))
    assert not sent(fleet.store, 0, "leave", 0, request).code
    service.look()
    assert fleet.store.leaving(0) == (request, leaving_receipt(fleet.home.key, request))
    for member in (1, 2, 3):
        fleet.send(member)
    service.look()
    assert not service.version.learned  # its update was taken out
    assert not fleet.send(4).code
    service.look()
    assert service.version.learned and fleet.store.admitted() == [1, 2, 3, 4]


def test_the_operators_file_and_the_terms_of_devices(tmp_path: Path) -> None:
    file = tmp_path / "tune.toml"
    file.write_text(
        'heuristic = "decay"\niterations = 9\noptimiser = "adam"\nclosing = { kind = "stable" }\n'
        'release = { kind = "signs", bits = 2 }\nguard = { kind = "judged", bound = 0.02 }\nanswers = 100\n'
        '[study]\nname = "spring"\nepsilon = 2.0\n[study.arms]\ntreatment = 0.5\ncontrol = 0.5\n'
    )
    found = read_field_tuning(file)
    assert found.heuristic.name == "decay" and found.closing == Stable() and found.release == SignRelease()
    assert (
        str(found.guard).startswith("JudgedGuard(bound=0.02") and found.study is not None and found.replies_needed == 0
    )
    home = TuningHome.make(tmp_path / "folder", found, settings_of("run", found, address="127.0.0.1:9092"))
    again = TuningHome.open(home.path).tuning
    assert again.table() == found.table() and again.optimiser == found.optimiser
    terms = found.terms("run")
    table = json.loads(json.dumps(terms.table()))
    assert TuningTerms.read(table) == terms and terms.private_means is not None
    for changes in (
        {"release": "Signs()"}, {"margin": float("nan")}, {"parameters": 3}, {"study": {}}, {"heuristic": {}},
        {"release": "__import__('os')"}, {"rounds": -1},
    ):  # fmt: skip
        with refused("terms.malformed"):
            TuningTerms.read(table | changes)
    with refused("terms.other-kind"):
        TuningTerms.read({"kind": "round"})
    for text, code in (
        ("iterations = 0", "value.out-of-range"), ("iteration = 1", "part.unknown-key"), ("x = [", "tuning.not-toml"),
        ("answers = 5", "study.no-epsilon"),
        ('guard = "none"', "part.unknown-kind"),
        ('loss = "hinge"', "value.not-a-choice"),
        ('heuristic = "frequency"', "heuristic.unknown"), ('study = "x"', "value.wrong-type"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(Exception) as caught:
            read_field_tuning(file)
        assert getattr(caught.value, "code", "") == code, caught.value
    with refused("file.missing"):
        read_field_tuning(tmp_path / "none.toml")
    with refused("coordinator.missing"):
        TuningHome.open(tmp_path)

"""Devices that tune a heuristic over HTTPS: the bits of the simulation, and a service that wants more gets nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_services import RealService, free_port
from refusals import refused
from small_service import CODE, SmallService
from tuned_fleets import field_of, rehearsed

from quorank.federation.reply import decode_reply
from quorank.member import Tuner
from quorank.member.private_store import FILE
from quorank.protocol.keys import MemberKey
from quorank.service.enrolment import invite
from quorank.service.holders.tuning import VERSIONS, WEIGHTS, TuningHome, settings_of
from quorank.tuning.field import FieldTuning, TuningTask
from quorank.tuning.heuristics.frecency import DECAY_FRECENCY, FRECENCY
from quorank.tuning.heuristics.heuristic import Heuristic, Weight, one_by_one
from quorank.tuning.histories.scenarios import SCENARIOS
from quorank.tuning.models import read_model
from quorank.tuning.rules import Count
from quorank.tuning.searches import slice_searches
from quorank.tuning.simulation import Tuning
from quorank.tuning.studies.study import Study

DEVICES, ITERATIONS = 6, 3
SHIPPED = FRECENCY.shipped
STUDY = Study("spring", {"treatment": 0.5, "control": 0.5}, epsilon=4.0)


def test_devices_over_https_reach_the_versions_of_the_simulation_to_the_bit(tmp_path: Path) -> None:
    tuning, simulated = rehearsed(DEVICES, ITERATIONS)
    field, port, scenario = field_of(tuning), free_port(), SCENARIOS["frecency"]
    settings = settings_of("run", field, port=port, address=f"127.0.0.1:{port}", workers=1)
    service = RealService(TuningHome.make(tmp_path / "service", field, settings))
    tuners: list[Tuner] = []
    try:
        service.start()
        store = service.home.store()
        for number in range(DEVICES):
            invite(service.home, store, f"device-{number}", tmp_path / f"{number}.json")
            tuners.append(Tuner.open(tmp_path / f"d{number}", FRECENCY, tmp_path / f"{number}.json"))
            assert tuners[-1].sync().outcome == "consent" and tuners[-1].weights() == FRECENCY.named(SHIPPED)
            tuners[-1].consent(True)
        for version in range(ITERATIONS):
            searches = scenario.searches(tuning.seed, DEVICES, version * DEVICES, SHIPPED, tuning.sigma)
            for number, tuner in enumerate(tuners):
                while tuner.task is None or tuner.task.version < version:
                    assert tuner.sync(force=True).outcome == "nothing"
                tuner.record(slice_searches(searches, number, number + 1))
                report = tuner.sync(force=True)
                assert report.outcome == "sent", report
                assert report.sent < 400
        while (report := tuners[0].sync(force=True)).outcome != "over":
            assert report.outcome == "nothing"
        assert tuners[0].weights() == simulated.models[-1].weights
        for version, expected in enumerate(simulated.models, 1):
            assert read_model(service.home.path / VERSIONS / f"weights-{version:06d}.json", FRECENCY) == expected
        assert read_model(service.home.path / WEIGHTS) == simulated.models[-1]
        assert [one.round for one in tuners[1].store.releases()] == [1, 2, 3]
        left = tuners[1].leave()
        while left.outcome == "leaving":
            left = tuners[1].sync(force=True)
        assert left.outcome == "left" and left.erased is not None and not (tmp_path / "d1" / FILE).exists()
        store.close()
    finally:
        for tuner in tuners:
            tuner.close()
        service.kill()


class TuningAnswers(SmallService):
    """A service whose task is whatever a test says."""

    def __init__(self, field: Any) -> None:
        super().__init__(field.terms("run"))
        self.task_said = TuningTask(0, SHIPPED, SHIPPED, SHIPPED, asks_metrics=False).encode("run")

    def say(self, published: np.ndarray, version: int = 0, *, trial: np.ndarray | None = None, **more: Any) -> None:
        shown = published if trial is None else trial
        task = TuningTask(version, published, shown, SHIPPED, more.pop("asks_metrics", False))
        self.published = (more.pop("kind", "tuning"), task.encode(more.pop("run", "run")))


@pytest.fixture
def service(tmp_path: Path) -> Any:
    with TuningAnswers(field_of(Tuning(closing=Count(5)), study=STUDY, answers=5)).running(tmp_path) as made:
        made.say(SHIPPED)
        yield made


def opened(service: Any, tmp_path: Path, arm: str = "treatment") -> Tuner:
    """A device in this arm."""
    keys = (bytes([number]) * 32 for number in range(1, 200))
    secret = next(secret for secret in keys if STUDY.arm_of(MemberKey(secret).public) == arm)
    drawn = iter([secret])
    file = service.invitation(tmp_path / f"{arm}.json", code=CODE)
    tuner = Tuner.open(tmp_path / arm, FRECENCY, file, entropy=lambda size: next(drawn, bytes(range(size))))
    tuner.consent(True)
    assert tuner.arm == arm
    return tuner


def search(tuner: Tuner, number: int = 0) -> None:
    tuner.record(SCENARIOS["frecency"].searches(1, 1, number, SHIPPED))


def replies(service: Any) -> list[bytes]:
    return [asked.body for asked in service.heard if asked.target == "/v1/reply"]


def test_the_shown_items_and_the_chosen_one_are_a_search(tmp_path: Path) -> None:
    """`record(items, chosen)` of an application whose score is a plain function of one item."""
    weights = Weight("recent", 1.0, 0.0, 5.0, step=0.1), Weight("title", 2.0, 0.0, 5.0, step=0.1)
    score = one_by_one(["recent", "title"], lambda item, weight: weight["recent"] * item[0] + weight["title"] * item[1])
    heuristic = Heuristic("notes", weights, (), score)
    service = TuningAnswers(FieldTuning(heuristic, iterations=5))
    shipped = heuristic.shipped
    with service.running(tmp_path) as made:
        made.published = ("tuning", TuningTask(0, shipped, shipped, shipped, asks_metrics=False).encode("run"))
        with Tuner.open(tmp_path / "device", heuristic, made.invitation(tmp_path / "one.json", code=CODE)) as tuner:
            tuner.consent(True)
            tuner.sync()
            tuner.record([(3, 0), (1, 1), (0, 2)], chosen=1)
            with refused("searches.unknown-choice"):
                tuner.record([(3, 0)], chosen=1)
            with refused("searches.wrong-shape"):
                tuner.record([(3, 0)])
            assert tuner.sync(force=True).outcome == "sent"
        assert decode_reply(replies(made)[-1]).interactions == 1


def test_a_version_is_answered_once_with_the_mean_of_its_searches(service: Any, tmp_path: Path) -> None:
    with opened(service, tmp_path) as tuner:
        search(tuner)  # before the first version: nothing to learn at
        assert tuner.sync().outcome == "nothing" and replies(service) == []
        search(tuner, 1)
        search(tuner, 2)
        service.lose = 2  # its confirmation is lost, also when the line asks again: later the same bytes
        assert tuner.sync(force=True).outcome == "failed"
        assert tuner.sync(force=True).outcome == "sent"
        first, *others = replies(service)
        assert others == [first, first]
        reply = decode_reply(first)
        assert reply.interactions == 2 and reply.release.shape == (13,) and reply.statistics == (0.0, 0.0, 0.0)
        search(tuner, 3)
        assert tuner.sync(force=True).outcome == "nothing"  # the version was answered
        service.say(SHIPPED * 0.9, 1, trial=SHIPPED * 0.8)
        assert tuner.sync(force=True).outcome == "nothing" and tuner.weights() == FRECENCY.named(SHIPPED * 0.9)
        search(tuner, 4)
    with Tuner.open(tmp_path / "treatment", FRECENCY) as again:  # what was recorded is there after a restart
        assert again.sync(force=True).outcome == "sent"
        assert [one.interactions for one in again.store.releases()] == [2, 1]
        service.say(SHIPPED, 0)  # a service that was restored from before
        assert again.sync(force=True).outcome == "sent" and replies(service)[-1] == first


def test_a_control_keeps_the_shipped_weights_and_sends_figures_alone(service: Any, tmp_path: Path) -> None:
    with opened(service, tmp_path, "control") as tuner:
        service.say(SHIPPED * 0.9)
        tuner.sync()
        search(tuner)
        assert tuner.weights() == FRECENCY.named(SHIPPED)
        assert tuner.sync(force=True).outcome == "nothing" and replies(service) == []
        tuner.record_typed(characters=3, rank=1)
        tuner.record_typed(characters=5, rank=0)
        service.say(SHIPPED * 0.9, 1, asks_metrics=True)
        assert tuner.sync(force=True).outcome == "sent"
        reply = decode_reply(replies(service)[0])
        assert not reply.release.any() and all(value == int(value) for value in reply.statistics)
        assert tuner.store.releases()[0].privacy["epsilon"] == 4.0
        assert tuner.sync(force=True).outcome == "nothing"
        tuner.record_typed(characters=9, rank=9)
        for version in (2, 3, 1):  # a service that asks again and again: there is one answer
            service.say(SHIPPED * 0.9, version, asks_metrics=True)
            tuner.sync(force=True)
        assert set(replies(service)) == {replies(service)[0]} and len(tuner.store.releases()) == 1


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"published": SHIPPED[::-1].copy()}, "task.not-allowed"),
        ({"published": SHIPPED, "trial": SHIPPED * 1e6}, "task.not-allowed"),
        ({"published": np.full(9, np.nan)}, "task.not-allowed"),
        ({"published": SHIPPED[:5]}, "task.malformed"),
        ({"published": SHIPPED, "run": "other"}, "task.other-run"),
        ({"published": SHIPPED, "kind": "round", "version": 1}, "task.other-kind"),
        ({"published": SHIPPED, "version": 48}, "task.beyond-terms"),
    ],
)
def test_what_a_heuristic_does_not_allow_is_refused_whoever_signed_it(
    service: Any, tmp_path: Path, said: dict[str, Any], code: str
) -> None:
    with opened(service, tmp_path) as tuner:
        tuner.sync()
        search(tuner)
        service.say(**said)
        report = tuner.sync(force=True)
        assert (report.outcome, report.code) == ("failed", code)
        assert tuner.weights() == FRECENCY.named(SHIPPED) and replies(service) == []


def test_another_heuristic_or_folder_is_refused(service: Any, tmp_path: Path) -> None:
    file = service.invitation(tmp_path / "i.json")
    with refused("terms.other-heuristic"):
        Tuner.open(tmp_path / "mail", DECAY_FRECENCY, file)
    with refused("device.missing"):
        Tuner.open(tmp_path / "none", FRECENCY)
    with opened(service, tmp_path) as tuner:
        other = service.invitation(tmp_path / "j.json", code=bytes(32))
        assert tuner.leave().outcome == "left"
    with refused("device.left"):
        Tuner.open(tmp_path / "treatment", FRECENCY, other)


def test_nothing_of_a_search_is_in_the_file(service: Any, tmp_path: Path) -> None:
    with opened(service, tmp_path) as tuner:
        tuner.sync()
        search(tuner)
        kept = json.loads(tuner.store.fact("tuning sums") or b"{}")
        assert set(kept) == {"version", "searches", "slopes", "rest"} and len(kept["slopes"]) == 9
        assert tuner.store.waiting() == 0
        for damaged in (b'{"version": 0}', json.dumps(kept | {"searches": "many"}).encode()):
            tuner.store.set_fact("tuning sums", damaged)
            with refused("file.damaged"):
                search(tuner)

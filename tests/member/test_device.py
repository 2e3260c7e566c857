"""Devices: the simulator's bits, one answer a task, nothing but releases; whatever happens in between."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from devices import (
    CLIENTS,
    Answering,
    answered,
    device_of,
    killed,
    random_theta,
    search,
    shoot,
    simulator_of,
    state_after,
    task_of,
    terms_of,
    user_of,
)
from equations import list_probability
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from quorank.experiments.deployment import terms_of as experiment_terms
from quorank.experiments.experiment import Experiment
from quorank.federation import Arrivals, Federation
from quorank.federation.personal import LocalOffset, OutputLayer
from quorank.federation.reply import decode_reply, decode_task, encode_reply
from quorank.federation.unlearning import rebuilding_name
from quorank.learning import PDGD, Counterfactual
from quorank.learning.online import ClickGuard
from quorank.member import device as device_module
from quorank.member.client import Client, device_log
from quorank.member.client_privacy import with_fresh_secret
from quorank.member.device import Device
from quorank.member.private_store import REPLIES, PrivateStore
from quorank.privacy import ClippedGaussian, NoPrivacy, PublishedLaplace, Setting, Signs
from quorank.privacy.mechanisms.clipping import grid_unit
from quorank.protocol.invitation import Invitation
from quorank.protocol.messages import REASONS, Declined
from quorank.rankers import MLP, Linear

LEARNERS = [
    (PDGD(eta=0.5, proximal=0.3, temperature=0.3, share=0.9), Linear()),
    (PDGD(step="batch"), MLP(hidden=5)),
    (PDGD(window=2), MLP(hidden=5)),
    (Counterfactual(estimator="dr", clip=0.5), Linear()),
    (Counterfactual(share=0.5, window=1), MLP(hidden=5)),
]


@pytest.mark.parametrize(("learner", "ranker"), LEARNERS, ids=str)
def test_the_simulator_s_bytes(learner, ranker, tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, learner=learner), ranker)
    for client in (0, 4):
        device, user = device_of(simulator, tmp_path / str(client), client), user_of(simulator, client)
        for round_ in range(3):
            theta = random_theta(simulator, round_)
            task = task_of(simulator, round_, theta, clients=(client,))
            reply = answered(device, user, task)
            (expected,) = simulator.replies(decode_task(task), np.array([client]))
            assert expected.release.any()
            assert reply == encode_reply(replace(expected, statistics=(0.0, 0.0, 0.0)))
            # a new process for every round
            device.store.close()
            device = device_of(simulator, tmp_path / str(client), client)


def test_the_next_update_starts_from_the_ranker_of_all(tiny_collection, tmp_path) -> None:
    """A list shows what was learned for the update that it will be part of, whether or not the process is new."""
    simulator = simulator_of(tiny_collection)
    theta, user = random_theta(simulator), user_of(simulator)
    rows = tiny_collection.train.features[:20]
    scores = []
    for times in (0, 2, 3, 4):
        device = device_of(simulator, tmp_path / str(times))
        device.answer(task_of(simulator, 0, theta))
        search(device, user, times)
        assert device.turn == (0, times % 3)
        here = device.rank(rows).scores
        device.store.close()
        there = device_of(simulator, tmp_path / str(times)).rank(rows).scores
        assert np.array_equal(here, there)
        scores.append(here)
    assert np.array_equal(scores[0], scores[2])
    assert not np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[3])


def test_personal_layers_follow_the_simulator(tiny_collection, tmp_path) -> None:
    for name, (personal, ranker) in {"o": (LocalOffset(0.5, 0.1), Linear()), "l": (OutputLayer(), MLP(5))}.items():
        simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, personal=personal), ranker)
        sent = {}
        state = simulator.initial()
        device, user = device_of(simulator, tmp_path / name, 2), user_of(simulator, 2)
        for round_ in range(3):
            gathered = simulator.gather(
                state,
                sent=lambda clients, rows, sent=sent: sent.update(zip(clients.tolist(), rows.copy(), strict=True)),
            )
            reply = decode_reply(answered(device, user, task_of(simulator, round_, state.theta)))
            assert reply.release.tobytes() == sent[2].tobytes()
            state, _ = simulator.federation.round(state, gathered)
            assert device.store.personal.tobytes() == state.personal[2].tobytes()
        assert state.personal[2].any()


@pytest.mark.parametrize("options", [{}, {"personal": LocalOffset(0.5, 0.1)}], ids=str)
def test_momentum_follows_the_simulator_and_ends_with_consent(tiny_collection, tmp_path, options) -> None:
    """What a device sends is the simulated client's m ← β·m + update; after a withdrawal nothing of before is in it."""
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, client_momentum=0.8, **options))
    sent, alone = {}, []
    state = simulator.initial()
    user = user_of(simulator, 2)
    for round_ in range(3):
        gathered = simulator.gather(
            state, sent=lambda clients, rows: sent.update(zip(clients.tolist(), rows.copy(), strict=True))
        )
        device = device_of(simulator, tmp_path, 2)  # a new process for every round
        reply = decode_reply(answered(device, user, task_of(simulator, round_, state.theta)))
        assert reply.release.tobytes() == sent[2].tobytes()
        state, _ = simulator.federation.round(state, gathered)
        assert device.store.carried("run").tobytes() == state.carried[2].tobytes()
        assert device.store.carried("ru") is device.store.carried("another") is None
        device.store.close()
        alone.append(sent[2])
    assert not np.allclose(alone[2], alone[1])
    device = device_of(simulator, tmp_path, 2)
    device.store.set_consent(False, 1.0)
    assert device.store.carried("run") is None


def test_momentum_ends_with_a_rebuilding(tiny_collection, tmp_path) -> None:
    """It was learned at rankers of the client that has left: the next release is that of a device that carried nothing."""
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, client_momentum=0.8))
    sent = []
    for carries in (True, False):
        device, user = device_of(simulator, tmp_path / f"{carries}", 2), user_of(simulator, 2)
        answered(device, user, task_of(simulator, 0))
        if carries:
            rebuilding = task_of(simulator, 0, run=rebuilding_name("run", 1, 1))
            assert decode_reply(Answering(device).answer_rebuilding(rebuilding)).release.any()
        else:
            device.store.drop_fact("carried")
        sent.append(decode_reply(answered(device, user, task_of(simulator, 1))).release.tobytes())
    assert sent[0] == sent[1]


def test_a_task_is_answered_once_and_then_always_the_same(tiny_collection, tmp_path) -> None:
    """With noise of its own a second answer would differ; it must not."""
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=PublishedLaplace()))
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    task = task_of(simulator)
    first = answered(device, user, task)
    search(device, user, 7)
    assert device.answer(task) == first
    assert device.answer(task_of(simulator, clients=(0,))) == first  # addressed in another way, the same task
    device.store.close()
    again = device_of(simulator, tmp_path)
    assert again.answer(task) == first
    assert len(again.store.releases()) == 1
    assert again.store.waiting() == 7
    other = task_of(simulator, theta=random_theta(simulator))
    assert again.answer(other) == Declined("repeated")


def test_threads_that_ask_at_once_get_one_release(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=PublishedLaplace()))
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    task = task_of(simulator)
    device.answer(task)
    search(device, user, 9)
    with ThreadPoolExecutor(4) as pool:
        replies = set(pool.map(device.answer, [task] * 8))
    assert len(replies) == 1
    assert device.store.waiting() == 6


def test_old_tasks_and_tasks_of_others_are_declined(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection)
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    answered(device, user, task_of(simulator, 2))
    search(device, user, 5)
    size = simulator.simulation.parameters
    for task, code in (
        (task_of(simulator, 1), "old"),
        (task_of(simulator, 0), "old"),
        (task_of(simulator, 3, run="other"), "run"),
        (task_of(simulator, 3, clients=(1,)), "client"),
        (task_of(simulator, 3, clients=(0, 1)), "client"),
        (task_of(simulator, 4), "over"),
        (task_of(simulator, 3, np.zeros(size + 1)), "task"),
        (task_of(simulator, 3, np.full(size, np.nan)), "task"),
        (task_of(simulator, 3, private={"clip": np.ones(1)}), "task"),
        (b"", "malformed"),
        (task_of(simulator, 3)[:-1], "malformed"),
    ):
        assert device.answer(task) == Declined(code)
    assert device.store.waiting() == 5
    assert isinstance(device.answer(task_of(simulator, 3)), bytes)


def memory_of(clip: float) -> dict[str, np.ndarray]:
    """What a task says of a round's privacy with this clip."""
    return {"clip": np.array([clip]), "unit": np.array([grid_unit(clip, CLIENTS)])}


def test_a_clip_far_from_the_agreed_one_is_declined(tiny_collection, tmp_path) -> None:
    part = ClippedGaussian(epsilon=100.0, clip=0.1, quantile=0.5, noise_multiplier=1.0)
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=part))
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    for clip in (np.nan, np.inf, -1.0, 0.0, 101.0, 0.99e-4):
        task = task_of(simulator, private=memory_of(clip))
        assert device.answer(task) == Declined("task")
    for private in ({"clip": np.array([0.02])}, memory_of(0.02) | {"unit": np.array([1.0])}):
        assert device.answer(task_of(simulator, private=private)) == Declined(
            "task"
        )  # an older coordinator, or a false one
    reply = decode_reply(answered(device, user, task_of(simulator, private=memory_of(0.02))))
    assert np.array_equal(reply.release, np.rint(reply.release))
    assert np.linalg.norm(reply.release) / grid_unit(0.02, CLIENTS) == pytest.approx(0.02)
    assert not reply.within


def test_without_consent_or_with_too_few_interactions_nothing_leaves(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection)
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    task = task_of(simulator)
    assert device.answer(task) == Declined("waiting")
    for _ in range(2):
        user(device)
        assert not device.ready()
        assert device.answer(task) == Declined("waiting")
    user(device)
    assert device.ready()
    with PrivateStore(tmp_path, owner=False) as other:  # another process, while the device runs
        other.set_consent(False, 5.0)
    assert not device.ready()
    assert device.answer(task) == Declined("consent")
    assert not device.store.releases()
    device.store.set_consent(True, 6.0)
    assert isinstance(device.answer(task), bytes)
    device.store.set_consent(False, 7.0)
    assert device.answer(task) == Declined("consent")  # not even what was sent before
    assert [given for _, given in device.store.consents()] == [True, False, True, False]


def test_nobody_has_consented_at_first(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection)
    device = Device(PrivateStore(tmp_path), terms_of(simulator, 0))
    assert device.answer(task_of(simulator)) == Declined("consent")


@pytest.mark.parametrize("point", ["learned", "before the commit", "after the commit"])
def test_killed_at_any_point_it_sends_the_same_bytes_and_uses_interactions_once(
    point, tiny_collection, tmp_path, monkeypatch
) -> None:
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=PublishedLaplace()))
    task, user = task_of(simulator), user_of(simulator)
    device = device_of(simulator, tmp_path)
    device.answer(task)
    search(device, user, 4)
    device.store.close()

    def dies() -> None:
        mine = device_of(simulator, tmp_path)
        if point == "learned":
            monkeypatch.setattr(device_module, "with_fresh_secret", lambda *_: shoot())
        elif point == "before the commit":
            monkeypatch.setattr(mine.store, "trim", lambda _: shoot())
        reply = mine.answer(task)
        (tmp_path / "reply").write_bytes(reply)
        shoot()

    killed(dies)
    device = device_of(simulator, tmp_path)
    done = point == "after the commit"
    assert device.store.waiting() == (1 if done else 4)
    reply = device.answer(task)
    if done:
        assert reply == (tmp_path / "reply").read_bytes()
    assert device.store.waiting() == 1
    assert len(device.store.releases()) == 1
    assert device.answer(task) == reply


def test_a_full_disk_changes_nothing(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, ranker=MLP(hidden=60))
    device, user = device_of(simulator, tmp_path / "full"), user_of(simulator)
    task = task_of(simulator, 0, random_theta(simulator))
    expected = answered(device_of(simulator, tmp_path / "other"), user, task)
    device.answer(task)
    search(device, user, 3)
    database = device.store.database
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages}")
    assert device.answer(task) == Declined("storage")
    turn = device.turn
    with pytest.raises(OSError, match="No space left"):
        user(device)
    assert device.turn == turn
    assert device.store.waiting() == 3
    assert not device.store.releases()
    database.execute("PRAGMA max_page_count = 1000000")
    assert device.answer(task) == expected


@pytest.mark.parametrize("privacy", [NoPrivacy(), Signs()], ids=str)
def test_an_update_that_is_not_finite_stays(privacy, tiny_collection, tmp_path) -> None:
    federation = Federation(CLIENTS, 3, learner=PDGD(eta=1e308), privacy=privacy)
    simulator = simulator_of(tiny_collection, federation)
    device = device_of(simulator, tmp_path)
    device.answer(task_of(simulator))
    rows = 1e3 * np.random.default_rng(0).normal(size=(4, simulator.simulation.data.n_features))
    with np.errstate(all="ignore"):
        for _ in range(3):
            device.record(device.rank(rows), [1, 0, 0, 0])
        assert device.answer(task_of(simulator)) == Declined("numbers")
    assert not device.store.releases()


def test_query_texts_are_not_kept_unless_asked_for(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection)
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    device.answer(task_of(simulator))
    search(device, user, 2)
    assert device.store.rows("SELECT query FROM interactions") == [(None,), (None,)]


def test_whatever_goes_wrong_says_one_of_the_fixed_sentences(tiny_collection, tmp_path, monkeypatch, caplog) -> None:
    simulator = simulator_of(tiny_collection)
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    device.answer(task_of(simulator))
    search(device, user, 3)
    secret = f"{tmp_path} my query doc-17"

    def fails(*_):
        raise RuntimeError(secret)

    monkeypatch.setattr(device.store, "interactions", fails)
    declined = device.answer(task_of(simulator))
    assert declined == Declined("fault")
    assert secret not in repr(declined) + declined.sentence
    assert secret not in caplog.text and "RuntimeError at test_device:" in caplog.text  # what happened, and where
    assert all(re.fullmatch("[a-z' ]+", sentence) for sentence in REASONS.values())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=80), cut=st.integers(0, 300), flip=st.integers(0, 300))
def test_no_bytes_make_a_device_raise(content, cut, flip, tiny_collection, tmp_path_factory) -> None:
    simulator = simulator_of(tiny_collection)
    device = _shared_device(simulator, tmp_path_factory)
    good = bytearray(task_of(simulator))
    assert isinstance(device.answer(content), Declined)
    assert isinstance(device.answer(bytes(good[:cut]) + content), Declined)
    good[flip % len(good)] ^= 0x41
    assert isinstance(device.answer(bytes(good)), Declined)


def _shared_device(simulator, factory, made=[]):  # noqa: B006  one device for all examples
    if not made:
        made.append(device_of(simulator, factory.mktemp("bytes")))
    return made[0]


def test_noise_is_the_device_s_own_and_fresh_for_each_release(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=PublishedLaplace()))
    user, task = user_of(simulator), task_of(simulator)
    plain = simulator_of(tiny_collection, Federation(CLIENTS, 3))
    bound = simulator.mechanism.bound
    assert bound < np.inf
    replies = [decode_reply(answered(device_of(simulator, tmp_path / n), user, task)).release for n in "abc"]
    (addressed,) = simulator.replies(decode_task(task), np.array([0]))
    update = decode_reply(answered(device_of(plain, tmp_path / "p"), user, task)).release
    for one in replies:
        assert not np.array_equal(one, addressed.release)  # the run's seed does not know this noise
        assert not np.array_equal(one, update)
    assert not np.array_equal(replies[0], replies[1])
    assert not np.array_equal(replies[1], replies[2])
    mechanism = terms_of(simulator, 0).mechanism
    one, two = with_fresh_secret(mechanism, lambda n: b"\x01" * n), with_fresh_secret(mechanism, lambda n: b"\x02" * n)
    assert one.seed != two.seed != mechanism.seed
    assert one.part == mechanism.part


def test_the_log_says_what_was_sent_and_against_whom_it_is_protected(tiny_collection, tmp_path) -> None:
    part = ClippedGaussian(epsilon=100.0, noise_multiplier=1.0)
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=part), rounds=REPLIES + 3)
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    replies = [answered(device, user, task_of(simulator, t)) for t in range(REPLIES + 3)]
    log = device.store.releases()
    assert [entry.round for entry in log] == list(range(1, REPLIES + 4))
    assert [entry.size for entry in log] == [len(reply) for reply in replies]
    assert [entry.reply is None for entry in log] == [True] * 3 + [False] * REPLIES
    assert device.answer(task_of(simulator, REPLIES + 2)) == replies[-1]
    assert device.answer(task_of(simulator, 0)) == Declined("repeated")
    device.store.set_note("terms", device.terms.table())
    privacy = device_log(device.store)["releases"][0]["privacy"]
    assert privacy["kind"] == "gaussian"
    assert privacy["delta"] == part.delta
    assert privacy["epsilon"] > 0
    assert "not against the coordinator" in privacy["standing"]


@pytest.mark.parametrize("step", ["batch", "interaction"])
def test_lists_of_an_older_ranker_weigh_as_they_were_drawn(step, tiny_collection, tmp_path) -> None:
    """Eqs 5 and 6 pair by pair: ρ by the ranker that showed the list, the gradient at the one of the task."""
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, learner=PDGD(eta=0.5, step=step)))
    old, new = random_theta(simulator, 1), random_theta(simulator, 2)
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    device.answer(task_of(simulator, 0, old))
    search(device, user, 3)
    interactions = [interaction for _, interaction in device.store.interactions(0, 3)]
    late = decode_reply(device.answer(task_of(simulator, 2, new))).release
    assert device.store.ranker.round == 2
    local, pairs = new.copy(), 0
    for one in interactions:
        x, order = one.shown.padded_features[:, : len(old)].astype(float), one.shown.order.tolist()
        at = new if step == "batch" else local
        then, now, gradient = one.shown.scores.astype(float), x @ at, np.zeros(len(old))
        clicked = np.flatnonzero(one.clicks)
        last = min(clicked[-1] + 1, len(order) - 1) if len(clicked) else -1
        for a in range(last + 1):
            for b in range(last + 1):
                if one.clicks[a] and not one.clicks[b]:
                    swapped = order.copy()
                    swapped[a], swapped[b] = order[b], order[a]
                    shown, other = list_probability(order, then), list_probability(swapped, then)
                    slope = 1.0 / (2.0 + 2.0 * np.cosh(now[order[a]] - now[order[b]]))
                    gradient += other / (shown + other) * slope * (x[order[a]] - x[order[b]])
                    pairs += 1
        local += 0.5 * gradient
    assert pairs > 5
    np.testing.assert_allclose(late, local - new, rtol=1e-4, atol=1e-7)


def test_a_guard_keeps_a_poisoned_ranker_from_the_owner_s_lists(tiny_collection, tmp_path) -> None:
    """The ranker of all turned round is not shown, its task is answered as ever; an honest one is taken again."""
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, learner=PDGD(eta=0.1)))
    good, user = 3.0 * state_after(simulator, 30).theta, user_of(simulator)
    poisoned = task_of(simulator, 1, -good)
    for guard in (None, ClickGuard(least=8)):
        device = device_of(simulator, tmp_path / str(guard is None))
        device.guard = guard
        assert device.answer(task_of(simulator, 0, good)) == Declined("waiting")
        search(device, user, 60)
        assert isinstance(device.answer(poisoned), bytes)
        shown_by = device.store.ranker
        assert shown_by is not None
        expected = -good if guard is None else good
        assert shown_by.theta.tolist() == expected.tolist()
        assert isinstance(device.answer(task_of(simulator, 2, 1.05 * good)), bytes)
        assert device.store.ranker.theta.tolist() == (1.05 * good).tolist()


def test_a_device_rests_and_answers_no_oftener_than_was_agreed(tiny_collection, tmp_path) -> None:
    """A coordinator that asks in every round, and has forgotten what it asked: the device has not."""
    part = Arrivals(enough=CLIENTS, least=2, most=2, rest=2)
    federation = Federation(CLIENTS, 3, participation=part, privacy=ClippedGaussian(epsilon=100.0, clip=0.1))
    simulator = simulator_of(tiny_collection, federation, rounds=12)
    device, user = device_of(simulator, tmp_path), user_of(simulator)
    found = []
    for round_ in range(8):
        task = task_of(simulator, round_)
        device.answer(task)
        while not device.ready():
            user(device)
        found.append(device.answer(task))
        device.store.close()
        device = device_of(simulator, tmp_path)  # all of it is on disk
    codes = [one.code if isinstance(one, Declined) else "" for one in found]
    assert codes == ["", "resting", "resting", "", *["often"] * 4]
    assert device.answer(task_of(simulator, 3)) == found[3], "what was sent is sent again, and is no further answer"
    assert device.store.ranker.round == 7, "the newest ranker is used all the same"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"n_features": 2**31 - 1}, "terms.too-large"),
        ({"n_features": 2000, "ranker": {"kind": "mlp", "hidden": 4096}}, "terms.too-large"),
        ({"k": 2**31 - 1}, "value.out-of-range"),
        ({"rounds": 2**31 - 1, "report_epsilon": 1.0}, "value.out-of-range"),
        ({"setting": Setting(9, 3, 2**31 - 1, "sampled").table()}, "value.out-of-range"),
        ({"run": "spring\x1b]0;owned\x07"}, "run.name"),
        ({"run": "\u202egnirps"}, "run.name"),
    ],
    ids=str,
)
def test_terms_that_no_device_can_hold_or_show_are_refused(change, code, tiny_collection, tmp_path) -> None:
    terms = terms_of(simulator_of(tiny_collection, Federation(6, 3)), 0).table() | change
    made = Invitation("desk", "https://127.0.0.1:9", bytes(32), terms, code=bytes(32))
    made.write(tmp_path / "desk.json")
    with refused(code):
        Client.open(tmp_path / "device", tmp_path / "desk.json")
    with refused("invitation.damaged"):
        replace(made, name="desk\x1b[2J")


def test_terms_of_an_experiment_may_be_of_more_clients_than_its_file_plans_with() -> None:
    federation = Federation(20, 2, participation=Arrivals(enough=10, least=2, most=3, rest=1))
    terms = experiment_terms(Experiment(federation=federation, rounds=9), 46, 5000, report_epsilon=0.5)
    assert (terms.client, terms.setting.turns.most, terms.setting.turns.rest) == (5000, 3, 1)
    assert terms.reports["epsilon"] == pytest.approx(0.5 * 3), "one report for each round that it answers"
    with refused("value.out-of-range", "--client 5000"):
        experiment_terms(Experiment(federation=Federation(20, 2), rounds=9), 46, 5000)


def test_noise_of_a_device_s_terms_does_not_depend_on_how_many_are_enrolled() -> None:
    part = ClippedGaussian(3.0)
    few, many = (Setting(n, 50, 20, "arrivals", parameters=5, most_rounds=4) for n in (50, 10**6))
    assert part.mechanism(few, 0).start()["unit"].tolist() == part.mechanism(many, 0).start()["unit"].tolist()
    assert part.mechanism(few, 0).noise_multiplier == part.mechanism(many, 0).noise_multiplier

"""Page of what was learned and sent: choices, the personal part, rankers, joining, pausing, withdrawing, forgetting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from html_pages import Seen
from own_search import NOTES, OwnSearch, own_search
from small_service import SmallService

from quorank.learning import Counterfactual
from quorank.member.private_store import StoredRelease
from quorank.privacy import ClippedGaussian, Setting
from quorank.protocol.terms import Terms
from quorank.search.ranking.personal_part import RankerTrial
from quorank.search.ranking.search_features import SEARCH_FEATURES, shipped_parameters


@pytest.fixture
def own(tmp_path: Path):
    with own_search(tmp_path) as found:
        found.add()
        yield found


def learned(own: OwnSearch, address: str = "/learned") -> Seen:
    answer = own.browser.get(address)
    assert answer.status_code == 200
    return Seen(answer.text)


def submit(own: OwnSearch, change: str, **fields):
    return own.submit(f"/api/{change}", back="/learned", **fields)


def choose(own: OwnSearch, query: str, name: str) -> None:
    own.search.choose(own.search.find(query).token, own.document(name))


def invitation(folder: Path, **changes) -> Path:
    values = {"learner": Counterfactual(), "interactions": 2} | changes
    service = SmallService(Terms("roses", 0, len(shipped_parameters()), 5, **values))
    service.url = "https://127.0.0.1:9"
    return service.invitation(folder / "invitation.json")


def test_choices_and_what_they_moved_are_shown(own: OwnSearch) -> None:
    for _ in range(3):
        choose(own, "roses", "money/budget.txt")
    choose(own, "garden", "travel.html")
    page = learned(own)
    assert "roses → budget.txt" in page.text and "garden → Travel to Lisbon" in page.text
    html = own.browser.get("/learned").text
    table = html.split('id="features"')[1].split("</table>")[0]
    shift = own.search.parameters - shipped_parameters()
    shown = [name for name, by in zip(SEARCH_FEATURES, shift, strict=True) if abs(by) >= 0.005]
    assert shown and table.count('<th scope="row">') == len(shown)
    for name, by in zip(SEARCH_FEATURES, shift, strict=True):
        if abs(by) >= 0.005:
            row = table.split(f'<th scope="row">{name}</th>')[1].split("</tr>")[0]
            assert f"{by:+.2f}".replace("-", "−") in row


def test_a_query_or_a_result_is_forgotten(own: OwnSearch) -> None:
    choose(own, "roses", "money/budget.txt")
    choose(own, "garden", "money/budget.txt")
    choose(own, "tulips", "garden/tulips.txt")
    assert submit(own, "forget", query="roses").headers["location"] == "/learned?done=query"
    assert [choice.query for choice in own.search.history.choices()] == ["garden", "tulips"]
    submit(own, "forget", document=own.document("money/budget.txt"))
    assert [choice.query for choice in own.search.history.choices()] == ["tulips"]
    assert own.search.index.count() == len(NOTES) - 1
    own.search.index.forget([own.document("garden/tulips.txt")])
    assert "no longer indexed" in learned(own).text


def test_what_cannot_be_undone_asks_whether_one_is_sure(own: OwnSearch) -> None:
    choose(own, "roses", "money/budget.txt")
    for change, fields in (("reset", {}), ("forget", {"all": "yes"}), ("leave", {})):
        for sure in ({}, {"sure": "no"}):
            assert submit(own, change, **fields, **sure).status_code == 400
    assert len(own.search.history.choices()) == 1
    assert submit(own, "reset", sure="yes").status_code == 303
    assert own.search.history.choices() == [] and own.search.index.count() == len(NOTES)
    assert submit(own, "forget", all="yes", sure="yes").status_code == 303
    assert own.search.index.count() == 0 and own.search.index.sources() == []
    assert "Everything is forgotten" in learned(own, "/learned?done=everything").text
    assert (own.notes / "money/budget.txt").exists()


def test_trials_of_received_rankers(own: OwnSearch) -> None:
    theta = shipped_parameters()
    own.search.history.note_trial(1.7e9, "run", 3, RankerTrial(2, 0.0, 0.0, True), theta, 3)
    own.search.history.note_trial(1.7e9, "run", 4, RankerTrial(50, -0.125, 0.02, False), theta, 4)
    own.search.history.note_trial(1.7e9, "run", 5, RankerTrial(50, 0.25, 0.02, True), theta, 5)
    own.search.history.note_trial(1.7e9, "run", 6, RankerTrial(1, 0.0, 0.0, False), theta * np.nan, 6)
    lines = own.browser.get("/learned").text.split('id="trials"')[1].split("</ul>")[0].split("<li>")[1:]
    texts = [" ".join(Seen(line).text.split()) for line in lines]
    assert "after round 6 rejected: it has invalid numbers" in texts[0]
    assert "after round 5 accepted: on 50 past choices the mean gain changes by +0.250 ± 0.020" in texts[1]
    assert "after round 4 rejected: on 50 past choices the mean gain changes by −0.125 ± 0.020" in texts[2]
    assert "after round 3 accepted: 2 choices are too few" in texts[3]
    assert "3 of 4 received" not in learned(own).text and "2 of 4 received" in learned(own).text


def test_joining_agrees_to_nothing_and_sends_nothing(own: OwnSearch, tmp_path: Path) -> None:
    path = invitation(tmp_path)
    (tmp_path / "home" / "policy.toml").write_text("unstated = true\ncohort = 1\n")
    assert submit(own, "join", invitation=str(path)).headers["location"] == "/learned?done=joined"
    page = learned(own)
    assert "Paused" in page.text and "in roses at https://127.0.0.1:9" in page.text
    assert page.all("button", role="switch")[0]["aria-checked"] == "false"
    assert own.search.membership.status()["consent"] is False
    assert submit(own, "consent", given="yes").headers["location"] == "/learned?done=agreed"
    assert own.search.membership.status()["consent"] is True
    assert learned(own).all("button", role="switch")[0]["aria-checked"] == "true"
    submit(own, "consent", given="no")
    page = learned(own)
    assert own.search.membership.status()["consent"] is False and page.text.count("agreed to take part") == 1
    choose(own, "roses", "money/budget.txt")
    assert "1 of them are waiting" in learned(own).text
    assert submit(own, "leave", sure="yes").headers["location"] == "/learned?done=left", "it never enrolled"
    assert not own.search.membership.joined and learned(own).all("input", name="invitation")
    assert submit(own, "join", invitation=str(path)).status_code == 303, "whoever withdrew may join again"


def test_a_run_beyond_the_owner_s_policy_cannot_be_agreed_to(own: OwnSearch, tmp_path: Path) -> None:
    submit(own, "join", invitation=str(invitation(tmp_path)))
    page = learned(own)
    assert "No ε is stated" in page.text and "asks for at least 10" in page.text
    assert not page.all("button", role="switch")
    assert submit(own, "consent", given="yes").status_code == 400
    assert own.search.membership.status()["consent"] is False


def test_what_the_whole_run_may_spend_is_said_before_anything_is_sent(own: OwnSearch, tmp_path: Path) -> None:
    setting = Setting(1000, 1000, 5, interactions=2, parameters=len(shipped_parameters()))
    path = invitation(tmp_path, privacy=ClippedGaussian(clip=1.0, epsilon=2.0, delta=1e-5), setting=setting)
    submit(own, "join", invitation=str(path))
    text = " ".join(learned(own).text.split())
    assert "ε spent 0.00 of 2.00 for the whole run, δ = 1e-5" in text
    client = own.search.membership.client
    with client.store.transaction():  # the device's reply to the first round
        client.store.add_release(StoredRelease("roses", 1, 1.7e9, 2, 100, {"kind": "clipped-gaussian"}, b"r"), ())
    spent = client.terms.mechanism.statement(1)
    assert spent is not None and 0 < spent["epsilon"] < 2
    text = " ".join(learned(own).text.split())
    assert f"ε spent {spent['epsilon']:.2f} of 2.00" in text and "your last release was for round 1" in text
    beyond = Setting(1, 1, 5, interactions=2, parameters=len(shipped_parameters()))
    submit(own, "leave", sure="yes")
    path = invitation(tmp_path, privacy=ClippedGaussian(clip=1.0, epsilon=0.1, delta=1e-5), setting=beyond)
    submit(own, "join", invitation=str(path))
    assert "none stated" in learned(own).text, "terms that no noise fits can still be read, and left"


@pytest.mark.parametrize(
    "fields", [{}, {"invitation": "/nowhere/x.json"}, {"invitation": "a\0b"}, {"invitation": "x" * 5000}]
)
def test_a_bad_invitation_is_a_sentence_on_the_page(own: OwnSearch, fields: dict[str, str]) -> None:
    answer = submit(own, "join", **fields)
    assert answer.status_code == 400 and Seen(answer.text).all("p", role="alert")
    assert not own.search.membership.joined

"""A person's search from files to lists: habits, lists that stay, opening, forgetting without a trace, joining."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from quorank.errors import BadInput
from quorank.learning.counterfactual import Counterfactual
from quorank.learning.online import OnlineRanker
from quorank.learning.pdgd import PDGD
from quorank.protocol.invitation import Invitation
from quorank.rankers import Linear
from quorank.search.personal_search import PersonalSearch
from quorank.search.ranking.choice_history import ChoiceHistory, query_key
from quorank.search.ranking.personal_part import ChosenList
from quorank.search.ranking.search_features import SEARCH_FEATURES
from quorank.search.sources import FilesSource

WORDS = ["harbour", "lantern", "meadow", "orchard", "quarry", "saddle", "timber", "violet", "willow", "zephyr"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    random = np.random.default_rng(1)
    for number in range(40):
        text = " ".join(random.choice(WORDS, 60).tolist())
        (folder / f"note-{number:02}.txt").write_text(f"Note {number}\n\n{text} uniquetoken{number:02}xq\n")
    (folder / "harbour.txt").write_text("the harbour itself\n")
    return folder


@pytest.fixture
def search(tmp_path: Path, files: Path) -> PersonalSearch:
    opened = PersonalSearch.open(tmp_path / "home")
    opened.update(opened.add(FilesSource(str(files))))
    yield opened
    opened.close()


def paths(search: PersonalSearch, text: str, **how: object) -> list[str]:
    return [Path(result.path).name for result in search.find(text, **how).results]  # type: ignore[arg-type]


def test_an_item_chosen_eight_times_of_ten_is_first_in_its_band(search: PersonalSearch) -> None:
    text = "lantern meadow"
    page = search.find(text)
    usual, other = page.results[7], page.results[4]
    assert len({result.band for result in page.results}) == 1
    for turn in range(10):
        now = search.find(text)
        search.choose(now.token, (other if turn in (2, 5) else usual).document)
    after = search.find(text).results
    assert after[0].document == usual.document and after[0].band == usual.band
    assert after[0].habit == "chosen 8 of the last 10 times for this query"
    exact = search.find("harbour")
    assert Path(exact.results[0].path).name == "harbour.txt" and exact.results[0].band == "exact name"
    for _ in range(10):
        now = search.find("harbour")
        search.choose(now.token, now.results[3].document)
    assert Path(search.find("harbour").results[0].path).name == "harbour.txt", "nothing leaves its band"


def test_a_list_without_new_choices_is_the_same_twice_also_after_a_restart(search: PersonalSearch) -> None:
    page = search.find("orchard timber")
    search.choose(page.token, page.results[5].document)
    before = [(r.document, r.score) for r in search.find("orchard timber", limit=40).results]
    assert before == [(r.document, r.score) for r in search.find("orchard timber", limit=40).results]
    with PersonalSearch.open(search.home.folder) as again:
        assert before == [(r.document, r.score) for r in again.find("orchard timber", limit=40).results]


def test_the_reasons_add_up_to_the_score_and_to_the_order(search: PersonalSearch) -> None:
    page = search.find("willow zephyr")
    search.choose(page.token, page.results[2].document)
    results = search.find("willow zephyr").results
    assert len(results) == 10
    for result in results:
        assert sum(share.share for share in result.shares) == pytest.approx(result.score, abs=1e-6)
        assert {share.feature for share in result.shares} <= set(SEARCH_FEATURES)


def test_a_choice_counts_once_a_search_and_lists_by_date_teach_no_order(search: PersonalSearch) -> None:
    page = search.find("saddle")
    for _ in range(3):
        assert search.choose(page.token, page.results[1].document) == page.results[1].path
    assert len(search.history.choices()) == 1
    newest = search.find("saddle", order="date")
    before = search.parameters
    search.choose(newest.token, newest.results[6].document)
    assert len(search.history.choices()) == 2 and len(search.history.lists(1)[0].features) == 1
    assert search.parameters == pytest.approx(before, abs=1e-9), "an opening, of which no order follows"
    assert search.choose("unknown", page.results[0].document) == page.results[0].path
    assert len(search.history.choices()) == 2
    with refused("document.missing"):
        search.choose(page.token, 10**9)


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def traces(content: bytes, *texts: str) -> list[str]:
    return [text for text in texts if text.encode() in content or text.encode("utf-16-le") in content]


def test_after_forgetting_no_byte_of_text_query_or_choice_is_in_any_file(search: PersonalSearch, files: Path) -> None:
    text, home = "uniquetoken07xq quarry", search.home.folder
    for _ in range(3):
        page = search.find(text)
        search.choose(page.token, page.results[0].document)
    other = search.find("violet")
    search.choose(other.token, other.results[0].document)
    (one,) = [choice for choice in search.history.lists(10) if choice.query == query_key(text)][:1]
    row = np.ascontiguousarray(one.features[:3], dtype="<f4").tobytes()
    assert traces(bytes_of(home), "uniquetoken07xq") and row in bytes_of(home)
    search.forget_documents([page.results[0].document])
    content = bytes_of(home)
    assert not traces(content, "uniquetoken07xq", query_key(text)) and row not in content
    assert [choice.query for choice in search.history.choices()] == ["violet"]
    search.update(1)
    assert "note-07.txt" not in paths(search, "quarry", limit=60), "what is forgotten is not indexed again"
    assert search.forget_query("violet") == 1
    assert not search.history.choices()
    search.forget_all()
    search.close()
    assert not traces(bytes_of(home), *WORDS, "note-1", str(files))


def test_choices_of_another_process_are_seen_at_once(search: PersonalSearch) -> None:
    page = search.find("meadow")
    with PersonalSearch.open(search.home.folder) as other:
        for _ in range(4):
            now = other.find("meadow")
            other.choose(now.token, page.results[6].document)
    assert search.find("meadow").results[0].document == page.results[6].document
    assert search.reset() == 4
    assert paths(search, "meadow") == [Path(result.path).name for result in page.results]


def test_past_choices_are_those_of_a_brute_count(tmp_path: Path) -> None:
    history, random = ChoiceHistory(tmp_path, 2), np.random.default_rng(5)
    log = []
    for at in range(60):
        query, document = random.choice(["a", "a b", "a bc", "c"]), (1, f"k{random.integers(3)}")
        history.add(float(at), query.upper() + " ", document, ChosenList(np.zeros((2, 2), np.float32), 0, 1))
        log.append((query, document, float(at)))
    for query in ("a", "a b", "c", "nothing", ""):
        past = history.past(query)
        here = [document for q, document, _ in log if q == query][-10:]
        longer = [document for q, document, _ in log if query and q.startswith(query) and q != query][-10:]
        assert past.here == {document: here.count(document) for document in here} and past.total == len(here)
        assert past.longer == {document: longer.count(document) for document in longer}
        others = [(document, time) for q, document, time in log if q != query]
        assert past.opened == {d: [t for e, t in others if e == d] for d in {d for d, _ in others}}
    history.close()


def invitation(**changes: object) -> dict[str, object]:
    from quorank.experiments.deployment import terms_of
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import parse_experiment_file

    learner = changes.pop("learner", "counterfactual")
    text = f'[learner]\nkind = "{learner}"\n[federation]\nclients = 4\nrounds = 5\n'
    terms = terms_of(
        Experiment.read(parse_experiment_file(text, "e")), changes.pop("features", len(SEARCH_FEATURES)), 0
    )  # type: ignore[arg-type]
    return terms.table()


@pytest.mark.parametrize(
    ("changes", "code"), [({"features": 46}, "search.other-features"), ({"learner": "pdgd"}, "search.other-learner")]
)
def test_federations_of_something_else_are_refused_before_anything_is_kept(
    search: PersonalSearch, tmp_path: Path, changes: dict[str, object], code: str
) -> None:
    file = tmp_path / "anna.json"
    made = Invitation("anna", "https://127.0.0.1:1", bytes(32), invitation(**changes), code=bytes(32))
    made.write(file)
    with refused(code, str(file)):
        search.membership.join(file)
    assert not search.membership.joined and search.status()["federation"] is None


def test_a_choice_is_given_to_the_device_and_forgotten_with_it(search: PersonalSearch, tmp_path: Path) -> None:
    file = tmp_path / "anna.json"
    Invitation("anna", "https://127.0.0.1:1", bytes(32), invitation(), code=bytes(32)).write(file)
    search.membership.join(file)
    for text in ("harbour willow", "meadow", "timber"):
        page = search.find(text)
        search.choose(page.token, page.results[2].document)
    store = search.membership.client.store
    assert store.waiting() == 3
    lists = [(one.shown.padded_features[:, : len(SEARCH_FEATURES)], one.clicks) for one in store.latest_interactions(3)]
    for (features, clicks), kept in zip(reversed(lists), search.history.lists(3), strict=True):
        assert features.tobytes() == kept.features.tobytes() and np.flatnonzero(clicks).tolist() == [kept.chosen]
    assert search.membership.sync().outcome == "consent", "nothing leaves before the person agrees"
    features = np.ascontiguousarray(lists[0][0], dtype="<f4")
    row = features[3:6].tobytes()
    assert row in bytes_of(search.home.folder)
    assert search.forget_query("timber") == 1 and store.waiting() == 2
    assert row not in bytes_of(search.home.folder), "no trace of the list in the device's file either"
    with PersonalSearch.open(search.home.folder) as other:
        assert (other.status()["federation"] or {})["waiting"] == 2, "also while this process plays the device"
        with pytest.raises(BadInput, match="another process runs this device"):
            other.forget_query("meadow")
        assert len(other.history.choices()) == 2, "nothing is half forgotten"
    search.forget_all()
    assert not search.membership.joined


def test_a_list_in_an_order_of_its_own_is_learned_from_by_ranks() -> None:
    """Where the order is the ranker's, the update is that of the list that the learner draws itself."""
    random = np.random.default_rng(3)
    theta, features = random.normal(size=6), random.random((8, 6)).astype(np.float32)
    clicks = np.array([0, 0, 1, 0, 0, 0, 1, 0])
    drawn, presented = (OnlineRanker(theta, 6, Linear(), Counterfactual(), k=8) for _ in range(2))
    shown = drawn.rank(features)
    drawn.learn(shown, clicks)
    presented.learn(presented.present(features[shown.order]), clicks)
    assert presented.update == pytest.approx(drawn.update, abs=1e-12) and drawn.update.any()
    reverse = OnlineRanker(theta, 6, Linear(), Counterfactual(), k=8)
    reverse.learn(reverse.present(features[shown.order[::-1]]), clicks[::-1])
    assert not np.allclose(reverse.update, drawn.update), "the same clicks at other ranks say something else"
    with refused("list.not-drawn", "learner"):
        OnlineRanker(theta, 6, Linear(), PDGD(), k=8).present(features)


def test_pages_go_on_where_the_last_ended(search: PersonalSearch) -> None:
    whole = paths(search, "violet", limit=30)
    assert paths(search, "violet", limit=10) + paths(search, "violet", limit=10, first=10) == whole[:20]
    assert search.find("violet", limit=5).found >= len(whole)

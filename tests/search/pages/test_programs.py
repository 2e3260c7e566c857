"""JSON for programs: what is found, chosen and forgotten is what the search itself says; bad requests are codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_search import NOTES, OwnSearch, own_search


@pytest.fixture
def own(tmp_path: Path):
    with own_search(tmp_path) as found:
        found.add()
        yield found


def ask(own: OwnSearch, path: str):
    answer = own.program.get(path)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    return answer.json()


def order(own: OwnSearch, path: str, **table):
    answer = own.program.post(path, json=table)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_find_and_why_are_those_of_the_search(own: OwnSearch) -> None:
    found, expected = ask(own, "/api/find?q=roses&limit=3"), own.search.find("roses", limit=3)
    assert [one["document"] for one in found["results"]] == [one.document for one in expected.results]
    assert set(found["results"][0]) == {"document", "path", "title", "source", "band", "score", "modified"}
    assert found["found"] == expected.found == len(NOTES) and found["milliseconds"] > 0 and len(found["token"]) == 16
    assert found["results"][0]["path"].startswith(str(own.notes))
    assert ask(own, "/api/find?q=tul&typing=1")["found"] > ask(own, "/api/find?q=tul")["found"] == 0
    why = ask(own, "/api/why?q=roses&limit=2")["results"]
    assert [one["document"] for one in why] == [one["document"] for one in found["results"][:2]]
    assert sum(one["share"] for one in why[0]["features"]) == pytest.approx(why[0]["score"], abs=1e-4)


def test_choosing_learns_once_and_opens_nothing(own: OwnSearch) -> None:
    found = ask(own, "/api/find?q=roses")
    chosen = found["results"][2]
    for _ in range(2):
        assert order(own, "/api/choose", token=found["token"], document=chosen["document"]) == {"path": chosen["path"]}
    assert len(own.search.history.choices()) == 1 and ask(own, "/api/status")["choices"] == 1


def test_forgetting(own: OwnSearch) -> None:
    found = ask(own, "/api/find?q=roses")
    order(own, "/api/choose", token=found["token"], document=found["results"][1]["document"])
    assert order(own, "/api/forget", query="roses") == {"choices": 1}
    assert order(own, "/api/forget", document=found["results"][0]["document"]) == {"documents": 1}
    assert ask(own, "/api/status")["documents"] == len(NOTES) - 1
    assert order(own, "/api/reset") == {"choices": 0}
    assert order(own, "/api/forget", all=True) == {"all": True}
    status = ask(own, "/api/status")
    assert status["documents"] == 0 and status["sources"] == [] and status["reading"] is None


@pytest.mark.parametrize(
    ("path", "table", "status", "code"),
    [
        ("/api/choose", {"token": "x", "document": 999}, 404, "document.missing"),
        ("/api/choose", {"token": "x", "document": "/etc/passwd"}, 400, "request.malformed"),
        ("/api/choose", {"token": "x", "document": 1, "path": "/etc/passwd"}, 400, "request.malformed"),
        ("/api/forget", {"document": 999}, 404, "document.missing"),
        ("/api/forget", {"all": False}, 400, "request.malformed"),
        ("/api/forget", {"all": True, "query": "x"}, 400, "request.malformed"),
        ("/api/join", {"invitation": "/nowhere"}, 400, "file.unreadable"),
        ("/api/consent", {"given": True}, 400, "device.missing"),
    ],
)  # fmt: skip
def test_bad_orders_are_codes_and_change_nothing(
    path: str, table: dict, status: int, code: str, own: OwnSearch
) -> None:
    answer = own.program.post(path, json=table)
    assert (answer.status_code, answer.json()["code"]) == (status, code) and answer.json()["sentence"]
    assert own.search.index.count() == len(NOTES)


def test_what_nobody_expected_is_a_sentence_and_no_traceback(own: OwnSearch, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret path")

    monkeypatch.setattr(own.search, "find", fail)
    answer = own.program.get("/api/find?q=roses")
    assert answer.status_code == 500 and answer.json()["code"] == "page.failed" and "secret" not in answer.text
    monkeypatch.setattr(
        own.search, "find", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    answer = own.program.get("/api/find?q=roses")
    assert answer.status_code == 500 and answer.json()["code"] == "page.files"

"""docs/protocol.md and docs/openapi.json say what the service does, and a client written from them takes part."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_services import real_service, until
from signed_calls import NOISY, Caller, Desk, Got, folder_of, publish, reply_of

from quorank.federation.reply import decode_reply, longest_reply
from quorank.protocol import requests
from quorank.protocol.messages import leaving_request
from quorank.service.enrolment import invite
from quorank.service.intake.intake import OPERATOR

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
OPENAPI: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_bytes())


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(folder_of(tmp_path / "home"))
    yield found
    found.close()


def test_both_have_all_calls(desk: Desk) -> None:
    told = {(method.upper(), path) for path, item in OPENAPI["paths"].items() for method in item}
    operators = {("GET", path) for path in OPERATOR}
    assert told - operators == set(desk.intake.routes)
    assert operators <= told
    for method, path in told:
        assert f"`{method} {path}" in PAGE, f"{method} {path}"


def test_the_page_has_all_codes_and_their_statuses() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if re.match(r"\| `[a-z]+\.", line)]
    told = {code: int(row[2]) for row in rows for code in re.findall(r"`([a-z-]+\.[a-z-]+)`", row[1])}
    assert told.items() >= requests.STATUS.items()
    assert {code: requests.status_of(code) for code in told} == told


def resolved(item: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in item:
        return item
    found: Any = OPENAPI
    for key in item["$ref"].removeprefix("#/").split("/"):
        found = found[key]
    return found  # type: ignore[no-any-return]


def fits(schema: dict[str, Any], value: Any) -> bool:
    """Whether a value is what a schema says, as far as ours go."""
    schema = resolved(schema)
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    right = isinstance(value, types[schema["type"]]) if "type" in schema else True
    right = right and value == schema.get("const", value) and value in schema.get("enum", [value])
    if isinstance(value, str) and "pattern" in schema:
        right = right and re.fullmatch(schema["pattern"].strip("^$"), value) is not None
    if isinstance(value, dict):
        known = schema.get("properties", {})
        right = right and set(schema.get("required", [])) <= set(value)
        right = right and all(fits(known[key], one) for key, one in value.items() if key in known)
    if isinstance(value, list):
        right = right and all(fits(schema.get("items", {}), one) for one in value)
    return right


def check(method: str, path: str, got: Got) -> None:
    """An answer is one that the OpenAPI file has, with its headers and its body."""
    answers = OPENAPI["paths"][path][method.lower()]["responses"]
    assert str(got.status) in answers, (method, path, got)
    answer = resolved(answers[str(got.status)])
    headers = answer.get("headers", {})
    assert {name.lower() for name, header in headers.items() if header.get("required", True)} <= set(got.headers)
    content = answer.get("content", {})
    if "application/json" in content:
        assert fits(content["application/json"]["schema"], got.table)


def test_answers_are_those_of_the_openapi_file(desk: Desk, tmp_path: Path) -> None:
    assert desk.store.hold() is not None
    invitation = desk.invited("anna", tmp_path)
    anna = Caller(invitation.service)
    body = anna.enrolment(invitation.code)
    assert fits(OPENAPI["components"]["schemas"]["Enrolment"], json.loads(body))
    got = desk.call("POST", "/v1/enrol", body)
    check("POST", "/v1/enrol", got)
    anna.number = got.table["member"]
    check("POST", "/v1/enrol", desk.call("POST", "/v1/enrol", b"?"))
    for name, value in anna.headers("GET", "/v1/task").items():
        told = next(one for one in OPENAPI["components"]["parameters"].values() if one["name"].lower() == name)
        assert fits(told["schema"], value), name
    check("GET", "/v1/task", desk.signed(anna, "GET", "/v1/task"))
    publish(desk.home, desk.store)
    task = desk.signed(anna, "GET", "/v1/task")
    check("GET", "/v1/task", task)
    check("GET", "/v1/task", desk.signed(anna, "GET", "/v1/task", **{"If-None-Match": task.headers["etag"]}))
    for value in (0.1, 0.1, 0.2):
        check("POST", "/v1/reply", desk.signed(anna, "POST", "/v1/reply", reply_of(0, value=value)))
    check("GET", "/v1/mail", desk.signed(anna, "GET", "/v1/mail"))
    (number,) = desk.store.send([(0, b"a question")])
    check("GET", "/v1/mail", desk.signed(anna, "GET", "/v1/mail"))
    check("POST", "/v1/mail", desk.signed(anna, "POST", f"/v1/mail?id={number}", b"an answer"))
    check("GET", "/v1/leave", desk.signed(anna, "GET", "/v1/leave"))
    leaving = leaving_request(desk.home.terms(0), anna.key, 1.0, bytes(16))
    check("POST", "/v1/leave", desk.signed(anna, "POST", "/v1/leave", leaving))
    check("GET", "/v1/leave", desk.signed(anna, "GET", "/v1/leave"))
    check("GET", "/healthz", desk.call("GET", "/healthz"))


def test_the_page_has_the_longest_reply() -> None:
    assert "4,107 + 8·(parameters + 3)" in PAGE
    assert longest_reply(46) == 4107 + 8 * (46 + 3)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_client_in_javascript_takes_part(tmp_path: Path) -> None:
    with real_service(tmp_path / "home", workers=1, privacy=NOISY, minimum_members=2) as service:
        other = service.enrolled("other", tmp_path)  # does not reply, so that the round stays open
        until(lambda: service.signed(other, "GET", "/v1/task").status == 200, service.log)
        store = service.home.store()
        invite(service.home, store, "anna", tmp_path / "anna.json")
        rng = np.random.default_rng(0)
        clicks = [{"shown": rng.normal(size=(4, 5)).tolist(), "clicked": at % 4} for at in range(9)]
        (tmp_path / "clicks.json").write_text(json.dumps(clicks))

        def played() -> dict[str, Any]:
            words = ["node", str(ROOT / "examples" / "client.js"), "anna.json", "clicks.json"]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)  # type: ignore[no-any-return]

        first = played()
        assert (first["member"], first["round"], first["status"]) == (1, 0, 200)
        assert first["verdict"]["accepted"] is True
        assert played() == first, "the same key, the same reply"
        (stored,) = store.replies("run", 0)
        reply = decode_reply(stored.content, 5)
        assert (reply.client, reply.interactions) == (1, 3) and np.linalg.norm(reply.release) > 0.0
        assert (tmp_path / "key.json").stat().st_mode & 0o777 == 0o600
        body = reply_of(0, release=np.zeros(5))
        assert service.signed(other, "POST", "/v1/reply", body).status == 200
        until(lambda: service.signed(other, "GET", "/v1/task").headers["quorank-round"] == "1", service.log)
        told = store.document("status.json")
        assert told is not None and json.loads(told)["refused"] == {}, "the coordinator counted both"
        store.close()

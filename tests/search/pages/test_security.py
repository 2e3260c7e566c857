"""The pages answer their owner alone: other hosts, origins and people are refused, and nothing foreign is loaded."""

from __future__ import annotations

import os
import webbrowser
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from html_pages import Seen
from own_search import ADDRESS, PORT, TOKEN, OwnSearch, own_search, served_search

from quorank.search.pages.changes import CHANGES
from quorank.service.dashboard import access

PAGES = ("/", "/list", "/learned", "/sources", "/sources/list", "/static/pages.css", "/static/pages.js",
         "/api/find?q=a", "/api/why?q=a", "/api/status")  # fmt: skip


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory):
    with own_search(tmp_path_factory.mktemp("own")) as found:
        yield found


def code_of(answer) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


@pytest.mark.parametrize("path", [*PAGES, "/nothing"])
def test_nobody_without_the_token_sees_anything(path: str, own: OwnSearch) -> None:
    wrong = [{}, {"authorization": "Bearer else"}, {"authorization": f"Basic {TOKEN}"}, {"authorization": TOKEN},
             {"cookie": f"quorank={TOKEN}"}, {"authorization": f"Bearer {TOKEN}x"}]  # fmt: skip
    for headers in wrong:
        assert code_of(own.client(**headers).get(path)) == (403, "page.token")
    page = own.client(accept="text/html").get(path)
    assert (page.status_code == 403 and "quorank search serve" in page.text) or path.startswith("/api/")


@pytest.mark.parametrize("path", CHANGES)
def test_nobody_without_the_token_changes_anything(path: str, own: OwnSearch) -> None:
    assert code_of(own.client(origin=ADDRESS).post(path, json={})) == (403, "page.token")


def test_the_token_leaves_a_cookie_that_scripts_and_other_sites_do_not_get(own: OwnSearch) -> None:
    answer = own.client().get(f"/?token={TOKEN}")
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and TOKEN.lower() not in cookie
    assert code_of(own.client().get("/?token=wrong")) == (403, "page.token")
    assert code_of(own.client().get(f"/learned?token={TOKEN}")) == (403, "page.token")
    assert own.browser.get("/").status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}", "",
     f"0.0.0.0:{PORT}", f"localhost:{PORT}@evil.example"],
)  # fmt: skip
def test_other_names_are_refused_even_with_the_token(host: str, own: OwnSearch) -> None:
    for path in ("/", f"/?token={TOKEN}", "/api/status", "/static/pages.js"):
        assert code_of(own.program.get(path, headers={"host": host})) == (403, "page.host")


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}", f"LOCALHOST:{PORT}"])
def test_names_of_this_machine_are_answered(host: str, own: OwnSearch) -> None:
    assert own.program.get("/api/status", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"}, {"origin": "http://127.0.0.1:1"}, {"origin": f"https://127.0.0.1:{PORT}"},
        {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    ],
)  # fmt: skip
def test_other_origins_are_refused(headers: dict[str, str], own: OwnSearch) -> None:
    for path in PAGES:
        assert code_of(own.browser.get(path, headers={"accept": "*/*"} | headers)) == (403, "page.origin")
    for path in CHANGES:
        answer = own.browser.post(path, headers={"accept": "*/*"} | headers, json={})
        assert code_of(answer) == (403, "page.origin")


@pytest.mark.parametrize("path", CHANGES)
def test_a_change_says_where_it_comes_from(path: str, own: OwnSearch) -> None:
    plain = {"accept": "*/*"}
    assert code_of(own.browser.post(path, headers=plain, json={})) == (403, "page.origin")
    assert code_of(own.browser.post(path, headers=plain | {"origin": "null"}, json={})) == (403, "page.origin")
    for headers in ({"origin": ADDRESS}, {"origin": "null", "sec-fetch-site": "same-origin"}):
        answer = own.browser.post(path, headers=plain | headers, content=b"\xff")
        assert answer.status_code == 400, "it came through, and what it holds is refused"


def test_every_answer_has_the_headers_of_a_private_page(own: OwnSearch) -> None:
    answers = [own.browser.get(path) for path in (*PAGES, "/nothing")] + [
        own.client().get("/"), own.browser.get("/", headers={"host": "evil.example"}), own.client().get(f"/?token={TOKEN}"),
        own.submit("/api/forget", document="1"), own.submit("/api/add", path=""),
    ]  # fmt: skip
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'"
        )
        for rule in ("form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
            assert rule in policy
        assert "unsafe" not in policy and "http" not in policy and "data:" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"


def test_pages_hold_no_script_or_style_of_their_own_and_load_nothing_foreign(own: OwnSearch) -> None:
    for path in ("/", "/?q=roses", "/learned", "/sources"):
        seen = Seen(own.browser.get(path).text)
        for tag, attributes in seen.elements:
            assert not any(name == "style" or name.startswith("on") for name in attributes), (tag, attributes)
            assert tag not in ("style", "iframe", "object", "embed", "base")
            if tag in ("script", "link", "img", "form"):
                loaded = attributes.get("src") or attributes.get("href") or attributes.get("action") or ""
                assert loaded.startswith("/") and not loaded.startswith("//")


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/secret", "/nothing", "/api/nothing"]
)
def test_there_is_nothing_else(path: str, own: OwnSearch) -> None:
    assert own.program.get(path).status_code == 404


@pytest.mark.parametrize("path", CHANGES)
def test_what_changes_something_is_not_asked_for_by_an_address(path: str, own: OwnSearch) -> None:
    assert own.browser.get(path).status_code in (404, 405)


def test_a_body_is_bounded(own: OwnSearch) -> None:
    answer = own.program.post("/api/choose", content=b" " * (5 << 20), headers={"content-type": "application/json"})
    assert code_of(answer) == (400, "request.too-large")
    many = "&".join(f"a{n}=1" for n in range(100))
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert code_of(own.program.post("/api/forget", content=many, headers=kind)) == (400, "request.malformed")


@pytest.mark.slow
def test_another_account_that_reads_the_browser_s_command_line_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "command-line"
    browser.write_text(f"#!/bin/sh\ntr '\\0' '\\n' < /proc/$$/cmdline > {seen}\n")
    browser.chmod(0o755)
    monkeypatch.setattr(webbrowser, "_tryorder", [])
    webbrowser.register("recorded", None, webbrowser.GenericBrowser(str(browser)), preferred=True)
    with served_search(tmp_path) as (_, server):
        server.open_browser()
        url = seen.read_text().split()[-1]
        assert server.token not in url and url.startswith(server.address)

        def opened(path: str, account: int = os.geteuid(), cookie: str = "") -> tuple[int, str]:
            connection = HTTPConnection("127.0.0.1", server.port)
            connection.connect()
            os.fchown(connection.sock.fileno(), account, -1)  # as if another account had opened it
            connection.request("GET", path, headers={"cookie": cookie})
            with closing(connection), connection.getresponse() as answer:
                return answer.status, answer.headers.get("set-cookie", "").partition(";")[0]

        code = url.removeprefix(server.address)
        if os.getuid() == 0:
            assert opened(f"/{code}", 65534) == (403, ""), "and the code stays good for its owner"
        status, cookie = opened(f"/{code}")
        assert status == 303 and opened("/", cookie=cookie)[0] == 200
        assert opened(f"/{code}") == (403, ""), "it was good once"
        monkeypatch.setattr(access, "CODE_SECONDS", 0.0)
        assert opened(f"/?code={server.gate.token.issue_code()}") == (403, ""), "and for a short time"


def test_the_folder_keeps_the_token_for_its_owner(tmp_path: Path) -> None:
    from quorank.search.home import SearchHome
    from quorank.search.pages.server import page_token

    home = SearchHome.open(tmp_path / "home")
    token = page_token(home)
    assert len(token) >= 32 and page_token(home) == token
    path = home.folder / "page.token"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("short")
    assert page_token(home) not in ("short", token)

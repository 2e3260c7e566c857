"""The pages in a real browser: a person types, moves by keys, clicks, sees reasons, joins a real service and withdraws.

`QUORANK_PICTURES=docs/search pytest tests/search/pages/test_in_browser.py -k pictures` draws those of the documentation.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import BROWSER, Chromium
from own_search import SCRIPT, browsed, served_search
from PIL import Image
from real_services import RealService, free_port, until
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.search.ranking.search_features import SEARCH_FEATURES
from quorank.service.dashboard.loopback_server import loopback_socket, served
from quorank.service.enrolment import invite
from quorank.service.home import Home, Settings

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs a browser: apt install chromium")]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory):
    with served_search(tmp_path_factory.mktemp("own")) as found:
        search, _ = found
        number = search.index.add_source({"kind": "firefox", "path": "/nowhere"}, "Firefox")
        things = [browsed("https://roses.example/", "Roses of the web"), browsed("javascript:window.broken=1", "Roses")]
        search.index.update(number, things)
        yield found


def titles(chromium: Chromium) -> list[str]:
    found: list[str] = chromium.value("[...document.querySelectorAll('.open')].map(e => e.textContent)")
    return found


def focused(chromium: Chromium) -> str:
    return str(chromium.value("document.activeElement.id || document.activeElement.textContent"))


def test_a_person_types_moves_by_keys_opens_and_sees_why(chromium: Chromium, own: Any) -> None:
    search, server = own
    chromium.open(server.url, width=1200)
    assert chromium.value("location.href") == server.address, "the token is not in the address any more"
    assert chromium.value("document.cookie") == "" and focused(chromium) == "q"
    chromium.write("budg")
    chromium.wait_for("document.querySelectorAll('.result').length === 2")
    assert chromium.value("[...document.querySelectorAll('mark')].every(e => e.textContent.toLowerCase() === 'budget')")
    chromium.write("et")
    chromium.wait_for("history.state && history.state.q === 'budget'")
    assert chromium.value("location.href") == server.address, "what is searched for is in no address, so in no history"
    assert titles(chromium) == ["budget.txt", "old budget.txt"]
    chromium.press("ArrowDown")
    chromium.press("ArrowDown")
    assert focused(chromium) == "old budget.txt"
    chromium.press("ArrowUp")
    assert focused(chromium) == "budget.txt"
    chromium.press("ArrowUp")
    assert focused(chromium) == "q"
    chromium.press("ArrowDown")
    chromium.press("ArrowDown")
    chromium.press("Enter")
    until(lambda: len(search.history.choices()) == 1)
    assert search.history.choices()[0].query == "budget"
    assert search.history.choices()[0].document == (1, "money/old budget.txt")
    chromium.click(".why summary")
    reason = chromium.value("document.querySelector('.why[open]').innerText")
    first = search.find("budget").results[0]
    assert first.band in reason.lower() and f"{first.score:.2f}" in reason
    assert all(one.feature in reason for one in first.shares if abs(one.share) >= 0.005)
    longest = max(first.shares, key=lambda one: abs(one.share))
    widths = chromium.value(
        "[...document.querySelectorAll('.why[open] tbody tr')].filter(r => r.querySelector('rect')).map(r =>"
        " [r.querySelector('th').textContent, r.querySelector('rect').getBoundingClientRect().width])"
    )
    assert max(widths, key=lambda pair: pair[1])[0] == longest.feature
    chromium.press("/")
    assert focused(chromium) == "q"
    chromium.press("Escape")
    chromium.wait_for("document.querySelector('#q').value === '' && !document.querySelector('.result')")
    assert chromium.complaints() == []


def test_chips_and_reloading_keep_the_list(chromium: Chromium, own: Any) -> None:
    _, server = own
    chromium.open(server.url, width=1200)
    chromium.write("roses")
    chromium.wait_for("document.querySelectorAll('.result').length === 7")
    chromium.click("#chip-firefox")
    chromium.wait_for("document.querySelectorAll('.result').length === 2")
    assert focused(chromium) == "chip-firefox", "the focus stays"
    chromium.click("#chip-date")
    by_date = "document.querySelector('#chip-date')?.getAttribute('aria-current') === 'true'"
    chromium.wait_for(f"{by_date} && history.state.order === 'date'")
    chromium.value("window.before = 1")
    chromium.call("Page.reload")
    chromium.wait_for(f"window.before === undefined && {by_date} && document.querySelectorAll('.result').length === 2")
    assert chromium.value("location.search") == "" and focused(chromium) == "q"


def test_script_in_documents_is_text(chromium: Chromium, own: Any) -> None:
    search, server = own
    for address in (f"{server.address}?q=roses", f"{server.address}?q=%22%3E{SCRIPT}"):
        chromium.open(address, width=1200)
        assert chromium.value("window.broken === undefined")
    chromium.open(f"{server.address}?q=roses", width=1200)
    assert f"Roses {SCRIPT}" in titles(chromium)
    assert "<img src=x onerror=window.broken=1>" in chromium.value("document.querySelector('#list').innerText")
    assert chromium.value("[...document.querySelectorAll('a.open')].map(e => e.href)") == ["https://roses.example/"]
    number = chromium.value("[...document.querySelectorAll('.open')].findIndex(e => e.textContent === 'Roses')")
    before = len(search.history.choices())
    chromium.click(".open", number)
    until(lambda: len(search.history.choices()) == before + 1)
    assert chromium.value("window.broken === undefined") and chromium.complaints() == []


def test_it_works_without_script(chromium: Chromium, own: Any) -> None:
    search, server = own
    chromium.open(f"{server.address}?q=tulips", width=1200, script=False)
    try:
        root = chromium.call("DOM.getDocument")["root"]["nodeId"]
        node = chromium.call("DOM.querySelector", nodeId=root, selector=".open")["nodeId"]
        x, y = chromium.call("DOM.getBoxModel", nodeId=node)["model"]["content"][:2]
        before = len(search.history.choices())
        for kind in ("mousePressed", "mouseReleased"):
            chromium.call("Input.dispatchMouseEvent", type=kind, x=x + 5, y=y + 5, button="left", clickCount=1)
        until(lambda: len(search.history.choices()) == before + 1)
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    assert search.history.choices()[-1].query == "tulips"


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (360, False), (360, True)])
def test_the_pages_fit_and_can_be_read(chromium: Chromium, own: Any, width: int, dark: bool) -> None:
    _, server = own
    ground = (0x14, 0x18, 0x1C) if dark else (255, 255, 255)
    for path in ("", "?q=roses", "?q=nothing+at+all", "learned", "sources"):
        chromium.open(f"{server.address}{path}", width=width, dark=dark)
        chromium.value("[...document.querySelectorAll('details')].forEach(e => e.open = true)")
        assert chromium.value("document.documentElement.scrollWidth") <= width
        beyond = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
        assert chromium.value(f"{beyond} && !e.closest('.scroll') && !e.closest('.hidden')).length") == 0
        assert json.loads(chromium.value(CONTRASTS)) == [], path
        unnamed = "[...document.querySelectorAll('input:not([type=hidden])')].filter(e => !e.labels.length).length"
        assert chromium.value(unnamed) == 0
        image = Image.open(io.BytesIO(chromium.picture())).convert("RGB")
        assert image.width == width and image.getpixel((2, 2)) == ground
        assert chromium.complaints() == []


CONTRASTS = """JSON.stringify((() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, w, i) => {
    const v = c[i] / 255; return sum + w * (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); }, 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c; } return parse(getComputedStyle(document.body).backgroundColor); };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), bad = [];
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !e.getClientRects().length || e.closest('.hidden, .skip')) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) bad.push([e.className, e.textContent.slice(0, 30), (a + 0.05) / (b + 0.05)]);
  }
  return bad;
})())"""
"""Texts whose contrast with what is behind them is below 4.5 (WCAG 2.1)."""


def test_other_names_and_other_pages_get_nothing(chromium: Chromium, own: Any) -> None:
    """A page of another port (the same site, so that the cookie is sent) and one of another site ask, embed and post."""
    search, server = own
    chromium.open(server.url, width=1200)
    chromium.open(f"http://evil.localhost:{server.port}/", width=1200)
    assert "only under 127.0.0.1 and localhost" in chromium.value("document.body.textContent")
    chromium.open(f"http://evil.localhost:{server.port}/?token={server.token}", width=1200)
    assert "only under 127.0.0.1 and localhost" in chromium.value("document.body.textContent")
    choices, documents = len(search.history.choices()), search.index.count()
    assert choices > 0

    async def evil(request: Any) -> HTMLResponse:
        action = f"{server.address}api/forget"
        form = f'<form method=post action="{action}"><input name=all value=yes><input name=sure value=yes></form>'
        return HTMLResponse(
            f'<iframe src="{server.address}"></iframe><script src="{server.address}static/pages.js"></script>{form}'
        )

    with served(Starlette(routes=[Route("/", evil)]), loopback_socket(0)) as port:
        for host in ("127.0.0.1", "evil.localhost"):
            chromium.open(f"http://{host}:{port}/", width=1200)
            ask = f"fetch('{server.address}api/status', {{credentials: 'include'}})"
            assert chromium.value(f"{ask}.then(a => a.text()).catch(e => 'blocked')") == "blocked"
            post = f"fetch('{server.address}api/forget', {{method: 'POST', mode: 'no-cors',"
            body = "new URLSearchParams({all: 'yes', sure: 'yes'})"
            chromium.value(f"{post} credentials: 'include', body: {body}}}).catch(e => '').then(() => 1)")
            chromium.value("document.forms[0].submit()")
            chromium.wait_for("document.body?.textContent.includes('another page made this request')")
    assert (len(search.history.choices()), search.index.count()) == (choices, documents)
    chromium.open(server.address, width=1200)
    assert chromium.value("document.querySelector('#q') !== null"), "its owner still gets in"


def test_sources_are_added_followed_and_removed(chromium: Chromium, own: Any, tmp_path: Path) -> None:
    search, server = own
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "camellia.txt").write_text("camellias bloom in winter")
    (folder / "broken.docx").write_bytes(b"none")
    chromium.open(f"{server.address}sources", width=1200)
    chromium.click("#path")
    chromium.write(str(folder / "nowhere"))
    chromium.press("Enter")
    chromium.wait_for("document.querySelector('[role=alert]')?.textContent.includes('there is nothing here')")
    assert chromium.value("document.querySelector('#path').value") == str(folder / "nowhere")
    chromium.value("document.querySelector('#path').value = ''")
    chromium.click("#path")
    chromium.write(str(folder))
    chromium.press("Enter")
    chromium.wait_for("location.pathname === '/sources' && document.querySelectorAll('.source').length === 3")
    chromium.wait_for("document.querySelectorAll('.source')[2].innerText.includes('2 documents')")
    chromium.click(".source:nth-of-type(3) details summary")
    assert "broken.docx" in chromium.value("document.querySelectorAll('.source')[2].innerText")
    assert search.find("camellias").found == 1
    chromium.click(".source:nth-of-type(3) .sure summary")
    chromium.click(".source:nth-of-type(3) .sure button")
    chromium.wait_for("document.querySelectorAll('.source').length === 2")
    assert search.find("camellias").found == 0 and (folder / "camellia.txt").exists()


# ---------------------------------------------------------------- a real service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    """A federation of searches: one device, two choices a release, noise for ε = 100."""
    tables: dict[str, Any] = {
        "learner": {"kind": "counterfactual"},
        "federation": {"clients": 1, "interactions": 2, "rounds": 5},
        "privacy": {"kind": "gaussian", "clip": 1.0, "epsilon": 100.0, "delta": 1e-5},
    }
    port = free_port()
    settings = Settings("roses", len(SEARCH_FEATURES), address=f"127.0.0.1:{port}", port=port, pause=1.0, workers=1)
    running = RealService(Home.create(tmp_path / "service", Experiment.read(ExperimentFile(tables, "test")), settings))
    try:
        running.start()
        yield running
    finally:
        running.kill()


def join(chromium: Chromium, server: Any, service: RealService, folder: Path) -> None:
    """Accept an invitation on the page, and agree."""
    (folder / "home" / "policy.toml").write_text("epsilon = 200.0\ncohort = 1\n")
    store = service.home.store()
    invite(service.home, store, "anna", folder / "anna.json")
    store.close()
    chromium.open(server.url, width=1200)
    chromium.open(f"{server.address}learned", width=1200)
    chromium.click("#invitation")
    chromium.write(str(folder / "anna.json"))
    chromium.press("Enter")
    chromium.wait_for("document.querySelector('#consent-state')?.textContent === 'Paused'")
    assert "nothing has left this machine" in chromium.value("document.body.innerText")
    chromium.click(".switch")
    chromium.wait_for("document.querySelector('#consent-state')?.textContent === 'Taking part'")


def test_a_click_ends_in_a_round_of_a_real_service(chromium: Chromium, service: RealService, tmp_path: Path) -> None:
    """The person joins, agrees, clicks; the round ends, the release is in the log, the ranker comes; they withdraw."""
    with served_search(tmp_path) as (search, server):
        join(chromium, server, service, tmp_path)
        chromium.open(server.address, width=1200)
        for query, name in (("roses", "money/budget.txt"), ("garden", "travel.html")):
            chromium.press("Escape")
            chromium.write(query)
            chromium.wait_for(f"history.state?.q === '{query}' && document.querySelectorAll('.result').length > 1")
            label = search.index.label(1, name)
            assert label is not None
            chromium.click(f"#result-{label[0]} .open")
            until(lambda query=query: search.history.choices() and search.history.choices()[-1].query == query)
        until(lambda: search.membership.client.log()["releases"], 60.0)
        until(lambda: any(trial.round >= 1 for trial in search.history.trials()), 60.0)
        store = service.home.store()
        published = store.publication()
        store.close()
        assert published is not None and published.round >= 1, "the round ended, and the next task is out"
        chromium.open(f"{server.address}learned", width=1200)
        release = search.membership.client.log()["releases"][0]
        assert release["interactions"] == 2
        row = chromium.value("document.querySelector('#releases tbody tr').innerText")
        assert "roses" in row and "clipped here" in row
        assert "accepted" in chromium.value("document.querySelector('#trials').innerText")
        spent = chromium.value(
            "[...document.querySelectorAll('.figure')].find(e => e.textContent.includes('ε')).innerText"
        )
        assert "of 100.00 for the whole run" in spent and "0.00" not in spent.split("of")[0]
        chromium.value("document.querySelector('#leave').open = true")
        chromium.click("#sure-leave")
        chromium.click("#leave button")
        chromium.wait_for("document.querySelector('#notice')?.textContent.length > 5")
        for _ in range(100):
            if not search.membership.joined:
                break
            chromium.open(f"{server.address}learned", width=1200)
            chromium.value("document.querySelector('form[action=\"/api/sync\"]')?.submit()")
            time.sleep(0.2)
        assert not search.membership.joined
        chromium.open(f"{server.address}learned", width=1200)
        assert chromium.value("document.querySelector('#invitation') !== null")
        assert search.history.shared is None, "the ranker of all is not used any more"
        assert chromium.complaints() == []

"""The page in a real browser: wide and narrow, light and dark, live, without script; nothing is blocked or runs over."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from browser import BROWSER, Chromium
from full_status import KINDS, LARGE
from PIL import Image
from real_services import real_service
from starlette.applications import Starlette

from quorank.service.dashboard import page as page
from quorank.service.dashboard.loopback_server import loopback_socket, served
from quorank.service.dashboard.page import page_routes
from quorank.service.dashboard.status import Status

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs a browser: apt install chromium")]

TOKEN = "token-of-the-operator"
GROUNDS = {False: (255, 255, 255), True: (0x14, 0x18, 0x1C)}


class Shown:
    """A status that is served, and may be replaced."""

    def __init__(self) -> None:
        self.status = Status("devices", "new", "demo", 1.7e9)
        self.address = ""


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    found = Shown()
    with (
        pytest.MonkeyPatch.context() as patch,
        served(Starlette(routes=page_routes(lambda: found.status, TOKEN)), loopback_socket(0)) as port,
    ):
        patch.setattr(page, "LIVE_SECONDS", 0.2)
        found.address = f"http://127.0.0.1:{port}/?token={TOKEN}"
        yield found


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize(
    ("kind", "width", "dark"),
    [
        ("devices", 1200, False), ("devices", 1200, True), ("devices", 360, False), ("devices", 360, True),
        ("tuning", 1200, False), ("tuning", 360, True), ("parties", 1200, True), ("parties", 360, False),
        ("new", 1200, False), ("new", 360, True),
    ],
)  # fmt: skip
def test_the_page_fits_and_nothing_is_blocked(kind, width, dark, chromium, shown) -> None:
    shown.status = KINDS[kind]
    time.sleep(page.LIVE_SECONDS)  # what was read for the test before is so old
    chromium.open(shown.address, width=width, dark=dark)
    chromium.wait_for("document.body.dataset.live === 'yes'")
    assert chromium.value("location.search") == "" and TOKEN not in chromium.value("document.documentElement.outerHTML")
    assert chromium.value("document.documentElement.scrollWidth") <= width
    beyond = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
    assert chromium.value(f"{beyond} && !e.closest('.scroll')).length") == 0
    assert chromium.complaints() == []
    assert chromium.value("getComputedStyle(document.querySelector('.title h1')).fontSize") in ("25.6px", "21.6px")
    image = Image.open(io.BytesIO(chromium.picture())).convert("RGB")
    assert image.width == width and image.height > 600
    assert image.getpixel((2, 2)) == GROUNDS[dark]
    colours = image.getcolors(1 << 24)
    assert colours is not None and len(colours) > 100, "letters and lines are drawn"
    assert sum(count for count, colour in colours if colour == GROUNDS[dark]) < 0.97 * image.width * image.height


def test_it_follows_the_federation_live(chromium, shown) -> None:
    shown.status = LARGE
    time.sleep(page.LIVE_SECONDS)
    chromium.open(shown.address, width=1200)
    chromium.wait_for("document.body.dataset.live === 'yes'")
    chromium.value("document.getElementById('more-members').open = true; window.kept = true")
    shown.status = replace(LARGE, rounds=LARGE.rounds + 1, run="renamed & <b>")
    chromium.wait_for("document.querySelector('h1').textContent === 'renamed & <b>'")
    assert re.match(r"renamed & <b> · running · \d+/\d+ · Quorank", chromium.value("document.title"))
    assert chromium.value("window.kept") is True, "without loading the page again"
    shown.status = replace(shown.status, members=shown.status.members[::-1], refused={"reply.norm": 12345})
    chromium.wait_for("document.getElementById('side').textContent.includes('12,345')")
    assert chromium.value("document.getElementById('more-members').open") is True, "what was opened stays open"
    assert chromium.complaints() == []


def test_it_works_without_script(chromium, shown) -> None:
    shown.status = LARGE
    time.sleep(page.LIVE_SECONDS)
    chromium.open(shown.address, width=1200, script=False)
    try:
        document = chromium.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
        text = chromium.call("DOM.getOuterHTML", nodeId=document)["outerHTML"]
        picture = chromium.picture()
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "device-007" in text
    assert '<meta http-equiv="refresh" content="10">' in text and "reloads every 10 s" in text
    assert len(Image.open(io.BytesIO(picture)).convert("RGB").getcolors(1 << 24)) > 100


def test_the_page_of_a_real_service(tmp_path, chromium) -> None:
    """Over TLS, from workers and holder of their own: a device that enrols is on the page a moment later."""
    with real_service(tmp_path / "service", workers=1) as service:
        chromium.call("Security.setIgnoreCertificateErrors", ignore=True)
        chromium.call("Network.clearBrowserCookies")
        chromium.open(f"{service.url}/", width=1200)
        assert "needs the operator's token" in chromium.value("document.body.textContent")
        chromium.open(f"{service.url}/?token={service.home.token}", width=1200)
        chromium.wait_for("document.body.dataset.live === 'yes'")
        assert chromium.value("location.search + document.cookie") == ""
        assert "No device has enrolled yet" in chromium.value("document.body.innerText")
        service.enrolled("anna-laptop", tmp_path)
        chromium.wait_for("document.getElementById('members').innerText.includes('anna-laptop')")
        chromium.wait_for("document.querySelector('#members tbody td').innerText.includes('awaited')")
        assert "holds the coordinator" in chromium.value("document.getElementById('events').innerText")
        assert chromium.complaints() == []
        assert service.stop() == 0
        chromium.wait_for("document.body.dataset.live !== 'yes'")

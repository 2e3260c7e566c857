"""Debian's Chromium without a window, driven over a pipe by the DevTools protocol; no package is needed for it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

KEYS = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40, "Tab": 9}
"""Codes of keys that have no letter."""


class Chromium:
    """One browser with one page."""

    def __init__(self, folder: Path) -> None:
        assert BROWSER is not None
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
            "--disable-extensions", "--disable-quic",
            "--mute-audio", f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip

        def place() -> None:  # Chromium reads from 3 and writes to 4
            high = [os.dup2(to_read, 103), os.dup2(to_write, 104)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [BROWSER, *options],
            preexec_fn=place,
            close_fds=False,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._pending, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        try:
            self._session = self.call("Target.attachToTarget", targetId=self._page(), flatten=True)["sessionId"]
            for room in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{room}.enable")
        except BaseException:
            self.close()
            raise

    def _page(self, seconds: float = 30.0) -> str:
        """The first page, which may come a moment after the browser."""
        end = time.monotonic() + seconds
        while True:
            targets = self.call("Target.getTargets")["targetInfos"]
            for target in targets:
                if target["type"] == "page":
                    return str(target["targetId"])
            assert time.monotonic() < end, "the browser opens no page"
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError, TimeoutError):
            self._session = ""
            self.call("Browser.close", seconds=5.0)
            self._process.wait(5.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the browser and its helpers: a session of their own
        self._process.wait()
        for end in (self._read, self._write):
            os.close(end)

    def call(self, method: str, seconds: float = 60.0, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while True:
            found = self._next(end)
            if found is None:
                raise TimeoutError(method)
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def _next(self, end: float) -> dict[str, Any] | None:
        while b"\0" not in self._pending:
            left = end - time.monotonic()
            if left <= 0.0 or not select.select([self._read], [], [], left)[0]:
                return None
            came = os.read(self._read, 1 << 16)
            assert came, "the browser has ended"
            self._pending += came
        message, _, self._pending = self._pending.partition(b"\0")
        return json.loads(message)

    def open(self, address: str, *, width: int, dark: bool = False, script: bool = True) -> None:
        """Show a page at this width."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        loader = self.call("Page.navigate", url=address).get("loaderId")
        end = time.monotonic() + 30.0
        while not self._loaded(loader):
            found = self._next(end)
            assert found is not None, "the page was not loaded"
            self.events.append(found)

    def _loaded(self, loader: str | None) -> bool:
        """Whether this navigation, and not one before it, has loaded its page."""
        begun = False
        for event in self.events:
            method, told = event.get("method"), event.get("params", {})
            begun = begun or (method == "Page.frameNavigated" and told["frame"]["loaderId"] == loader)
            if begun and method == "Page.loadEventFired":
                return True
        return False

    def value(self, expression: str) -> Any:
        """What a line of script says."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 15.0) -> None:
        """Wait until the line of script says true."""
        end = time.monotonic() + seconds
        while not self.value(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def write(self, text: str) -> None:
        """Type a text, letter by letter, into what has the focus."""
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=letter, key=letter)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def press(self, key: str) -> None:
        """Press a key by its name: Enter, Escape, ArrowDown, Tab, /."""
        code = KEYS.get(key, ord(key[0]))
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def click(self, selector: str, number: int = 0) -> None:
        """Click with the mouse in the middle of an element, which must be seen there, when the page has come to rest."""
        found = f"document.querySelectorAll({json.dumps(selector)})[{number}]"
        self.wait_for(f"document.readyState === 'complete' && !!{found}")
        place = self.value(
            f"(async () => {{ const e = {found}; e.scrollIntoView({{block: 'center'}});"
            " await new Promise((done) => setTimeout(done, 50)); const r = e.getClientRects()[0];"
            " return [r.x + r.width / 2, r.y + r.height / 2, e.contains(document.elementFromPoint("
            "r.x + r.width / 2, r.y + r.height / 2))]; })()"
        )
        assert place[2], f"{selector} is covered"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def picture(self, whole: bool = True, height: int | None = None) -> bytes:
        """A PNG of the page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, clip=clip)
        return base64.b64decode(found["data"])

    def complaints(self) -> list[str]:
        """What the browser logged as an error: blocked scripts and styles, failed requests."""
        self.value("1")
        logged = [event["params"]["entry"] for event in self.events if event.get("method") == "Log.entryAdded"]
        thrown = [event["params"] for event in self.events if event.get("method") == "Runtime.exceptionThrown"]
        return [entry["text"] for entry in logged if entry["level"] == "error"] + [str(one) for one in thrown]

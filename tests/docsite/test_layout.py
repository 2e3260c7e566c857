"""Pages of the built site are no wider than a telephone, light and dark; code, tables and formulas stay inside."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zensical", reason="builds the site")

from browser import BROWSER, Chromium

from docsite.__main__ import site_pages, stage, stage_pages

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs Chromium")]

WIDTH = 390
LONG_SUM = " + ".join([r"\theta_i"] * 40)
PAGE = f"""# A page with everything that is wide

A sentence with `{"code-without-a-space-" * 8}`, {"https://example.org/" + "long/" * 30} and $\\theta_{{t+1}}$.

```bash
quorank run my-experiment.toml --set federation.rounds=400 --set data.source=mine --out runs/a-long-name  # a comment
```

```math
{LONG_SUM}
```

| {" | ".join(f"column {n}" for n in range(12))} |
|{"---|" * 12}
| {" | ".join(f"`value_{n}`" for n in range(12))} |

- ```text
  {"word " * 60}
  ```

![Diagram](diagrams/one-round.svg)
"""
TOO_WIDE = """[...document.querySelectorAll('.md-content *')].filter((e) => {
  const place = e.getBoundingClientRect();
  if (!place.width || place.right <= innerWidth + 1) return false;
  for (let p = e; p !== document.body; p = p.parentElement)
    if (getComputedStyle(p).overflowX !== 'visible') return false;
  return true;
}).map((e) => e.outerHTML.slice(0, 80))"""
"""Elements outside of the window that nothing scrolls."""


def built(folder: Path) -> Path:
    command = [sys.executable, "-m", "zensical", "build"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return folder / "site"


def width_of(browser: Chromium) -> int:
    return int(browser.value("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"))


def test_wide_things_stay_inside_a_narrow_page(tmp_path: Path) -> None:
    stage_pages({"index.md": PAGE}, tmp_path / "build")
    shutil.copytree(Path(__file__).parents[2] / "docs" / "diagrams", tmp_path / "build" / "docs" / "diagrams")
    site = built(tmp_path / "build")
    with Chromium(tmp_path / "browser") as browser:
        for dark in (False, True):
            browser.open((site / "index.html").as_uri(), width=WIDTH, dark=dark)
            assert width_of(browser) <= WIDTH
            assert browser.value(TOO_WIDE) == []
            shade = browser.value("getComputedStyle(document.body).backgroundColor")
            assert (max(map(int, re.findall(r"\d+", shade)[:3])) < 128) == dark
        cut = "[...document.querySelectorAll('pre > code')].some((e) => e.scrollWidth > e.clientWidth + 1)"
        assert not browser.value(cut)
        assert browser.value("document.querySelectorAll('math').length") == 2
        assert browser.value("document.querySelector('div.formula math').getBoundingClientRect().height") > 8


@pytest.mark.nightly
def test_no_page_is_wider_than_a_telephone(tmp_path: Path) -> None:
    stage(site_pages(), tmp_path / "build")
    site = built(tmp_path / "build")
    with Chromium(tmp_path / "browser") as browser:
        for page in sorted(site.rglob("*.html")):
            browser.open(page.as_uri(), width=WIDTH)
            assert (width_of(browser), browser.value(TOO_WIDE)) == (WIDTH, []), page.relative_to(site)

"""`python -m docsite`: stage the pages of docs/ and the generated ones, build the site, and check it.

The site is a folder of files that load nothing from elsewhere; its search works without a server.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docsite.formulas import with_formulas
from docsite.links import STAGED, broken_links, leaves_docs
from docsite.markdown import first_heading, links
from docsite.navigation import navigation
from docsite.reference import generated_pages
from docsite.results import result_pages, result_pictures, write_pictures

ROOT = Path(__file__).parents[1]
DOCS, BUILD = ROOT / "docs", ROOT / "build" / "docs"
SITE = BUILD / "site"
FOREIGN = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)|url\(["']?((?:https?:)?//[^"')]+)"""
)
"""Addresses on other hosts that a browser would load."""


def main() -> None:
    """Build the site and print its path."""
    pages = site_pages()
    broken = broken_links(ROOT, linked(pages))
    if broken:
        sys.exit("\n".join(["broken links:", *broken]))
    stage(pages)
    built = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=BUILD, check=False)
    if built.returncode:
        sys.exit(built.returncode)
    foreign = foreign_requests(SITE)
    if foreign:
        sys.exit("\n".join(["the site would load from elsewhere:", *foreign]))
    print(f"{len(pages)} pages: {(SITE / 'index.html').relative_to(ROOT)}")


def site_pages() -> dict[str, str]:
    """Return all pages of the site by their path below docs/: written ones, generated ones, changes and contributing."""
    pages = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    for path, source in STAGED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = re.sub(r"\]\((?!docs/|#|[a-z]+:)", "](../", text)
        pages[path.removeprefix("docs/")] = text.replace("](docs/", "](")
    return pages | generated_pages() | result_pages()


def linked(pages: Mapping[str, str]) -> dict[str, str]:
    """Return pages by their path in the repository, with generated pictures as pages without text: what links may name."""
    return {f"docs/{path}": text for path, text in (pages | dict.fromkeys(result_pictures(), "")).items()}


def stage(pages: Mapping[str, str], build: Path = BUILD) -> None:
    """Write the pages, pictures and settings that the site is built from into the folder `build`."""
    shutil.rmtree(build, ignore_errors=True)
    shutil.copytree(DOCS, build / "docs", ignore=shutil.ignore_patterns("*.md"))
    write_pictures(build / "docs")
    stage_pages(pages, build)


def stage_pages(pages: Mapping[str, str], build: Path) -> None:
    """Write pages, assets and settings."""
    for path, text in pages.items():
        target = build / "docs" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(with_formulas(for_site(path, text)), encoding="utf-8")
    shutil.copytree(Path(__file__).parent / "assets", build / "docs" / "assets")
    settings = (Path(__file__).parent / "site.toml").read_text(encoding="utf-8")
    tomllib.loads(settings)
    titles = {path: first_heading(text) for path, text in pages.items()}
    nav = f"nav = {_toml(navigation(pages, titles))}\n"
    (build / "zensical.toml").write_text(settings.replace("[project.theme]", f"{nav}\n[project.theme]", 1), "utf-8")


def for_site(path: str, text: str) -> str:
    """Return a page in which links to files that are not on the site are plain text."""
    back = {source: page.removeprefix("docs/") for page, source in STAGED.items()}
    for link in links(text):
        if re.match(r"[a-z]+:|#", link.target) or not leaves_docs(path, link.target):
            continue
        name = link.target.rpartition("/")[2]
        up = "../" * path.count("/")
        shown = f"[{link.text}]({up}{back[name]})" if name in back else link.text
        text = text.replace(f"[{link.text}]({link.target})", shown)
    return text


def foreign_requests(site: Path) -> list[str]:
    """Return "file: address" for every resource on another host that pages and style sheets would load."""
    found = []
    for path in sorted((*site.rglob("*.html"), *site.rglob("*.css"))):
        for match in FOREIGN.finditer(path.read_text(encoding="utf-8")):
            address = match[1] or match[2]
            if 'rel="canonical"' not in match[0]:
                found.append(f"{path.relative_to(site)}: {address}")
    return found


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_toml(key)} = {_toml(inner)}' for key, inner in value.items())} }}"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


if __name__ == "__main__":
    main()

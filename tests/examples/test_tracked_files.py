"""What the repository must not hold: addresses of package registries, paths of somebody's machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
REGISTRIES = [
    "pypi.org",
    "pythonhosted.org",
    "npmjs.org",
    "npmjs.com",
    "yarnpkg.com",
    "deb.debian.org",
    "security.debian.org",
    "snapshot.debian.org",
    "archive.ubuntu.com",
    "anaconda.org",
]
# a path from the root of the file system, not a part of an address or of a longer path
MACHINE = re.compile(r"(?<![\w.!~})\]-])/(?:work|root|home|Users)/\w")
FORBIDDEN = re.compile("|".join(map(re.escape, REGISTRIES)))


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.decode().split("\0") if name]


def lines_with(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    found = []
    for path in files:
        if not path.is_file() or path == Path(__file__):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ]
    return found


def test_no_address_of_a_package_registry() -> None:
    assert lines_with(FORBIDDEN, tracked()) == []


def test_no_path_of_a_machine() -> None:
    assert lines_with(MACHINE, tracked()) == []


def test_no_run_cache_or_environment_is_tracked() -> None:
    parts = {part for path in tracked() for part in path.relative_to(ROOT).parts}
    assert not parts & {"runs", ".venv", "__pycache__", ".quorank", ".mypy_cache", ".ruff_cache", "node_modules"}


def test_the_scan_knows_a_path_when_it_sees_one() -> None:
    assert all(map(MACHINE.search, ('DATA = "/home/ann/data"', "cd /work/main", "see /root/x.")))
    assert not any(map(MACHINE.search, ("https://example.org/root/content", "docs/home/page.md", "~/work/it")))

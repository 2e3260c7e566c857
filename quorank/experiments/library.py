"""The experiment files that come with Quorank."""

from __future__ import annotations

from pathlib import Path

FILES = Path(__file__).parent / "files"


def shipped(name: Path) -> Path | None:
    """The shipped file of this name (`fpdgd`, `recommended`), unless a file of that name is at hand."""
    path = FILES / f"{name}.toml"
    return path if not name.is_file() and path.is_file() else None


def names(below: str = "") -> list[str]:
    """All shipped experiments below a folder, such as "fpdgd/figure3"."""
    found = (FILES / below).rglob("*.toml")
    return sorted(p.relative_to(FILES).with_suffix("").as_posix() for p in found)

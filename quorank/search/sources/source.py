"""Document that a source found, skipped or knows to be unchanged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """Document of a source as it is now."""

    key: str  # unique and stable within its source
    fingerprint: str  # changes when the content may have changed
    path: str  # what opens it: absolute path or URL
    title: str
    name: str  # file name, for exact-name and prefix matches
    body: str  # plain text
    modified: float  # Unix seconds
    visits: tuple[float, ...] = ()  # times of visits, newest first, at most 10
    visit_count: int = 0


@dataclass(frozen=True, slots=True)
class SkippedDocument:
    """Document that could not be read, and why."""

    key: str
    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class UnchangedDocument:
    """Document whose fingerprint is the known one."""

    key: str

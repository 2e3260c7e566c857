"""Requests for the measurements of a study, whose progress is recorded."""

from __future__ import annotations

from pathlib import Path

from quorank.reproduce.studies.study import StudyRequest


def study_request(
    folder: Path, repetitions: int = 1, data: str | None = None
) -> tuple[StudyRequest, list[tuple[int, int, str]]]:
    """Return a request and the (done, total, what) of its progress."""
    seen: list[tuple[int, int, str]] = []
    return StudyRequest(data, repetitions, folder, lambda *step: seen.append(step)), seen

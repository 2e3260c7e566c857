"""Navigation of the site: sections, pages and their short titles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Entry = tuple[str, Any]
"""A title, and a page's path below docs/ or the entries below it."""

NAVIGATION: list[Entry] = [
    ("Home", "index.md"),
    (
        "Start",
        [
            ("Which part do I need?", "which-part.md"),
            ("Your own data", "tutorials/own-data.md"),
            ("Your own learner", "tutorials/own-learner.md"),
            ("A click log", "tutorials/click-log.md"),
            ("Three machines", "tutorials/three-machines.md"),
            ("Two hospitals", "tutorials/two-hospitals.md"),
            ("OpenSearch", "tutorials/opensearch.md"),
            ("Limits", "limits.md"),
            ("Glossary", "glossary.md"),
        ],
    ),
    (
        "Guides",
        [
            (
                "Learn a ranker",
                [
                    ("From Python", "python.md"),
                    ("Start from your ranking", "starting.md"),
                    ("Limit exploration", "exploration.md"),
                    ("Simulation", "simulation.md"),
                    ("Trees", "trees.md"),
                    ("Click logs", "clicks.md"),
                ],
            ),
            ("Use a ranker", [("The ranker file", "rankers.md"), ("Export", "export.md")]),
            ("Privacy", [("Privacy settings", "privacy/README.md")]),
            (
                "Run a service",
                [("Deployment", "deployment.md"), ("Devices", "devices.md"), ("Threat model", "threat-model.md")],
            ),
            (
                "Organisations",
                [("A group of organisations", "silos/README.md"), ("Privacy of a group", "silos/privacy.md")],
            ),
            ("Tune a heuristic", [("Tuning", "tuning.md")]),
            (
                "Desktop search",
                [("The search application", "search/README.md"), ("The index", "search/search-index.md")],
            ),
        ],
    ),
    (
        "Reference",
        [
            ("Python", "reference/python/"),
            ("Experiment file", "reference/experiment-file.md"),
            ("Group file", "reference/group-file.md"),
            ("Parts", "reference/parts/"),
            ("Command line", "reference/commands/"),
            ("Service protocol", "protocol.md"),
            ("Group protocol", "silos/protocol.md"),
        ],
    ),
    (
        "Results",
        [
            ("Overview", "results/README.md"),
            ("Figures", "results/figures/"),
            (
                "Published results, reproduced",
                [
                    ("Online learning", "results/online-learning.md"),
                    ("Exploration", "results/exploration-papers.md"),
                    ("Privacy", "results/privacy-papers.md"),
                    ("Robustness", "results/robustness.md"),
                    ("Robustness: tables", "results/robustness-tables.md"),
                    ("Organisations", "results/silos.md"),
                    ("Unlearning", "results/unlearning.md"),
                ],
            ),
            (
                "Own measurements",
                [
                    ("Recommended settings", "results/recommendation.md"),
                    ("Rankers", "results/rankers.md"),
                    ("Cost of privacy", "results/privacy.md"),
                    ("Secure sums", "results/secure-sums.md"),
                    ("Desktop search", "results/personal-search.md"),
                    ("Tuning", "results/tuning.md"),
                    ("Speed", "results/speed.md"),
                ],
            ),
        ],
    ),
    (
        "Development",
        [("Architecture", "architecture.md"), ("Contributing", "contributing.md"), ("Changes", "changes.md")],
    ),
]

UNSORTED = {"results/": "Results", "reference/": "Reference"}
"""Sections of pages that the navigation does not name, by folder; by default the guides."""


def navigation(pages: Iterable[str], titles: dict[str, str]) -> list[Any]:
    """Return the navigation for Zensical, without missing pages; a folder stands for all its pages."""
    there = set(pages)
    named = set(_paths(NAVIGATION))
    folders = tuple(path for path in named if path.endswith("/"))
    left = sorted(page for page in there - named if not page.startswith(folders))
    entries = list(NAVIGATION)
    for page in left:
        top = next((top for folder, top in UNSORTED.items() if page.startswith(folder)), "Guides")
        entries = [(title, [*below, (titles[page], page)] if title == top else below) for title, below in entries]
    return [*_made(entries, there, titles)]


def _made(entries: Iterable[Entry], there: set[str], titles: dict[str, str]) -> Iterator[dict[str, Any]]:
    for title, below in entries:
        if isinstance(below, list):
            inner = [*_made(below, there, titles)]
            if inner:
                yield {title: inner}
        elif below.endswith("/"):
            first = f"{below}README.md"
            others = [page for page in there if page.startswith(below) and page != first]
            others.sort(key=lambda page: page.removesuffix(".md"))  # a module before those below it
            if first in there:
                yield {title: [{title: first}, *({_short(titles[page]): page} for page in others)]}
        elif below in there:
            yield {title: below}


def _short(title: str) -> str:
    """Return the distinguishing part of a title: "fpdgd/figure3" of "fpdgd/figure3: …", "privacy" of "Parts: privacy"."""
    first, _, rest = title.partition(": ")
    return first if "/" in first or not rest else rest


def _paths(entries: Iterable[Entry]) -> Iterator[str]:
    for _, below in entries:
        if isinstance(below, list):
            yield from _paths(below)
        else:
            yield below

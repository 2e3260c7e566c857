"""Navigation of the site: which page stands where, and under which short title."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Entry = tuple[str, Any]
"""A title, and a page's path below docs/ or the entries below it."""

NAVIGATION: list[Entry] = [
    ("Home", "index.md"),
    (
        "Tutorials",
        [
            ("Overview", "tutorials/README.md"),
            ("Your own data in ten minutes", "tutorials/own-data.md"),
            ("A federation of three machines", "tutorials/three-machines.md"),
            ("Into OpenSearch", "tutorials/opensearch.md"),
        ],
    ),
    (
        "How to",
        [
            ("Overview", "guides.md"),
            (
                "Learn a ranker",
                [
                    ("From Python", "python.md"),
                    ("Start from your ranking", "starting.md"),
                    ("Bound exploration", "exploration.md"),
                    ("Choose users and measures", "measuring.md"),
                    ("Choose who takes part", "participation.md"),
                    ("Grow trees", "trees.md"),
                    ("Replay real clicks", "clicks.md"),
                ],
            ),
            ("Use the ranker", [("The ranker file", "rankers.md"), ("Export", "export.md")]),
            (
                "Run a service",
                [
                    ("Deployment", "deployment.md"),
                    ("Devices", "devices.md"),
                    ("Organisations", "silo-network.md"),
                    ("Watching", "watching.md"),
                    ("Experiments on a network", "network.md"),
                ],
            ),
            ("Tune a heuristic", [("Tuning", "tuning.md"), ("Studies", "studies.md")]),
            (
                "Search your own things",
                [
                    ("Overview", "search/README.md"),
                    ("Demonstration", "search/demo.md"),
                    ("Sources", "search/sources.md"),
                    ("The index", "search/search-index.md"),
                    ("The pages", "search/pages.md"),
                ],
            ),
        ],
    ),
    (
        "Reference",
        [
            ("Experiment file", "reference/experiment-file.md"),
            ("Group file", "reference/group-file.md"),
            ("Command line", "reference/commands/"),
            ("Parts", "reference/parts/"),
            ("Protocol", "protocol.md"),
            ("Glossary", "glossary.md"),
            ("Changes", "changes.md"),
        ],
    ),
    (
        "Explanation",
        [
            ("Architecture", "architecture.md"),
            (
                "Privacy",
                [
                    ("What each setting gives", "privacy/README.md"),
                    ("Discrete noise", "privacy/discrete-noise.md"),
                    ("Threat model", "threat-model.md"),
                ],
            ),
            ("Robustness", "robustness.md"),
            (
                "Silos",
                [
                    ("Organisations", "silos/README.md"),
                    ("Ranking", "silos/ranking.md"),
                    ("Search", "silos/search.md"),
                    ("Questions about terms", "silos/protocol.md"),
                    ("Sketches", "silos/sketches.md"),
                ],
            ),
            ("Contributing", "contributing.md"),
        ],
    ),
    (
        "Results",
        [
            ("Gallery", "results/README.md"),
            ("Figures by one command", "results/figures/"),
            (
                "Papers again",
                [
                    ("Online learning", "results/online-learning.md"),
                    ("Exploration", "results/exploration-papers.md"),
                    ("Privacy", "results/privacy-papers.md"),
                    ("Robustness", "results/robustness.md"),
                    ("Silos", "results/silos.md"),
                    ("Unlearning", "results/unlearning.md"),
                ],
            ),
            (
                "Beyond the papers",
                [
                    ("Recommendation", "results/recommendation.md"),
                    ("Cost of privacy", "results/privacy.md"),
                    ("Ceilings", "results/ceilings.md"),
                    ("Priors", "results/priors.md"),
                    ("Hidden layers", "results/neural.md"),
                    ("Trees", "results/trees.md"),
                    ("Secure sums", "results/secure-sums.md"),
                    ("Personal search", "results/personal-search.md"),
                    ("Tuning", "results/tuning.md"),
                    ("Network", "results/network.md"),
                    ("Speed", "results/speed.md"),
                ],
            ),
        ],
    ),
]

UNSORTED = {"results/": "Results", "reference/": "Reference"}
"""Where pages that the navigation does not name go, by folder; the others are guides."""


def navigation(pages: Iterable[str], titles: dict[str, str]) -> list[Any]:
    """Return the navigation as Zensical has it, of the pages that there are; a folder stands for all its pages."""
    there = set(pages)
    named = set(_paths(NAVIGATION))
    folders = tuple(path for path in named if path.endswith("/"))
    left = sorted(page for page in there - named if not page.startswith(folders))
    entries = list(NAVIGATION)
    for page in left:
        top = next((top for folder, top in UNSORTED.items() if page.startswith(folder)), "How to")
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
            others = sorted(page for page in there if page.startswith(below) and page != first)
            if first in there:
                yield {title: [{title: first}, *({_short(titles[page]): page} for page in others)]}
        elif below in there:
            yield {title: below}


def _short(title: str) -> str:
    """The part of a title that tells it from its neighbours: of "fpdgd/figure3: …" the figure, of "Parts: …" the family."""
    first, _, rest = title.partition(": ")
    return first if "/" in first or not rest else rest


def _paths(entries: Iterable[Entry]) -> Iterator[str]:
    for _, below in entries:
        if isinstance(below, list):
            yield from _paths(below)
        else:
            yield below

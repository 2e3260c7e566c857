"""Visits of people who browse from day to day, as a CSV for `quorank tune simulate --visits` and `tune import`.

    python benchmarks/browsing.py VISITS.csv [--people 150] [--days 90] [--seed 1]

They type the addresses of sites that they return to and follow links from there, so most pages of a history were only
reached by links. The choices follow no score, as those of real visits.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from quorank.kernels.draws import Purpose, uniforms
from quorank.tuning.histories.generated import vocabulary
from quorank.tuning.histories.visits import LETTERS

SITES = 30  # maximum for a person
TYPED_SITES = 0.5  # share of them whose first page is typed; to the others people return by one page
RETYPED = 0.2  # share of visits to that page by typing
DAY = 86_400.0  # seconds
_START = 1_767_225_600.0  # 2026-01-01: when the visits begin
_VISITS = 6  # round of Purpose.HISTORY; 0 to 5 are those of `generated` and `address_bar`

Row = tuple[str, float, str, str]
"""(person, seconds, url, visit type)."""


def write_visits(path: Path, rows: Iterator[Row]) -> None:
    """Write visits as a CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("person", "time", "url", "type"))
        writer.writerows((person, f"{seconds:.0f}", url, kind) for person, seconds, url, kind in rows)


def generate_visits(seed: int, persons: int, days: int = 90) -> Iterator[Row]:
    """Generate the visits of some persons over some days."""
    letters, ends = vocabulary(seed)
    text, begins = letters.tobytes().decode(), ends - np.diff(ends, prepend=0)
    words = [text[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    for person in range(persons):
        yield from _browse(seed, person, days, words)


def _browse(seed: int, person: int, days: int, words: list[str]) -> Iterator[Row]:
    """Yield one person's visits: about two sites a day, entered by typing or a link, and the pages read there."""
    draws = _draws(seed, person)

    def below(count: int) -> int:
        return int(next(draws) * count)

    names = {
        (word := words[below(len(words))])[:LETTERS]: word for _ in range(SITES)
    }  # distinct in their first letters
    # home, whether it is typed, and the pages that the person has visited
    sites = [(f"{word}.example/", next(draws) < TYPED_SITES, list[str]()) for word in names.values()]
    name = f"person-{person}"
    for day in range(days):
        for _ in range(1 + below(3)):
            # of the sites, one with probability proportional to one over its rank
            place = min(int(math.exp(next(draws) * math.log(len(sites) + 1.0))) - 1, len(sites) - 1)
            home, typed_home, pages = sites[place]
            moment = _START + DAY * day + 60.0 * below(16 * 60)
            entered, way = home, "typed"
            if not typed_home:  # one page of it was found by a link, and is what they come back for
                if not pages:
                    pages.append(f"{home}{words[below(len(words))]}")
                entered, way = pages[0], "typed" if next(draws) < RETYPED else "link"
            yield name, moment, f"https://{entered}", way
            for click in range(below(4)):
                pages.append(f"{home}{len(pages)}")
                yield name, moment + 60.0 * (click + 1), f"https://{pages[-1]}", "link"


def _draws(seed: int, person: int) -> Iterator[float]:
    """Yield the uniform draws of one person."""
    for block in itertools.count():
        yield from uniforms(seed, Purpose.HISTORY, 256, round_=_VISITS, client=person, interaction=block).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--people", type=int, default=150)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    write_visits(args.file, generate_visits(args.seed, args.people, args.days))


if __name__ == "__main__":
    main()

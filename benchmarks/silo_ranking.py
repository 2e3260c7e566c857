"""Rankers of organisations beside the search that they have: `python benchmarks/silo_ranking.py COLLECTION… [--trials 10]`.

Every collection is dealt out among four parties, of which each has five labelled queries; a trial has its own dealing and
split of queries. nDCG@10 over all documents of the query's party, means over trials with the standard error of the mean of
the difference to stemmed BM25, and in how many trials a row is above it. Rows:

- BM25 body: words of the body as they are, without stems and titles;
- BM25: title and body, stemmed: the search that all other rows re-order the first 100 documents of;
- w0: the prior, BM25 with a third of feedback and of latent terms;
- Local, Global, CS-F-LTR: as published, pointwise from zeros, with exact answers of the other parties (no noise), with the
  published instances and with ours;
- alone, ours: from the prior, a party by its own labels and all parties together.

A COLLECTION is a path that `quorank data stats` describes, or `generated`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from quorank.silos.sketch.augmentation import Augment
from quorank.silos.sketch.published import PublishedSetting, augment_parties, compare_methods, prepare_parties
from quorank.silos.training.comparison import PartySource, compare_with_search, prepare_lists
from quorank.silos.training.lists import SearchedLists
from quorank.silos.training.setting import SiloSetting
from quorank.text import Tokeniser

ROWS = {
    "BM25 body": "body", "BM25": "bm25", "w0": "w0", "Local": "local", "Global": "global",
    "CS-F-LTR, published instances": "published", "CS-F-LTR, our instances": "cs-f-ltr", "alone": "alone", "ours": "ours",
}  # fmt: skip


def trial(source: PartySource, labelled: int, seed: int, *, ours_only: bool = False) -> dict[str, float]:
    """nDCG@10 of every row in one trial."""
    ours = SiloSetting(labelled=(labelled,))
    found = {
        row: figures["ndcg@10"] for row, figures in compare_with_search(source.holdings(seed), ours, seed).table.items()
    }
    if ours_only:
        return found
    parties = source.holdings(seed)
    for row, augment in (("cs-f-ltr", Augment.recommended()), ("published", Augment.published())):
        prepared = prepare_parties(parties, PublishedSetting(labelled=(labelled,), asked=25, augment=augment), seed)
        table = compare_methods(prepared, augment_parties(prepared, prepared.answers(None))).table
        found |= {"local": table["local"]["ndcg@10"], "global": table["global"]["ndcg@10"]}
        found[row] = table["cs-f-ltr"]["ndcg@10"]
    found["body"] = body_alone(source, ours, seed) if source.collections else float("nan")
    return found


def body_alone(source: PartySource, setting: SiloSetting, seed: int) -> float:
    """nDCG@10 of the BM25 of bodies as they are."""
    bare = replace(source, tokeniser=Tokeniser(), whole=False)
    plain = replace(setting, searched=replace(setting.searched, evidence=()))
    together = SearchedLists.joined([test for _, test in prepare_lists(bare.holdings(seed), plain, seed)])
    return together.figures([np.zeros(together.data.n_features)])[0]["ndcg@10"]


def measure(
    path: str, trials: int, labelled: int, parties: int, first: int, *, ours_only: bool = False
) -> dict[str, object]:
    """All rows of a collection."""
    source = PartySource(() if path == "generated" else (path,), parties)
    began, found = time.perf_counter(), []
    for number in range(trials):
        found.append(trial(source, labelled, first + number, ours_only=ours_only))
        left = (time.perf_counter() - began) / (number + 1) * (trials - number - 1)
        print(f"{path}: trial {number + 1} of {trials}, about {left:.0f} s left", file=sys.stderr)
    base = np.array([one["bm25"] for one in found])
    rows: dict[str, object] = {}
    for title, row in ((title, row) for title, row in ROWS.items() if row in found[0]):
        values = np.array([one[row] for one in found])
        gain = values - base
        rows[title] = {
            "ndcg@10": float(values.mean()),
            "minus_bm25": float(gain.mean()),
            "error": float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else None,
            "above": int((gain > 0).sum()),
        }
    return {"collection": Path(path).name, "trials": trials, "rows": rows}


def show(figures: dict[str, object]) -> None:
    """Print a table of one collection."""
    print(f"\n{figures['collection']}, {figures['trials']} trials")
    rows = figures["rows"]
    assert isinstance(rows, dict)
    for title, row in rows.items():
        error = "" if row["error"] is None else f" ± {row['error']:.4f}"
        print(f"  {title:<30} {row['ndcg@10']:.4f}  {row['minus_bm25']:+.4f}{error}  above in {row['above']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", metavar="COLLECTION")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--labelled", type=int, default=5, help="labelled queries of a party")
    parser.add_argument("--parties", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1, help="of the first trial")
    parser.add_argument("--ours-only", action="store_true", help="leave out what is published, which takes longest")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    for path in chosen.collections:
        sizes = (chosen.trials, chosen.labelled, chosen.parties, chosen.seed)
        figures = measure(path, *sizes, ours_only=chosen.ours_only)
        print(json.dumps(figures)) if chosen.json else show(figures)


if __name__ == "__main__":
    main()

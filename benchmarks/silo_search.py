"""Search over silos measured: nDCG@10 by what protects documents, cost, honest searches until refusal, attacks, guesses.

    .venv/bin/python benchmarks/silo_search.py --trials 3            # all collections of ../shared/data, about 15 minutes
    .venv/bin/python benchmarks/silo_search.py med --trials 5 --json

A collection is dealt out among four parties anew in each trial, and each query is asked by the party that it is dealt to.
nDCG@10 is over all judgements, whoever holds the document. Quality is measured without budgets; budgets, attacks and
guesses at the defaults (ε = 8, k = 5, three bundles).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quorank.errors import BadInput
from quorank.kernels.arrays import Doubles, Integers
from quorank.metrics.lists import ndcg
from quorank.silos.holdings import Holding, make_holding, read_holdings
from quorank.silos.search.attack import anchor_attack, dictionary_attack, dictionary_of
from quorank.silos.search.decoys import Bundle, CoherentDecoys, ordered_bundles
from quorank.silos.search.in_process import SearchSession
from quorank.silos.search.settings import SearchTerms
from quorank.silos.sketch.questions import published_attack
from quorank.silos.training.statistics import exact_statistics
from quorank.text import UNSEEN, Index, read_collection
from quorank.text.features import idf_smoothed

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
NAMES = ("cranfield", "cisi", "med", "npl", "nfcorpus")
FREE = {"share": 1.0, "share_of_all": 1.0, "share_of_document": 1.0, "questions_a_day": 10**9}
Grades = dict[str, dict[str, int]]
Asked = list[tuple[str, str, tuple[str, ...]]]
"""(query id, party, terms)"""


def asked_queries(holdings: Sequence[Holding], judged: Grades, most: int) -> Asked:
    """Queries with a relevant document, thinned evenly where there are more than `most`."""
    found = [
        (query, holding.name, terms)
        for holding in holdings
        for query, terms in zip(holding.query_ids, holding.queries, strict=True)
        if any(grade > 0 for grade in judged.get(query, {}).values())
    ]
    places = np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(int))
    return [found[at] for at in places]


def mean_ndcg(asked: Asked, judged: Grades, ranked: Callable[[str, tuple[str, ...]], Sequence[str]]) -> float:
    """Mean nDCG@10 over all judgements of the first ten documents."""
    values = []
    for query, party, terms in asked:
        grades = {document: max(grade, 0) for document, grade in judged[query].items()}
        labels = [grades.get(document, 0) for document in ranked(party, terms)[:10]]
        values.append(ndcg(labels, list(grades.values()), 10))
    return float(np.mean(values))


def quality(name: str, holdings: Sequence[Holding], asked: Asked, judged: Grades, seed: int) -> dict[str, float]:
    """NDCG@10 of every form."""
    collection = read_collection(DATA / name).without_empty()
    pooled = make_holding("all", collection, range(len(collection.documents)), ()).documents
    by_name = {holding.name: holding.documents for holding in holdings}
    exact = exact_statistics(holdings)

    def local(documents: Any, terms: tuple[str, ...]) -> list[str]:
        return [documents.ids[row] for row in documents.best(terms, 10)]

    found = {"own silo": mean_ndcg(asked, judged, lambda party, terms: local(by_name[party], terms))}

    def searched(terms: SearchTerms, statistics: Any = None) -> float:
        session = SearchSession(holdings, terms, seed, statistics)

        def ranked(party: str, words: tuple[str, ...]) -> list[str]:
            result = session.search(party, words)
            if result.refused:
                raise SystemExit(f"refused where nothing is limited: {dict(result.refused)}")
            return [
                each.id or by_name[each.party].ids[session.owners[each.party].row_of(each.number)]
                for each in result.found
            ]

        return mean_ndcg(asked, judged, ranked)

    found["no noise"] = searched(SearchTerms("none", among=1, **FREE))
    for epsilon in (16.0, 8.0, 4.0):
        found[f"strict {epsilon:g}"] = searched(SearchTerms(epsilon=epsilon, among=1, **FREE))
    found["strict 8, exact sums"] = searched(SearchTerms(among=1, **FREE), exact)
    found["pooled"] = mean_ndcg(asked, judged, lambda _, terms: local(pooled, terms))
    return found


def costs(holdings: Sequence[Holding], asked: Asked, seed: int) -> dict[str, float]:
    """Time and bytes of a search at the defaults, and honest searches until the first refusal."""
    session = SearchSession(holdings, SearchTerms(), seed)
    asker, owner = session.askers["B"], session.owners["A"]
    order = np.random.default_rng(seed).permutation(len(asked))
    spent: dict[str, list[float]] = {"question ms": [], "answer ms": [], "read ms": [], "bytes": [], "terms": []}
    honest = 0
    for at in order:
        words = asked[at][2]
        start = time.thread_time()
        question = asker.question(words)
        spent["question ms"].append(1e3 * (time.thread_time() - start))
        start = time.thread_time()
        try:
            answer = owner.answer("B", question.sent)
        except BadInput:  # the budget is spent
            break
        spent["answer ms"].append(1e3 * (time.thread_time() - start))
        start = time.thread_time()
        asker.read(question, answer, "A")
        spent["read ms"].append(1e3 * (time.thread_time() - start))
        spent["bytes"].append(len(question.sent) + len(answer))
        spent["terms"].append(len(set(words)))
        honest += 1
        if honest == 200:  # a day's; the rest would be tomorrow's
            owner.ledger.rows("DELETE FROM days")
    told = owner.spent("B")
    figures = {name: float(np.mean(values)) for name, values in spent.items()}
    alone = SearchSession(holdings, SearchTerms(among=1, questions_a_day=10**9), seed)
    single = 0
    for at in order:
        try:
            alone.owners["A"].answer("B", alone.askers["B"].question(asked[at][2]).sent)
        except BadInput:
            break
        single += 1
    extra = {"honest, M = 3": honest, "honest, M = 1": single, "queries": len(asked), "entries": told.entries}
    return figures | extra | {"limit": told.most_entries, "documents": holdings[0].n_documents}


def attacks(holdings: Sequence[Holding], seed: int, words: int) -> dict[str, float]:
    """Share of pairs that attacks rebuild at the defaults, and of the published form."""
    frequent, rare = dictionary_of(holdings, words)
    terms = SearchTerms()
    document = anchor_attack(holdings[0], frequent, terms, seed)
    return {
        "frequent": dictionary_attack(holdings[0], frequent, terms, seed).recovered,
        "rare": dictionary_attack(holdings[0], rare, terms, seed).recovered,
        "document": document.document,
        "published": published_attack(holdings, 0, 1, frequent, seed=seed).recovered,
    }


SCORES = (
    "best document",
    "best three documents",
    "pairs over chance",
    "documents with two terms",
    "terms known",
    "mean frequency",
    "spread of frequency",
    "best document minus the third",
)
"""Scores of a bundle that an owner computes from its own documents to tell a query from its decoys."""


def bundle_scores(index: Index, bundle: Bundle) -> Doubles:
    """Compute the (scores,) of a bundle from an owner's documents."""
    ids = index.term_ids(bundle)
    n = index.n_documents
    df = np.where(ids == UNSEEN, 0, index.document_frequency[np.maximum(ids, 0)]).astype(np.float64)
    idf = idf_smoothed(float(n), df)
    covered, held = np.zeros(n), np.zeros(n, dtype=np.int64)
    for term, weight in zip(ids.tolist(), idf, strict=True):
        documents, _ = index.postings(term)
        covered[documents] += weight
        held[documents] += 1
    best = np.sort(covered)[::-1][:3] / idf.sum()
    two = int(np.count_nonzero(held >= 2))
    pairs = float((held * (held - 1) / 2).sum())
    chance = float((df.sum() ** 2 - (df**2).sum()) / (2.0 * max(n, 1)))
    together = np.log((pairs + 0.1) / (chance + 0.1))
    known = float((df > 0).mean())
    level = np.log(df + 0.5)
    return np.array(
        [best[0], best.mean(), together, np.log1p(two), known, level.mean(), level.std(), best[0] - best[-1]]
    )


def guess_rates(index: Index, questions: Sequence[tuple[Sequence[Bundle], int]]) -> dict[str, float]:
    """Measure how often an owner guesses the true bundle of a question by each score.

    It guesses the largest or the smallest value, whichever is right more often.
    """
    rows = np.array([[bundle_scores(index, bundle) for bundle in bundles] for bundles, _ in questions])
    real = np.array([place for _, place in questions])
    return {
        name: max(share_right(rows[:, :, at], real), share_right(-rows[:, :, at], real))
        for at, name in enumerate(SCORES)
    }


def share_right(values: Doubles, real: Integers) -> float:
    """Compute how often the largest of (questions, bundles) values is the real bundle's; ties are guessed at random."""
    best = values >= values.max(axis=1, keepdims=True) - 1e-12
    return float((best[np.arange(len(best)), real] / best.sum(axis=1)).mean())


def guesses(holdings: Sequence[Holding], asked: Asked, seed: int, most: int) -> dict[str, float]:
    """How often owner A guesses which of three bundles of asker B is meant: best single score, and learned."""
    statistics, index = exact_statistics(holdings), holdings[1].documents.body
    others = np.maximum(statistics(index.vocabulary)[0].document_frequency - index.document_frequency, 0.0)
    key = bytes([seed]) * 32
    order = np.random.default_rng(seed).permutation(len(asked))
    queries = [tuple(sorted(set(asked[at][2]))) for at in order]
    queries = [terms for terms in queries if 2 <= len(terms) <= 40][:most]
    made, questions = CoherentDecoys(key, index, others, 3), []
    for terms in queries:
        own = index.statistics(index.term_ids(terms)).document_frequency
        decoys = made.bundles(terms, np.maximum(statistics(terms)[0].document_frequency - own, 0.0))
        if len(decoys) == 2:
            questions.append(ordered_bundles(key, terms, decoys))
    owner = holdings[0].documents.body
    return {"single": max(guess_rates(owner, questions).values()), "learned": learned_rate(owner, questions)}


def learned_rate(index: Index, questions: Sequence[tuple[Sequence[Bundle], int]]) -> float:
    """How often a conditional logistic regression on all scores guesses right: P(bundle) ∝ exp(θ·x).

    Scores are normalised within a question. It is fitted on one half of the questions and tested on the other, both ways:
    it uses true queries, which no owner has.
    """
    rows = np.array([[bundle_scores(index, bundle) for bundle in bundles] for bundles, _ in questions])
    real = np.array([place for _, place in questions])
    inside = (rows - rows.mean(axis=1, keepdims=True)) / (rows.std(axis=(0, 1)) + 1e-9)
    inputs = np.concatenate((inside, np.abs(inside)), axis=2)
    half, learned = np.arange(len(rows)) % 2 == 0, 0.0
    for side in (half, ~half):
        x, meant = inputs[side], inputs[side][np.arange(side.sum()), real[side]].mean(axis=0)
        theta = np.zeros(inputs.shape[2])
        for step in range(400):
            chances = np.exp(x @ theta - (x @ theta).max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            expected = np.einsum("qb,qbf->f", chances, x) / len(x)
            theta += (meant - expected - 0.02 * theta) * (2.0 / (1.0 + step / 100))
        learned += share_right(inputs[~side] @ theta, real[~side]) * float((~side).mean())
    return learned


def run_collection(name: str, options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """All measurements of a collection, a list over trials each."""
    judged: Grades = {query: dict(found) for query, found in read_collection(DATA / name).judgements.items()}
    out: dict[str, dict[str, list[float]]] = {}
    for seed in range(options.seed, options.seed + options.trials):
        holdings = read_holdings([DATA / name], 4, seed)
        asked = asked_queries(holdings, judged, options.queries)
        parts = {
            "ndcg@10": lambda h=holdings, a=asked, s=seed: quality(name, h, a, judged, s),
            "cost": lambda h=holdings, a=asked, s=seed: costs(h, a, s),
            "rebuilt": lambda h=holdings, s=seed: attacks(h, s, options.words),
            "guessed": lambda h=holdings, a=asked, s=seed: guesses(h, a, s, options.guessed),
        }
        for part, measure in parts.items():
            if part in options.parts:
                for key, value in measure().items():
                    out.setdefault(part, {}).setdefault(key, []).append(float(value))
                print(f"{name}, seed {seed}: {part} done", file=sys.stderr, flush=True)
    return out


def show(results: dict[str, dict[str, dict[str, list[float]]]]) -> None:
    """Tables with means and standard errors over trials."""
    for part in ("ndcg@10", "cost", "rebuilt", "guessed"):
        rows = {name: found[part] for name, found in results.items() if part in found}
        if not rows:
            continue
        heads = list(next(iter(rows.values())))
        print(f"\n{part}\n| | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
        for name, found in rows.items():
            print(f"| {name} | {' | '.join(cell(found[head], part) for head in heads)} |")


def cell(values: list[float], part: str) -> str:
    """Return mean ± standard error; of one value the value alone."""
    digits = 1 if part == "cost" else 3
    if len(values) < 2:
        return f"{np.mean(values):.{digits}f}"
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="COLLECTION", default=list(NAMES))
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--seed", type=int, default=11, help="of the first trial")
    parser.add_argument("--queries", type=int, default=400, help="most queries of a collection")
    parser.add_argument("--guessed", type=int, default=200, help="most queries that an owner guesses")
    parser.add_argument("--words", type=int, default=10_000, help="of the attacker's dictionary")
    parser.add_argument("--parts", nargs="+", default=["ndcg@10", "cost", "rebuilt", "guessed"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = {name: run_collection(name, options) for name in options.names}
    if options.json:
        print(json.dumps(results))
    else:
        show(results)


if __name__ == "__main__":
    main()

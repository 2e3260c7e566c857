"""Whether learning helps a person's own search: `python benchmarks/personal_search.py COLLECTION… [--seeds N] [--steps N]`.

A collection is dealt to persons: each has queries of their own, half of them held out, and on their machine the documents
that answer these among a quarter of the others, in a real index. In every step each person searches one of their queries,
sees a page of ten, and clicks as a cascade user. The lists are ordered by the application's own code:

- BM25: bands, then BM25 of title and body;
- shipped: the shipped ranker, without a memory of choices;
- alone: with the memory of choices and the personal part;
- together: with the memory, by a ranker that all persons learn together (a round when all have searched four times);
- together + personal: the same, and the personal part;
- swaps: together, but lists with neighbours exchanged by a fair coin in a tenth of the searches, learned from by PDGD.

Prints nDCG@10, over all documents of the person, of the lists that were shown (the whole time, and the worst tenth of it
relative to BM25 on the same searches) and of the held-out queries in the end, means and standard errors over seeds.

With --private N, N persons learn together by the experiment file `search`, all that ever leaves a person being worth ε = 2.
Half of the queries are held out. They search on --machines M machines of eight queries each, half of them held out, with
the documents that answer these among a quarter of the others; with --machines 0 all search the whole collection.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import quorank.experiments
from quorank.data.letor.writer import write_letor
from quorank.data.ranking import RankingData
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile, read_experiment_file
from quorank.experiments.runner import Runner
from quorank.files import private_database as private_file
from quorank.learning import OnlineRanker
from quorank.learning.counterfactual import Counterfactual
from quorank.learning.pdgd import PDGD
from quorank.metrics.evaluator import Evaluator
from quorank.rankers import Linear
from quorank.search.index import SearchCandidates, SearchIndex, parse_query
from quorank.search.personal_search import CANDIDATES, PAGE
from quorank.search.ranking.choice_history import ChoiceHistory
from quorank.search.ranking.personal_part import ChosenList, PersonalFit
from quorank.search.ranking.search_features import (
    SEARCH_FEATURES,
    PastChoices,
    documents_of,
    rank_candidates,
    search_features,
    shipped_parameters,
)
from quorank.search.sources import FoundDocument
from quorank.text.collection import Query, TextCollection
from quorank.text.features import FEATURE_NAMES
from quorank.text.readers import read_collection
from quorank.users import Cascade

Doubles = np.ndarray[Any, np.dtype[np.float64]]
NOTHING = PastChoices({}, 0, {}, 0, {})
NOW = 1.8e9
DISCOUNTS = 1.0 / np.log2(np.arange(2, PAGE + 2))
METHODS = ("BM25", "shipped", "alone", "together", "together + personal", "swaps")
BATCH = 4  # searches of a round
QUERIES = 8  # of a machine
BM25 = FEATURE_NAMES.index("BM25 of body")


@dataclass(eq=False)
class PreparedQuery:
    """One query of a person: what the index found, and how relevant each of it is."""

    text: str
    found: SearchCandidates
    labels: np.ndarray[Any, np.dtype[np.int64]]
    ideal: float

    def ndcg(self, rows: Sequence[int]) -> float:
        """Of a page."""
        gains = 2.0 ** self.labels[list(rows)] - 1.0
        return float(gains @ DISCOUNTS[: len(gains)]) / self.ideal


@dataclass(eq=False)
class Person:
    """One person's queries; the first half is searched, the others are held out."""

    queries: list[PreparedQuery]

    @property
    def searched(self) -> list[PreparedQuery]:
        return self.queries[: (len(self.queries) + 1) // 2]

    @property
    def held_out(self) -> list[PreparedQuery]:
        return self.queries[(len(self.queries) + 1) // 2 :]


def found_documents(collection: TextCollection, kept: Sequence[int]) -> Iterator[FoundDocument]:
    """Documents as a scan yields them; collections have no dates, so that all are as old."""
    for number in kept:
        document = collection.documents[number]
        yield FoundDocument(document.id, "1", f"/{document.id}", document.title, "", document.body, NOW - 1e8)


def prepared(index: SearchIndex, text: str, grades: dict[str, int]) -> PreparedQuery | None:
    """A query, unless nothing that answers it was found."""
    found = index.find(parse_query(text), CANDIDATES)
    labels = np.array([max(grades.get(key, 0), 0) for key in found.keys], dtype=np.int64)
    best = np.sort([2.0 ** max(grade, 0) - 1.0 for grade in grades.values()])[::-1][:PAGE]
    ideal = float(best @ DISCOUNTS[: len(best)])
    return PreparedQuery(text, found, labels, ideal) if labels.any() else None


def indexed(folder: Path, collection: TextCollection, kept: Sequence[int]) -> SearchIndex:
    index = SearchIndex.open(folder)
    index.update(index.add_source({"kind": "folder"}), found_documents(collection, kept))
    return index


def people(collection: TextCollection, count: int, seed: int, folder: Path) -> list[Person]:
    """Deal a collection to persons."""
    random = np.random.default_rng(seed)
    numbers = {document.id: number for number, document in enumerate(collection.documents)}
    judged = judged_queries(collection)
    order = random.permutation(len(judged))
    found = []
    for person in range(count):
        own = [judged[number] for number in order[person::count]]
        relevant = {numbers[id_] for query in own for id_ in collection.judgements[query.id] if id_ in numbers}
        others = random.choice(len(numbers), len(numbers) // 4, replace=False)
        index = indexed(folder / f"{person}", collection, sorted(relevant | set(others.tolist())))
        queries = [prepared(index, query.text, dict(collection.judgements[query.id])) for query in own]
        index.close()
        found.append(Person([query for query in queries if query is not None]))
    return [person for person in found if len(person.queries) >= 2]


@dataclass(eq=False)
class Settings:
    """What is compared."""

    eta: float = 0.03
    step: float = 1.0
    power: float = 0.5
    fit: PersonalFit = field(default_factory=PersonalFit)


def clicks(labels: Any, tables: Any, random: np.random.Generator) -> list[int]:
    """Positions that a cascade user clicks."""
    found = []
    for position, label in enumerate(labels):
        if random.random() < tables.click[label]:
            found.append(position)
            if random.random() < tables.stop[label]:
                break
    return found


def play(
    persons: list[Person], method: str, steps: int, preset: str, seed: int, settings: Settings, folder: Path
) -> tuple[Doubles, float]:
    """(steps,) mean nDCG@10 of the lists that were shown, and of held-out queries in the end."""
    highest = max(int(query.labels.max()) for person in persons for query in person.queries)
    tables = Cascade(preset=preset).tables(2 if highest <= 1 else 3 if highest <= 2 else 5, PAGE)
    learns = method not in ("BM25", "shipped")
    personal, jointly = method in ("alone", "together + personal"), method.startswith(("together", "swaps"))
    shared = shipped_parameters()
    histories = (
        [ChoiceHistory(folder / f"{method} {p}", len(SEARCH_FEATURES)) for p in range(len(persons))] if learns else []
    )
    waiting: list[list[tuple[Any, Any]]] = [[] for _ in persons]
    learner = Counterfactual(eta=settings.eta, power=settings.power)
    if method == "swaps":
        learner = PDGD(eta=settings.eta, window=1, temperature=1e6, share=0.1)  # type: ignore[assignment]
    fitted = [shared] * len(persons)
    shown_ndcg, round_ = np.zeros(steps), 0
    mean = shared  # of the rankers that came so far

    def online() -> OnlineRanker:
        return OnlineRanker(shared, len(SEARCH_FEATURES), Linear(), learner, seed, 0, round_, PAGE)

    def order(person: int, query: PreparedQuery) -> tuple[Any, Any]:
        found = query.found
        past = histories[person].past(query.text) if learns else NOTHING
        features = search_features(found, past, len(parse_query(query.text).clauses), NOW)
        if method == "BM25":
            return np.lexsort((found.ids, -found.features[:, BM25], found.bands)), features
        return rank_candidates(found, features, fitted[person])[0], features

    for step in range(steps):
        for p, person in enumerate(persons):
            random = np.random.default_rng([seed, step, p])
            query = person.searched[random.integers(len(person.searched))]
            rows, features = order(p, query)
            page = rows[:PAGE]
            drawn = None
            if method == "swaps":
                drawn = online().rank(features[page])
                page = page[drawn.order]
            shown_ndcg[step] += query.ndcg(page) / len(persons)
            if not learns:
                continue
            for position in clicks(query.labels[page], tables, random):
                band = query.found.bands[page[position]]
                rest = [row for row in range(len(page)) if query.found.bands[page[row]] == band]
                one = ChosenList(features[page[rest]].astype(np.float32), rest.index(position), position + 1)
                histories[p].add(NOW, query.text, documents_of(query.found)[page[position]], one)
                clicked = np.zeros(len(rest), dtype=np.bool_)
                clicked[rest.index(position)] = True
                if len(rest) > 1 and drawn is None:
                    waiting[p].append((online().present(one.features), clicked))
                elif drawn is not None:
                    whole = np.zeros(len(page), dtype=np.bool_)
                    whole[position] = True
                    waiting[p].append((drawn, whole))
        if jointly and (step + 1) % BATCH == 0:
            updates = []
            for p, lists in enumerate(waiting):
                if lists:
                    client = online()
                    for shown, clicked in lists:
                        client.learn(shown, clicked)
                    updates.append(client.update)
                waiting[p] = []
            if updates:
                shared, round_ = shared + settings.step * np.mean(updates, axis=0), round_ + 1
                mean = mean + (shared - mean) / (1 + round_)
        for p in range(len(persons)):
            if personal and (step + 1) % BATCH == 0:
                fitted[p] = settings.fit.fitted(mean, histories[p].lists(settings.fit.newest))
            elif not personal and jointly:
                fitted[p] = mean
    held = [query.ndcg(order(p, query)[0][:PAGE]) for p, person in enumerate(persons) for query in person.held_out]
    for history in histories:
        history.close()
    return shown_ndcg, float(np.mean(held))


def measure(args: argparse.Namespace, path: str) -> None:
    collection = read_collection(path)
    settings = Settings(args.eta, args.step, args.power, PersonalFit(penalty=args.penalty))
    results: dict[str, list[tuple[float, float, float, float]]] = {}
    began = time.time()
    for seed in range(args.seed, args.seed + args.seeds):
        with tempfile.TemporaryDirectory() as place:
            persons = people(collection, args.persons, seed, Path(place))
            base: Doubles = np.zeros(0)
            for method in args.methods or METHODS:
                for p in range(len(persons)):
                    (Path(place) / f"{method} {p}").mkdir()
                shown, held = play(persons, method, args.steps, args.preset, seed, settings, Path(place))
                base = shown if method == "BM25" else base
                tenths = [
                    a.mean() / b.mean() - 1.0
                    for a, b in zip(np.array_split(shown, 10), np.array_split(base, 10), strict=True)
                ]
                results.setdefault(method, []).append(
                    (shown.mean(), min(tenths), held, shown[-len(shown) // 10 :].mean())
                )
                print(
                    f"seed {seed} {method}: {shown.mean():.4f} {min(tenths):+.2%} {held:.4f}",
                    file=sys.stderr,
                    flush=True,
                )
    name, first = Path(path).name, results["BM25"]
    print(f"\n## {name}: {args.persons} persons, {args.steps} searches each, {args.preset} users, {args.seeds} seeds\n")
    head = ("", "lists shown", "last tenth", "worst tenth against BM25", "held-out queries", "against BM25")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for method, rows in results.items():
        shown, worst, held, last = (np.array(column) for column in zip(*rows, strict=True))
        gain = held - np.array([row[2] for row in first])
        error = standard_error(gain)
        told = f"{shown.mean():.4f} | {last.mean():.4f} | {worst.min():+.2%} | {held.mean():.4f}"
        print(f"| {method} | {told} | {gain.mean():+.4f} ± {error:.4f} |")
    print(f"\n({time.time() - began:.0f} s)", flush=True)


def judged_queries(collection: TextCollection) -> list[Query]:
    """Queries that a document answers."""
    judgements = collection.judgements
    return [query for query in collection.queries if any(g > 0 for g in judgements.get(query.id, {}).values())]


def halves(collection: TextCollection, machines: int, seed: int, folder: Path) -> tuple[list[PreparedQuery], ...]:
    """Lists of the queries that are searched and of those that are held out, on each machine or in the whole collection."""
    random, queries = np.random.default_rng(seed), judged_queries(collection)
    numbers = {document.id: number for number, document in enumerate(collection.documents)}
    order = random.permutation(len(queries))
    both = order[: len(order) // 2], order[len(order) // 2 :]
    lists: tuple[list[PreparedQuery], ...] = ([], [])
    for machine in range(machines or 1):
        kept, parts = set(range(len(numbers))), both
        if machines:
            parts = tuple(random.choice(part, QUERIES // 2, replace=False) for part in both)  # type: ignore[assignment]
            answers = [collection.judgements[queries[number].id] for part in parts for number in part]
            others = random.choice(len(numbers), len(numbers) // 4, replace=False)
            kept = {numbers[id_] for grades in answers for id_ in grades if id_ in numbers} | {*others.tolist()}
        index = indexed(folder / f"{machine}", collection, sorted(kept))
        for found, part in zip(lists, parts, strict=True):
            texts = [(queries[number].text, dict(collection.judgements[queries[number].id])) for number in part]
            found += [query for one in texts if (query := prepared(index, *one)) is not None]
        index.close()
    return lists


def measure_private(args: argparse.Namespace, path: str) -> None:
    """Persons who learn together with the shipped experiment file: ε for a person and the whole run."""
    collection, rows = read_collection(path), []
    file = Path(quorank.experiments.__file__).parent / "files" / "search.toml"
    for seed in range(args.seed, args.seed + args.seeds):
        with tempfile.TemporaryDirectory() as place:
            for name, lists in zip(
                ("train", "test"), halves(collection, args.machines, seed, Path(place)), strict=True
            ):
                write_letor(lists_of(lists), Path(place) / f"{name}.txt")
            tables = {
                **read_experiment_file(file).tables,
                "seed": seed,
                "data": {"source": place, "normalize": "none"},
                "users": {"preset": args.preset},
                "evaluation": {"every": 300},
            }
            tables["federation"] = {**tables["federation"], "clients": args.private}
            runner = Runner(Experiment.read(ExperimentFile(tables, "benchmark")))
            plain = np.zeros(len(SEARCH_FEATURES))
            plain[SEARCH_FEATURES.index("BM25 of body")] = 1.0
            bm25, shipped = runner.evaluator.all_means([plain, shipped_parameters()])[0]
            runner.run()
            summary = runner.summary()
            online = runner.progress.values["online_ndcg@10"]  # type: ignore[union-attr]
            train = Evaluator(runner.simulator.simulation.data, Linear(), no_relevant="zero").all_means([plain])[0][0]
            worst = min(float(part.mean()) / train - 1.0 for part in np.array_split(online, 10))
            rows.append((bm25, shipped, summary["offline"]["ndcg@10"], worst))
            told = ", ".join(f"{figure:.4f}" for figure in rows[-1])
            print(f"seed {seed}: {told}; ε = {summary['privacy']['epsilon']:.3f}", file=sys.stderr, flush=True)
    bm25, shipped, learned, worsts = (np.array(column) for column in zip(*rows, strict=True))
    where = f"on {args.machines} machines" if args.machines else "in the whole collection"
    print(
        f"\n## {Path(path).name}: {args.private:,} persons {where}, ε = 2 for a person and 300 rounds, {args.seeds} seeds\n"
    )
    head = ("BM25", "shipped", "learned together", "against BM25", "worst tenth of the lists shown against BM25")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    shift = f"{learned.mean():.4f} | {(learned - bm25).mean():+.4f} ± {standard_error(learned - bm25):.4f}"
    print(f"| {bm25.mean():.4f} | {shipped.mean():.4f} | {shift} | {worsts.min():+.2%} |", flush=True)


def standard_error(values: Doubles) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def lists_of(queries: Sequence[PreparedQuery]) -> RankingData:
    """Candidates of queries with the features of a search."""
    features = [search_features(q.found, NOTHING, len(parse_query(q.text).clauses), NOW) for q in queries]
    return RankingData.from_arrays(
        np.concatenate(features).astype(np.float32),
        np.concatenate([np.minimum(query.labels, 4) for query in queries]).astype(np.int8),
        np.cumsum([0, *(len(query.labels) for query in queries)]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--persons", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--preset", default="navigational")
    parser.add_argument("--eta", type=float, default=0.03)
    parser.add_argument("--step", type=float, default=1.0)
    parser.add_argument("--power", type=float, default=0.5)
    parser.add_argument("--penalty", type=float, default=40.0)
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--private", type=int, default=0, metavar="N")
    parser.add_argument("--machines", type=int, default=50, metavar="M")
    args = parser.parse_args()
    private_file.SYNCHRONOUS = "OFF"  # processes are not killed here
    for path in args.collections:
        if args.private:
            measure_private(args, path)
        else:
            measure(args, path)


if __name__ == "__main__":
    main()

"""CS-F-LTR table I and figure 6: rankers trained alone, together and with other parties' answers (Wang et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require, require_range
from quorank.metrics.significance import Difference, corrected, paired_t
from quorank.reports.panels import Curve, Panel
from quorank.reproduce.report import ReportTable
from quorank.reproduce.studies.study import StudyFinding, StudyRequest, StudyResults
from quorank.silos.generated import Generator
from quorank.silos.holdings import Holding
from quorank.silos.sketch.augmentation import Augment
from quorank.silos.sketch.published import (
    METHODS,
    PreparedParties,
    PublishedSetting,
    augment_parties,
    compare_methods,
    prepare_parties,
    sum_statistics,
    train_together,
)
from quorank.silos.sketch.questions import QuestionProtocol
from quorank.silos.training.comparison import ComparisonOutcome, PartySource, RepeatedComparison, verdict
from quorank.silos.training.lists import MEASURES, SearchedLists

TITLES = {"local": "Local", "local+": "Local+", "global": "Global", "cs-f-ltr": "CS-F-LTR"}
INSTANCES = {"recommended": Augment.recommended, "published": Augment.published}
LABEL_TITLES = {"judged": "judgements", "reference-rank": "ranks of a reference retrieval"}


@dataclass(frozen=True)
class SiloTable:
    """Table I: four methods on the same parties, with two kinds of labels and two kinds of augmented instances."""

    kind: ClassVar[str] = "silo-table"

    parties: int = 4  # N
    documents: int = 1000  # of each party, where they are generated
    labelled: int = 5  # queries with labels of each party
    asked: int = 40  # queries that each party asks
    noise: tuple[float, ...] = (0.0, 0.0, 0.3, 0.3)  # of labels: A and B have good ones, C and D bad ones
    labels: tuple[Literal["judged", "reference-rank"], ...] = ("judged", "reference-rank")
    instances: tuple[Literal["recommended", "published"], ...] = ("recommended", "published")
    perturbation: Literal["published", "strict", "none"] = "published"
    epsilon: float = 0.5  # ε
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("labels", "instances"):
            require(getattr(self, name), "value.missing", "need at least one value", name)
        PartySource(parties=self.parties, generator=Generator(documents=self.documents))
        PublishedSetting(labelled=(self.labelled,), noise=self.noise, asked=self.asked)
        _protocol(self.perturbation, self.epsilon)

    def measure(self, request: StudyRequest) -> StudyResults:
        source = source_of(request, self.parties, self.documents)
        protocol = _protocol(self.perturbation, self.epsilon)
        found: dict[tuple[str, str], list[ComparisonOutcome]] = {}
        names: tuple[str, ...] = ()
        total, done = request.repetitions * len(self.labels), 0
        for repetition in range(request.repetitions):
            seed = self.seed + repetition
            parties = source.holdings(seed)
            names = tuple(party.name for party in parties)
            statistics = sum_statistics(parties, protocol, seed)
            for label in self.labels:
                request.progress(done, total, f"trial {repetition + 1}, labels: {LABEL_TITLES[label]}")
                setting = PublishedSetting(label, (self.labelled,), self.noise, self.asked)
                base = prepare_parties(parties, setting, seed, statistics)
                answers = base.answers(protocol)
                for name in self.instances:
                    variant = with_instances(base, INSTANCES[name]())
                    outcome = compare_methods(variant, augment_parties(variant, answers))
                    found.setdefault((label, name), []).append(outcome)
                done += 1
        request.progress(total, total, "done")
        repeated = {key: RepeatedComparison(outcomes) for key, outcomes in found.items()}
        return StudyResults(
            (),
            tuple(_sheet(repeated[key], key, names) for key in repeated),
            tuple(v for key in repeated for v in self._findings(repeated[key], key)),
            (
                "Means over trials; each has its own parties, split of queries, key and noise. p by paired t-tests over "
                "trials, corrected for three comparisons. BM25 is that of title and body, stemmed, "
                "with nothing learned; all rankers order the lists that it finds.",
                "Instances as published: ranked by counts, all positive, none negative, for the labelled queries. "
                "Recommended: ranked by BM25 of body and title, with negatives, for all queries, weight validated.",
            ),
            {f"{label}, {name}": r.as_dict() for (label, name), r in repeated.items()},
        )

    def _findings(self, repeated: RepeatedComparison, key: tuple[str, str]) -> list[StudyFinding]:
        where = f"{LABEL_TITLES[key[0]]}, instances {key[1]}"
        tests = repeated.against(others=METHODS[:-1])
        signs = [_significant_sign(d) for d in tests.values()]
        holds = False if False in signs else True if all(signs) else None
        seen = "; ".join(f"{TITLES[other]}: {verdict(d)}" for other, d in tests.items())
        claim = f"CS-F-LTR beats the averages of Local and Local+, and Global ({where})"
        out = [StudyFinding(claim, holds, seen)]
        bad = [p for p in range(self.parties) if self.noise[p % len(self.noise)] > min(self.noise)]
        good = [p for p in range(self.parties) if p not in bad]
        if bad and good and key[1] == self.instances[0]:
            out.append(self._fairness(repeated, where, good, bad))
        return out

    def _fairness(
        self, repeated: RepeatedComparison, where: str, good: Sequence[int], bad: Sequence[int]
    ) -> StudyFinding:
        """Compare gains over Local on all test lists, of parties with good and with bad labels."""
        gains = [
            [o.table["cs-f-ltr"]["ndcg@10"] - o.by_party["local"][p]["ndcg@10"] for p in range(self.parties)]
            for o in repeated.outcomes
        ]
        low, high = (np.mean(np.array(gains)[:, chosen], axis=1) for chosen in (bad, good))
        test = paired_t(low, high)
        p_value = "" if test.p is None else f"; p = {test.p:.3f}"
        seen = f"gain over Local: bad labels {low.mean():+.4f}, good labels {high.mean():+.4f}{p_value}"
        claim = f"parties with labels of low quality gain most ({where})"
        return StudyFinding(claim, _significant_sign(test), seen)


def _protocol(perturbation: Literal["published", "strict", "none"], epsilon: float = 0.5) -> QuestionProtocol:
    return QuestionProtocol(perturbation, epsilon)


def _significant_sign(test: Difference) -> bool | None:
    """Return whether the first side is above the second; None if the difference is not significant (corrected p < .05)."""
    return None if test.corrected_p is None or test.corrected_p >= 0.05 else test.difference > 0


def source_of(request: StudyRequest, parties: int, documents: int) -> PartySource:
    """Return the user's collection divided among the parties, or generated parties."""
    collections = (request.data,) if request.data else ()
    return PartySource(collections, parties, Generator(documents=documents))


def with_instances(base: PreparedParties, chosen: Augment) -> PreparedParties:
    """Return the same trial with other augmented instances."""
    return replace(base, setting=replace(base.setting, augment=chosen))


def _sheet(repeated: RepeatedComparison, key: tuple[str, str], names: Sequence[str]) -> ReportTable:
    rows: list[tuple[str, ...]] = []

    def row(name: str, figures: dict[str, float]) -> None:
        rows.append((name, *(f"{figures[m]:.3f}" for m in MEASURES)))

    for method in METHODS:
        if method in ("local", "local+"):
            for p, name in enumerate(names):
                row(f"{TITLES[method]}, {name}", repeated.party_means(method, p))
        mean = {m: repeated.mean(method, m) for m in MEASURES}
        row(TITLES[method] + (", average" if method in ("local", "local+") else ""), mean)
    row("BM25 of title and body", {m: repeated.mean("bm25", m) for m in MEASURES})
    title = f"labels: {LABEL_TITLES[key[0]]}; instances {key[1]}"
    return ReportTable(title, ("", "ERR", "nDCG@10", "nDCG"), tuple(rows))


@dataclass(frozen=True)
class SiloSweep:
    """Figure 6: the privacy budget, and the number of parties."""

    kind: ClassVar[str] = "silo-sweep"

    parties: int = 5  # N at most
    documents: int = 1000
    labelled: int = 5
    asked: int = 20
    epsilons: tuple[float, ...] = (0.1, 0.5, 2.0, 10.0)  # ε
    strict: tuple[float, ...] = (0.5, 2.0, 10.0, 50.0)  # ε of strict answers
    labels: Literal["judged", "reference-rank"] = "judged"
    instances: Literal["recommended", "published"] = "recommended"
    seed: int = 1

    def __post_init__(self) -> None:
        require_range("parties", self.parties, least=2)
        for epsilon in (*self.epsilons, *self.strict):
            _protocol("published", epsilon)

    def measure(self, request: StudyRequest) -> StudyResults:
        source = source_of(request, self.parties, self.documents)
        protocols = [_protocol("none")]
        protocols += [_protocol("published", epsilon) for epsilon in self.epsilons]
        protocols += [_protocol("strict", epsilon) for epsilon in self.strict]
        setting = PublishedSetting(
            labels=self.labels, labelled=(self.labelled,), asked=self.asked, augment=INSTANCES[self.instances]()
        )
        budget: dict[QuestionProtocol, list[ComparisonOutcome]] = {protocol: [] for protocol in protocols}
        number: dict[int, list[dict[str, float]]] = {n: [] for n in range(1, self.parties + 1)}
        total, done = request.repetitions * (len(protocols) + 1), 0
        for repetition in range(request.repetitions):
            seed = self.seed + repetition
            everyone = source.holdings(seed)
            parties = everyone[: min(4, len(everyone))]
            for protocol in protocols:
                request.progress(
                    done, total, f"trial {repetition + 1}, {protocol.perturbation} ε = {protocol.epsilon:g}"
                )
                base = prepare_parties(parties, setting, seed, sum_statistics(parties, protocol, seed))
                answers = base.answers(protocol)
                budget[protocol].append(compare_methods(base, augment_parties(base, answers)))
                done += 1
            request.progress(done, total, f"trial {repetition + 1}, numbers of parties")
            for n, figures in measure_by_parties(everyone, setting, seed).items():
                number[n].append(figures)
            done += 1
        request.progress(total, total, "done")
        return self._measured({p: RepeatedComparison(o) for p, o in budget.items()}, number)

    def _measured(
        self, budget: dict[QuestionProtocol, RepeatedComparison], number: dict[int, list[dict[str, float]]]
    ) -> StudyResults:
        plain = budget[_protocol("none")]
        lines = [_level("no noise", plain, self.epsilons + self.strict)]
        for name in ("published", "strict"):
            chosen = [p for p in budget if p.perturbation == name]
            lines.append(
                Curve.of_means(
                    f"CS-F-LTR, {name}",
                    [p.epsilon for p in chosen],
                    [budget[p].mean("cs-f-ltr") for p in chosen],
                    [budget[p].spread("cs-f-ltr") for p in chosen],
                )
            )
        lines.append(_level("Global", plain, self.epsilons + self.strict, "global"))
        xs = list(number)
        by_number = tuple(
            Curve.of_means(
                key,
                xs,
                [np.mean([f[key] for f in number[n]]) for n in xs],
                [np.std([f[key] for f in number[n]]) for n in xs],
            )
            for key in MEASURES
        )
        charts = (
            Panel("privacy budget", "ε of one answer (published), of all (strict)", "nDCG@10", tuple(lines), log="x"),
            Panel("number of parties", "parties", "CS-F-LTR", by_number),
        )
        rows = [
            (
                "no noise" if p.perturbation == "none" else f"{p.perturbation}, ε = {p.epsilon:g}",
                *(f"{r.mean('cs-f-ltr', m):.4f}" for m in MEASURES),
                f"{r.mean('global'):.4f}",
            )
            for p, r in budget.items()
        ]
        sheet = ReportTable("CS-F-LTR by noise", ("noise", "ERR", "nDCG@10", "nDCG", "Global nDCG@10"), tuple(rows))
        return StudyResults(
            charts,
            (sheet,),
            (*self._budget_findings(budget), _number_finding(number)),
            (
                "The published ε covers the median of one answer only; the strict one covers all answers about a document.",
            ),
            {"budget": {f"{p.perturbation} {p.epsilon:g}": r.as_dict() for p, r in budget.items()}},
        )

    def _budget_findings(self, budget: dict[QuestionProtocol, RepeatedComparison]) -> list[StudyFinding]:
        def seen(chosen: Sequence[QuestionProtocol], tests: Sequence[Difference]) -> str:
            return "; ".join(f"ε = {p.epsilon:g}: {verdict(t)}" for p, t in zip(chosen, tests, strict=True))

        plain = budget[_protocol("none")].values("cs-f-ltr")
        chosen = [p for p in budget if p.perturbation == "published"]
        tests = corrected([paired_t(budget[p].values("cs-f-ltr"), plain) for p in chosen])
        signs = [_significant_sign(t) for t in tests]
        holds = True if True in signs else False if False in signs else None
        out = [StudyFinding("a little noise makes the ranker better", holds, seen(chosen, tests))]
        strict = [p for p in budget if p.perturbation == "strict"]
        if strict:
            tests = [paired_t(budget[p].values("cs-f-ltr"), budget[p].values("global")) for p in strict]
            helps = True if True in [_significant_sign(t) for t in tests] else None
            claim = "ours: strict answers still help, against Global"
            out.append(StudyFinding(claim, helps, seen(strict, tests)))
        return out


def measure_by_parties(parties: Sequence[Holding], setting: PublishedSetting, seed: int) -> dict[int, dict[str, float]]:
    """Train CS-F-LTR among the first n parties, for each n, and judge it on the test lists of all; one alone is Local."""
    whole = prepare_parties(parties, setting, seed)
    rankers = [setting.training.train(whole.own[:1], seed)]
    for n in range(2, len(parties) + 1):
        few = replace(whole, parties=whole.parties[:n], own=whole.own[:n], splits=whole.splits[:n])
        answers = few.answers(None)
        rankers.append(train_together(few, augment_parties(few, answers), range(n))[1])
    return dict(enumerate(SearchedLists.joined(whole.tests).figures(rankers), start=1))


def _level(name: str, repeated: RepeatedComparison, epsilons: Sequence[float], method: str = "cs-f-ltr") -> Curve:
    ends = [min(epsilons), max(epsilons)]
    return Curve.of_means(name, ends, [repeated.mean(method)] * 2, level=True)


def _number_finding(number: dict[int, list[dict[str, float]]]) -> StudyFinding:
    most = max(number)
    one, all_ = ([f["ndcg@10"] for f in number[n]] for n in (1, most))
    test = paired_t(all_, one)
    seen = f"nDCG@10 {np.mean(one):.4f} with one party, {np.mean(all_):.4f} with {most}: {verdict(test)}"
    return StudyFinding("more parties make a better ranker", _significant_sign(test), seen)

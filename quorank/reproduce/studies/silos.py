"""CS-F-LTR table I and figure 6: rankers trained alone, together and with other parties' answers (Wang et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np

from quorank.files.codec import Length, Range
from quorank.metrics.significance import Difference, corrected, paired_t
from quorank.reports.comparison import p_text
from quorank.reports.panels import Curve, Panel
from quorank.reports.report import ReportTable
from quorank.reproduce.studies.study import StudyFinding, StudyRequest, StudyResults, significant_sign
from quorank.silos.generated import Generator
from quorank.silos.holdings import Holding
from quorank.silos.sketch.augmentation import Augment
from quorank.silos.sketch.instances import LabelSource
from quorank.silos.sketch.published import (
    METHODS,
    PublishedSetting,
    augment_parties,
    compare_methods,
    prepare_parties,
    train_together,
)
from quorank.silos.sketch.questions import QuestionProtocol
from quorank.silos.training.comparison import ComparisonOutcome, PartySource, RepeatedComparison
from quorank.silos.training.lists import MEASURES, SearchedLists
from quorank.silos.training.statistics import share_statistics

TITLES = {
    "local": "Local",
    "local+": "Local+",
    "global": "Global",
    "cs-f-ltr": "CS-F-LTR",
    "bm25": "BM25 of title and body",
}
INSTANCES = {"recommended": Augment.recommended, "published": Augment.published}
LABELS: dict[LabelSource, str] = {"judged": "judgements", "reference-rank": "ranks of a reference retrieval"}
EXACT = QuestionProtocol("none")


def source_of(request: StudyRequest, parties: int, documents: int) -> PartySource:
    """Return the user's collection divided among the parties, or generated parties."""
    return PartySource((request.data,) if request.data else (), parties, Generator(documents=documents))


@dataclass(frozen=True)
class SiloTable:
    """Table I: four methods on the same parties, with two kinds of labels and two kinds of augmented instances."""

    kind: ClassVar[str] = "silo-table"

    parties: Annotated[int, Range(2)] = 4  # N
    documents: int = 1000  # of each party, where they are generated
    labelled: int = 5  # queries with labels of each party
    asked: int = 40  # queries that each party asks
    noise: Annotated[tuple[float, ...], Length(100, 1)] = (0.0, 0.0, 0.3, 0.3)  # of the parties' labels

    def measure(self, request: StudyRequest) -> StudyResults:
        protocol = QuestionProtocol("published", 0.5)
        holdings = lru_cache(1)(source_of(request, self.parties, self.documents).holdings)
        found: dict[tuple[LabelSource, str], list[ComparisonOutcome]] = {}
        for seed, label in request.trials([*LABELS], lambda label: f"labels: {LABELS[label]}"):
            parties = holdings(seed)
            setting = PublishedSetting(label, (self.labelled,), self.noise, self.asked)
            base = prepare_parties(parties, setting, seed, share_statistics(parties, protocol.statistics_epsilon, seed))
            answers = base.answers(protocol)
            for name, instances in INSTANCES.items():
                variant = replace(base, setting=replace(setting, augment=instances()))
                outcome = compare_methods(variant, augment_parties(variant, answers))
                found.setdefault((label, name), []).append(outcome)
        repeated = {key: RepeatedComparison(outcomes) for key, outcomes in found.items()}
        where = {key: f"{LABELS[key[0]]}, instances {key[1]}" for key in repeated}
        return StudyResults(
            (),
            tuple(method_table(found.as_dict(), TITLES, f"labels: {where[key]}") for key, found in repeated.items()),
            [finding for key in repeated for finding in self._findings(repeated[key], where[key], key[1])],
            (
                "Means over trials; each has its own parties, split of queries, key and noise. p by paired t-tests over "
                "trials, corrected for three comparisons. BM25 is that of title and body, stemmed, "
                "with nothing learned; all rankers order the lists that it finds.",
                "Instances as published: ranked by counts, all positive, none negative, for the labelled queries. "
                "Recommended: ranked by BM25 of body and title, with negatives, for all queries, weight validated.",
            ),
            {f"{label}, {name}": comparison.as_dict() for (label, name), comparison in repeated.items()},
        )

    def _findings(self, repeated: RepeatedComparison, where: str, instances: str) -> list[StudyFinding]:
        tests = repeated.against(others=METHODS[:-1])
        signs = [significant_sign(d) for d in tests.values()]
        holds = False if False in signs else True if all(signs) else None
        seen = "; ".join(f"{TITLES[other]}: {verdict(d)}" for other, d in tests.items())
        claim = f"CS-F-LTR beats the averages of Local and Local+, and Global ({where})"
        found = [StudyFinding(claim, holds, seen)]
        bad = np.array([self.noise[p % len(self.noise)] > min(self.noise) for p in range(self.parties)])
        if bad.any() and not bad.all() and instances == "recommended":
            # gains over Local on all test lists, of parties with good and with bad labels
            gains = np.array(
                [
                    [o.table["cs-f-ltr"]["ndcg@10"] - own["ndcg@10"] for own in o.by_party["local"]]
                    for o in repeated.outcomes
                ]
            )
            low, high = gains[:, bad].mean(axis=1), gains[:, ~bad].mean(axis=1)
            test = paired_t(low, high)
            p_value = "" if test.p is None else f"; p = {test.p:.3f}"
            seen = f"gain over Local: bad labels {low.mean():+.4f}, good labels {high.mean():+.4f}{p_value}"
            claim = f"parties with labels of low quality gain most ({where})"
            found.append(StudyFinding(claim, significant_sign(test), seen))
        return found


def method_table(figures: Mapping[str, Any], titles: Mapping[str, str], title: str = "") -> ReportTable:
    """Return a row per titled method, and per party where each trains alone.

    Args:
        figures: Result of `RepeatedComparison.as_dict`.
        titles: Titles of methods, in order.
        title: Title of the table.
    """
    rows: list[tuple[str, ...]] = []
    for method, name in titles.items():
        alone = {party: found[method] for party, found in figures["parties"].items() if method in found}
        lines = {f"{name}, party {party}"[:40]: values for party, values in alone.items()}
        lines[f"{name}, average" if alone else name] = figures["table"][method]
        rows += [(line, *(f"{values[measure]:.3f}" for measure in MEASURES)) for line, values in lines.items()]
    return ReportTable(title, ("", "ERR", "nDCG@10", "nDCG"), rows)


@dataclass(frozen=True)
class SiloSweep:
    """Figure 6: the privacy budget, and the number of parties."""

    kind: ClassVar[str] = "silo-sweep"

    parties: Annotated[int, Range(2)] = 5  # N at most
    documents: int = 1000
    labelled: int = 5
    asked: int = 20
    epsilons: tuple[Annotated[float, Range(above=0.0)], ...] = (0.1, 0.5, 2.0, 10.0)  # ε
    strict: tuple[Annotated[float, Range(above=0.0)], ...] = (0.5, 2.0, 10.0, 50.0)  # ε of strict answers

    def measure(self, request: StudyRequest) -> StudyResults:
        holdings = lru_cache(1)(source_of(request, self.parties, self.documents).holdings)
        protocols = [EXACT, *(QuestionProtocol("published", epsilon) for epsilon in self.epsilons)]
        protocols += [QuestionProtocol("strict", epsilon) for epsilon in self.strict]
        setting = PublishedSetting(labelled=(self.labelled,), asked=self.asked)
        budget: dict[QuestionProtocol, list[ComparisonOutcome]] = {protocol: [] for protocol in protocols}
        number: dict[int, list[dict[str, float]]] = {n: [] for n in range(1, self.parties + 1)}
        for seed, protocol in request.trials([*protocols, None], _name):
            everyone = holdings(seed)
            if protocol is None:
                for n, figures in measure_by_parties(everyone, setting, seed).items():
                    number[n].append(figures)
                continue
            parties = everyone[:4]
            base = prepare_parties(parties, setting, seed, share_statistics(parties, protocol.statistics_epsilon, seed))
            budget[protocol].append(compare_methods(base, augment_parties(base, base.answers(protocol))))
        return self._measured({p: RepeatedComparison(outcomes) for p, outcomes in budget.items()}, number)

    def _measured(
        self, budget: dict[QuestionProtocol, RepeatedComparison], number: dict[int, list[dict[str, float]]]
    ) -> StudyResults:
        chosen = {name: [p for p in budget if p.perturbation == name] for name in ("published", "strict")}
        ends = [f(self.epsilons + self.strict) for f in (min, max)]
        lines = [
            Curve.of_means(label, ends, [budget[EXACT].mean(method)] * 2, level=True)
            for label, method in (("no noise", "cs-f-ltr"), ("Global", "global"))
        ]
        for name, protocols in chosen.items():
            means = [budget[p].mean("cs-f-ltr") for p in protocols]
            spread = [budget[p].spread("cs-f-ltr") for p in protocols]
            lines.insert(-1, Curve.of_means(f"CS-F-LTR, {name}", [p.epsilon for p in protocols], means, spread))
        by_number = []
        for measure in MEASURES:
            values = np.array([[figures[measure] for figures in number[n]] for n in number])
            by_number.append(Curve.of_means(measure, list(number), values.mean(axis=1), values.std(axis=1)))
        charts = (
            Panel("privacy budget", "ε of one answer (published), of all (strict)", "nDCG@10", tuple(lines), log="x"),
            Panel("number of parties", "parties", "CS-F-LTR", tuple(by_number)),
        )
        rows = tuple(
            (_name(p), *(f"{r.mean('cs-f-ltr', m):.4f}" for m in MEASURES), f"{r.mean('global'):.4f}")
            for p, r in budget.items()
        )
        sheet = ReportTable("CS-F-LTR by noise", ("noise", "ERR", "nDCG@10", "nDCG", "Global nDCG@10"), rows)
        note = "The published ε covers the median of one answer; the strict one covers all answers about a document."
        plain = budget[EXACT].values("cs-f-ltr")
        noisy = corrected([paired_t(budget[p].values("cs-f-ltr"), plain) for p in chosen["published"]])
        strict = [paired_t(budget[p].values("cs-f-ltr"), budget[p].values("global")) for p in chosen["strict"]]
        signs, helps = ([significant_sign(test) for test in tests] for tests in (noisy, strict))
        most = max(number)
        one, all_ = ([figures["ndcg@10"] for figures in number[n]] for n in (1, most))
        more = paired_t(all_, one)
        gained = f"nDCG@10 {np.mean(one):.4f} with one party, {np.mean(all_):.4f} with {most}: {verdict(more)}"
        findings = (
            StudyFinding(
                "a little noise makes the ranker better",
                True if True in signs else False if False in signs else None,
                _seen(chosen["published"], noisy),
            ),
            StudyFinding(
                "ours: strict answers still help, against Global",
                True if True in helps else None,
                _seen(chosen["strict"], strict),
            ),
            StudyFinding("more parties make a better ranker", significant_sign(more), gained),
        )
        numbers = {f"{p.perturbation} {p.epsilon:g}": r.as_dict() for p, r in budget.items()}
        return StudyResults(charts, (sheet,), findings, (note,), {"budget": numbers})


def _name(protocol: QuestionProtocol | None) -> str:
    if protocol is None:
        return "numbers of parties"
    return "no noise" if protocol == EXACT else f"{protocol.perturbation}, ε = {protocol.epsilon:g}"


def _seen(protocols: Sequence[QuestionProtocol], tests: Sequence[Difference]) -> str:
    return "; ".join(f"ε = {p.epsilon:g}: {verdict(t)}" for p, t in zip(protocols, tests, strict=True))


def verdict(difference: Difference) -> str:
    """Return a difference in words: 'above (+0.012, p = .003)'."""
    word = "alike" if difference.difference == 0 else "above" if difference.difference > 0 else "below"
    tested = "not tested" if difference.corrected_p is None else p_text(difference.corrected_p)
    return f"{word} ({difference.difference:+.4f}, {tested})"


def measure_by_parties(parties: Sequence[Holding], setting: PublishedSetting, seed: int) -> dict[int, dict[str, float]]:
    """Train CS-F-LTR among the first n parties, for each n, and judge it on the test lists of all; one alone is Local."""
    whole = prepare_parties(parties, setting, seed)
    rankers = [setting.training.train(whole.own[:1], seed)]
    for n in range(2, len(parties) + 1):
        few = replace(whole, parties=whole.parties[:n], own=whole.own[:n], splits=whole.splits[:n])
        rankers.append(train_together(few, augment_parties(few, few.answers(None)), range(n))[1])
    return dict(enumerate(SearchedLists.joined(whole.tests).figures(rankers), start=1))

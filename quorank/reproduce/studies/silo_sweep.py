"""CS-F-LTR figure 6: the privacy budget, and the number of parties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require
from quorank.metrics.significance import corrected, paired_t
from quorank.reproduce.studies.silos import INSTANCES, source_of
from quorank.reproduce.studies.study import Asked, Chart, Line, Measured, Sheet, Verdict
from quorank.silos.learning.comparison import (
    MEASURES,
    ComparisonOutcome,
    RepeatedComparison,
    SiloSetting,
    augment_parties,
    collect_answers,
    compare_methods,
    evaluate_rankers,
    prepare_parties,
    sum_statistics,
    train_together,
    verdict,
)
from quorank.silos.learning.exchange import SiloProtocol
from quorank.silos.learning.holdings import Holding
from quorank.silos.learning.instances import LABELS, Instances, join_instances


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
        require(self.parties >= 2, f"parties must be at least 2, got {self.parties}")
        for epsilon in (*self.epsilons, *self.strict):
            SiloProtocol("published", epsilon)

    def measure(self, asked: Asked) -> Measured:
        source = source_of(asked, self.parties, self.documents)
        protocols = [SiloProtocol("none")]
        protocols += [SiloProtocol("published", epsilon) for epsilon in self.epsilons]
        protocols += [SiloProtocol("strict", epsilon) for epsilon in self.strict]
        setting = SiloSetting(
            labels=LABELS.read(self.labels, "labels"),
            labelled=(self.labelled,),
            asked=self.asked,
            augment=INSTANCES[self.instances](),
        )
        budget: dict[SiloProtocol, list[ComparisonOutcome]] = {protocol: [] for protocol in protocols}
        number: dict[int, list[dict[str, float]]] = {n: [] for n in range(1, self.parties + 1)}
        total, done = asked.repetitions * (len(protocols) + 1), 0
        for repetition in range(asked.repetitions):
            seed = self.seed + repetition
            everyone = source.holdings(seed)
            parties = everyone[: min(4, len(everyone))]
            for protocol in protocols:
                asked.progress(
                    done, total, f"trial {repetition + 1}, {protocol.perturbation} ε = {protocol.epsilon:g}"
                )
                base = prepare_parties(parties, setting, seed, sum_statistics(parties, protocol, seed))
                answers, _ = collect_answers(base, protocol)
                budget[protocol].append(compare_methods(base, augment_parties(base, answers)))
                done += 1
            asked.progress(done, total, f"trial {repetition + 1}, numbers of parties")
            for n, figures in by_parties(everyone, setting, seed).items():
                number[n].append(figures)
            done += 1
        asked.progress(total, total, "done")
        return self._measured({p: RepeatedComparison(o) for p, o in budget.items()}, number)

    def _measured(
        self, budget: dict[SiloProtocol, RepeatedComparison], number: dict[int, list[dict[str, float]]]
    ) -> Measured:
        plain = budget[SiloProtocol("none")]
        lines = [_flat("no noise", plain, self.epsilons + self.strict)]
        for name in ("published", "strict"):
            chosen = [p for p in budget if p.perturbation == name]
            lines.append(
                Line(
                    f"CS-F-LTR, {name}",
                    [p.epsilon for p in chosen],
                    [budget[p].mean("cs-f-ltr") for p in chosen],
                    [budget[p].spread("cs-f-ltr") for p in chosen],
                )
            )
        lines.append(_flat("Global", plain, self.epsilons + self.strict, "global"))
        xs = list(number)
        by_number = tuple(
            Line(
                key,
                [float(n) for n in xs],
                [float(np.mean([f[key] for f in number[n]])) for n in xs],
                [float(np.std([f[key] for f in number[n]])) for n in xs],
            )
            for key in MEASURES
        )
        charts = (
            Chart(
                "privacy budget",
                "ε of one answer (published), of all (strict)",
                "nDCG@10",
                tuple(lines),
                log_x=True,
            ),
            Chart("number of parties", "parties", "CS-F-LTR", by_number),
        )
        rows = [
            (
                "no noise" if p.perturbation == "none" else f"{p.perturbation}, ε = {p.epsilon:g}",
                *(f"{r.mean('cs-f-ltr', m):.4f}" for m in MEASURES),
                f"{r.mean('global'):.4f}",
            )
            for p, r in budget.items()
        ]
        sheet = Sheet("CS-F-LTR by noise", ("noise", "ERR", "nDCG@10", "nDCG", "Global nDCG@10"), tuple(rows))
        return Measured(
            charts,
            (sheet,),
            (*self._budget_verdicts(budget), _number_verdict(number)),
            (
                "The published ε covers the median of one answer only; the strict one covers all answers about a document.",
            ),
            {"budget": {f"{p.perturbation} {p.epsilon:g}": r.as_dict() for p, r in budget.items()}},
        )

    def _budget_verdicts(self, budget: dict[SiloProtocol, RepeatedComparison]) -> list[Verdict]:
        plain = budget[SiloProtocol("none")].values("cs-f-ltr")
        chosen = [p for p in budget if p.perturbation == "published"]
        tests = corrected([paired_t(budget[p].values("cs-f-ltr"), plain) for p in chosen])
        seen = "; ".join(f"ε = {p.epsilon:g}: {verdict(t)}" for p, t in zip(chosen, tests, strict=True))
        better = [t.difference > 0 and t.corrected_p is not None and t.corrected_p < 0.05 for t in tests]
        worse = [t.difference < 0 and t.corrected_p is not None and t.corrected_p < 0.05 for t in tests]
        out = [
            Verdict(
                "a little noise makes the ranker better", any(better) or (False if any(worse) else None), seen
            )
        ]
        strict = [p for p in budget if p.perturbation == "strict"]
        if strict:
            against = [paired_t(budget[p].values("cs-f-ltr"), budget[p].values("global")) for p in strict]
            seen = "; ".join(f"ε = {p.epsilon:g}: {verdict(t)}" for p, t in zip(strict, against, strict=True))
            helps = any(t.difference > 0 and t.p is not None and t.p < 0.05 for t in against)
            out.append(Verdict("ours: strict answers still help, against Global", helps or None, seen))
        return out


def by_parties(parties: Sequence[Holding], setting: SiloSetting, seed: int) -> dict[int, dict[str, float]]:
    """CS-F-LTR among the first n parties, judged on the test lists of all of them; one party alone is Local."""
    whole = prepare_parties(parties, setting, seed)
    rankers = [setting.training.train(whole.own[:1], seed)]
    for n in range(2, len(parties) + 1):
        few = replace(whole, parties=whole.parties[:n], own=whole.own[:n], splits=whole.splits[:n])
        answers, _ = collect_answers(few, None)
        rankers.append(train_together(few, augment_parties(few, answers), range(n))[1])
    tests = join_instances([Instances(test, np.ones(test.n_rows)) for test in whole.tests]).data
    return dict(enumerate(evaluate_rankers(tests, rankers), start=1))


def _flat(
    name: str, repeated: RepeatedComparison, epsilons: Sequence[float], method: str = "cs-f-ltr"
) -> Line:
    ends = [min(epsilons), max(epsilons)]
    return Line(name, ends, [repeated.mean(method)] * 2)


def _number_verdict(number: dict[int, list[dict[str, float]]]) -> Verdict:
    most = max(number)
    one, all_ = ([f["ndcg@10"] for f in number[n]] for n in (1, most))
    test = paired_t(all_, one)
    holds = None if test.p is None or test.p >= 0.05 else test.difference > 0
    seen = f"nDCG@10 {np.mean(one):.4f} with one party, {np.mean(all_):.4f} with {most}: {verdict(test)}"
    return Verdict("more parties make a better ranker", holds, seen)

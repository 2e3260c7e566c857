"""CS-F-LTR table I: does asking other parties make a better ranker?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require
from quorank.metrics.significance import paired_t
from quorank.reproduce.studies.study import Asked, Measured, Sheet, Verdict
from quorank.silos.generated import Generator
from quorank.silos.learning.augmentation import Augment
from quorank.silos.learning.comparison import (
    MEASURES,
    METHODS,
    ComparisonOutcome,
    PartySource,
    PreparedParties,
    RepeatedComparison,
    SiloSetting,
    augment_parties,
    collect_answers,
    compare_methods,
    prepare_parties,
    sum_statistics,
    verdict,
)
from quorank.silos.learning.exchange import SiloProtocol
from quorank.silos.learning.instances import LABELS
from quorank.silos.learning.training import TRAININGS

TITLES = {"local": "Local", "local+": "Local+", "global": "Global", "cs-f-ltr": "CS-F-LTR"}
INSTANCES = {"recommended": Augment.recommended, "published": Augment.published}
LABEL_TITLES = {"judged": "judgements", "reference-rank": "ranks of a reference retrieval"}


@dataclass(frozen=True)
class SiloTable:
    """Table I: four methods, two kinds of labels, two kinds of augmented instances, on the same parties."""

    kind: ClassVar[str] = "silo-table"

    parties: int = 4  # N
    documents: int = 1000  # of each party, where they are generated
    labelled: int = 5  # queries with labels of each party
    asked: int = 40  # queries that each party asks
    noise: tuple[float, ...] = (
        0.0,
        0.0,
        0.3,
        0.3,
    )  # of labels: parties A and B have good ones, C and D bad ones
    labels: tuple[Literal["judged", "reference-rank"], ...] = ("judged", "reference-rank")
    instances: tuple[Literal["recommended", "published"], ...] = ("recommended", "published")
    training: Literal["round-robin", "averaging", "clicks"] = "round-robin"
    perturbation: Literal["published", "strict", "none"] = "published"
    epsilon: float = 0.5  # ε
    seed: int = 1

    def __post_init__(self) -> None:
        require(self.labels and self.instances, "labels and instances need at least one value each")
        PartySource(parties=self.parties, generator=Generator(documents=self.documents))
        SiloSetting(labelled=(self.labelled,), noise=self.noise, asked=self.asked)
        SiloProtocol(self.perturbation, self.epsilon)

    def measure(self, asked: Asked) -> Measured:
        source = source_of(asked, self.parties, self.documents)
        protocol = SiloProtocol(self.perturbation, self.epsilon)
        found: dict[tuple[str, str], list[ComparisonOutcome]] = {}
        names: tuple[str, ...] = ()
        total, done = asked.repetitions * len(self.labels), 0
        for repetition in range(asked.repetitions):
            seed = self.seed + repetition
            parties = source.holdings(seed)
            names = tuple(party.name for party in parties)
            statistics = sum_statistics(parties, protocol, seed)
            for label in self.labels:
                asked.progress(done, total, f"trial {repetition + 1}, labels: {LABEL_TITLES[label]}")
                setting = SiloSetting(
                    labels=LABELS.read(label, "labels"),
                    labelled=(self.labelled,),
                    noise=self.noise,
                    asked=self.asked,
                    training=TRAININGS.read(self.training, "training"),
                )
                base = prepare_parties(parties, setting, seed, statistics)
                answers, _ = collect_answers(base, protocol)
                for name in self.instances:
                    variant = with_instances(base, INSTANCES[name]())
                    outcome = compare_methods(variant, augment_parties(variant, answers))
                    found.setdefault((label, name), []).append(outcome)
                done += 1
        asked.progress(total, total, "done")
        repeated = {key: RepeatedComparison(outcomes) for key, outcomes in found.items()}
        return Measured(
            (),
            tuple(_sheet(repeated[key], key, names) for key in repeated),
            tuple(v for key in repeated for v in self._verdicts(repeated[key], key)),
            (
                "Means over trials; each has its own parties, split of queries, key and noise. p by paired t-tests over "
                "trials, corrected for three comparisons. BM25 is the body's, with nothing learned.",
                "Instances as published: ranked by counts, all positive, none negative, for the labelled queries. "
                "Recommended: ranked by BM25 of body and title, with negatives, for all queries, weight validated.",
            ),
            {f"{label}, {name}": r.as_dict() for (label, name), r in repeated.items()},
        )

    def _verdicts(self, repeated: RepeatedComparison, key: tuple[str, str]) -> list[Verdict]:
        where = f"{LABEL_TITLES[key[0]]}, instances {key[1]}"
        tests = repeated.against()
        significant = [d.corrected_p is not None and d.corrected_p < 0.05 for d in tests.values()]
        above = [d.difference > 0 for d in tests.values()]
        holds = all(above) if all(significant) else False if any(
            s and not a for s, a in zip(significant, above, strict=True)
        ) else None  # fmt: skip
        seen = "; ".join(f"{TITLES[other]}: {verdict(d)}" for other, d in tests.items())
        out = [Verdict(f"CS-F-LTR beats the averages of Local and Local+, and Global ({where})", holds, seen)]
        bad = [p for p in range(self.parties) if self.noise[p % len(self.noise)] > min(self.noise)]
        good = [p for p in range(self.parties) if p not in bad]
        if bad and good and key[1] == self.instances[0]:
            out.append(self._fairness(repeated, where, good, bad))
        return out

    def _fairness(
        self, repeated: RepeatedComparison, where: str, good: Sequence[int], bad: Sequence[int]
    ) -> Verdict:
        """Gains over Local on all test lists, of parties with good and with bad labels."""
        gains = [
            [o.table["cs-f-ltr"]["ndcg@10"] - o.by_party["local"][p]["ndcg@10"] for p in range(self.parties)]
            for o in repeated.outcomes
        ]
        of = {
            name: np.mean(np.array(gains)[:, chosen], axis=1)
            for name, chosen in (("good", good), ("bad", bad))
        }
        test = paired_t(of["bad"], of["good"])
        holds = None if test.p is None or test.p >= 0.05 else test.difference > 0
        seen = f"gain over Local: bad labels {of['bad'].mean():+.4f}, good labels {of['good'].mean():+.4f}"
        told = "" if test.p is None else f"; p = {test.p:.3f}"
        return Verdict(f"parties with labels of low quality gain most ({where})", holds, seen + told)


def source_of(asked: Asked, parties: int, documents: int) -> PartySource:
    """The person's own collection, dealt out, or generated parties."""
    collections = (asked.data,) if asked.data else ()
    return PartySource(collections, parties, Generator(documents=documents))


def with_instances(base: PreparedParties, chosen: Augment) -> PreparedParties:
    """The same trial with other augmented instances."""
    return replace(base, setting=replace(base.setting, augment=chosen))


def _sheet(repeated: RepeatedComparison, key: tuple[str, str], names: Sequence[str]) -> Sheet:
    rows: list[tuple[str, ...]] = []

    def row(name: str, figures: dict[str, float]) -> None:
        rows.append((name, *(f"{figures[m]:.3f}" for m in MEASURES)))

    outcomes = repeated.outcomes
    for method in METHODS:
        if method in ("local", "local+"):
            for p, name in enumerate(names):
                of_party = [o.by_party[method][p] for o in outcomes]
                row(
                    f"{TITLES[method]}, {name}",
                    {m: float(np.mean([f[m] for f in of_party])) for m in MEASURES},
                )
        mean = {m: repeated.mean(method, m) for m in MEASURES}
        row(TITLES[method] + (", average" if method in ("local", "local+") else ""), mean)
    row("BM25 alone", {m: float(np.mean([o.bm25[m] for o in outcomes])) for m in MEASURES})
    title = f"labels: {LABEL_TITLES[key[0]]}; instances {key[1]}"
    return Sheet(title, ("", "ERR", "nDCG@10", "nDCG"), tuple(rows))

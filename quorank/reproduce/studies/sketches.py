"""CS-F-LTR figure 4: cover, time and space of reverse top-K sketches over α, β, K, w and z (Wang et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from quorank.files.codec import Range
from quorank.reports.panels import Curve, Panel
from quorank.reports.report import ReportTable
from quorank.reproduce.studies.study import StudyFinding, StudyRequest, StudyResults
from quorank.silos.count_sketch import Naive
from quorank.silos.sketch.cover import KEY, generated_index, mean_cover, naive_bytes, query_milliseconds, sampled_terms
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape
from quorank.text import UNSEEN, Index, Tokeniser, read_collection

PUBLISHED = {"α": 5.0, "β": 0.1, "K": 150, "w": 200, "z": 30}
METHODS = ("literal", "recommended", "NAIVE")
Known = dict[tuple[str, Any], dict[str, float]]
"""Cover, milliseconds and bytes of a method, by the method and what it depends on."""


@dataclass(frozen=True)
class SketchCurves:
    """Figure 4: one of the five numbers varies, the others are the paper's.

    The literal reading has the z·w·αK entries of the setting; the recommended one has as many, in its own proportions;
    NAIVE has the setting's z and w.
    """

    kind: ClassVar[str] = "silo-sketches"

    documents: Annotated[int, Range(100)] = 10_000  # of one party, where they are generated
    length: int = 300  # terms of a document
    terms: Annotated[int, Range(5)] = 60  # asked, of each kind of terms
    alpha: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0)  # α
    beta: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)  # β
    k: tuple[int, ...] = (50, 150, 300)  # K
    columns: tuple[int, ...] = (50, 100, 200, 400)  # w
    rows: tuple[int, ...] = (10, 30, 50, 70)  # z

    def measure(self, request: StudyRequest) -> StudyResults:
        values: tuple[tuple[float, ...], ...] = (self.alpha, self.beta, self.k, self.columns, self.rows)
        sweeps = dict(zip(PUBLISHED, values, strict=True))
        settings = [(name, value) for name, chosen in sweeps.items() for value in chosen]
        found: dict[tuple[str, float], list[dict[str, dict[str, float]]]] = {key: [] for key in settings}
        known: Known = {}
        for seed, (name, value) in request.trials(settings, lambda s: f"{s[0]} = {s[1]:g}"):
            if (name, value) == settings[0]:
                index, queries = self._index(request, seed)
                groups, known = sampled_terms(index, self.terms, seed, queries), {}
            found[name, value].append(_measure(index, groups, PUBLISHED | {name: value}, known))
        return _measured(sweeps, found)

    def _index(self, request: StudyRequest, seed: int) -> tuple[Index, Any]:
        if not request.data:
            return generated_index(self.documents, self.length, seed=seed)
        collection, tokeniser = read_collection(request.data), Tokeniser()
        index = Index.build(collection.documents, tokeniser, "body")
        words = sorted({t for query in collection.queries for t in tokeniser.tokenise(query.text)})
        ids = np.unique(index.term_ids(words)).astype(np.int64)
        return index, ids[ids != UNSEEN]


def _measure(index: Index, groups: Any, setting: dict[str, Any], known: Known) -> dict[str, dict[str, float]]:
    """Cover, milliseconds and bytes of each method; what a method does not depend on is not measured again."""
    k = int(setting["K"])
    literal = Shape.published(rows=int(setting["z"]), columns=int(setting["w"]), alpha=setting["α"], k=k)
    literal = replace(literal, beta=float(setting["β"]))
    ours = Shape.recommended(k)
    ours = replace(ours, entries=max(literal.entries, 2 * ours.rows * ours.columns))
    asked = [index.vocabulary[int(t)] for group in groups.values() for t in group][:40]
    keys = [("literal", (literal, k)), ("recommended", (ours, k)), ("NAIVE", (literal.rows, literal.columns, k))]
    for key in keys:
        if key not in known:
            sketch: Naive | ReverseTopK
            if key[0] == "NAIVE":
                sketch, memory = Naive(literal.hashing(KEY), index), naive_bytes(index, literal)
            else:
                sketch = ReverseTopK(KEY, literal if key[0] == "literal" else ours, index)
                memory = sketch.memory_bytes
            known[key] = {
                "cover": mean_cover(sketch.top, index, groups, k)["all"],
                "milliseconds": query_milliseconds(sketch.top, asked, k),
                "bytes": float(memory),
            }
    return {key[0]: known[key] for key in keys}


def _measured(sweeps: dict[str, tuple[float, ...]], found: Any) -> StudyResults:
    def mean(name: str, value: float, method: str, what: str) -> float:
        return float(np.mean([each[method][what] for each in found[name, value]]))

    charts, rows = [], []
    for name, values in sweeps.items():
        lines = tuple(
            Curve.of_means(method, values, [mean(name, v, method, "cover") for v in values]) for method in METHODS
        )
        charts.append(Panel(f"cover over {name}", name, "cover of the true top K", lines))
        for value in values:
            rows.append(
                (
                    f"{name} = {value:g}",
                    *(f"{mean(name, value, method, 'cover'):.3f}" for method in METHODS),
                    *(f"{mean(name, value, method, 'milliseconds'):.2f}" for method in METHODS),
                    *(f"{mean(name, value, method, 'bytes') / 1e6:.0f}" for method in METHODS[1:]),
                )
            )
    columns = ("", "lit.", "ours", "NAIVE", "lit. ms", "ours ms", "NAIVE ms", "ours MB", "NAIVE MB")
    middle = next((v for v in sweeps["K"] if v == PUBLISHED["K"]), sweeps["K"][0])
    cover = {method: mean("K", middle, method, "cover") for method in METHODS}
    share = mean("K", middle, "recommended", "bytes") / mean("K", middle, "NAIVE", "bytes")
    first, last = (mean("α", v, "literal", "cover") for v in (sweeps["α"][0], sweeps["α"][-1]))
    betas = [mean("β", v, "literal", "cover") for v in sweeps["β"]]
    widths = [mean("w", v, "literal", "cover") for v in sweeps["w"]]
    ratio = mean("K", middle, "NAIVE", "milliseconds") / mean("K", middle, "recommended", "milliseconds")
    findings = (
        StudyFinding(
            "at α = 5 the cover of algorithms 4 and 5 nears 1",
            cover["literal"] > 0.9,
            f"literal {cover['literal']:.3f}, NAIVE {cover['NAIVE']:.3f}",
        ),
        StudyFinding(
            "ours: with as many entries the recommended reading covers 95 % of what NAIVE does",
            cover["recommended"] >= 0.95 * cover["NAIVE"],
            f"recommended {cover['recommended']:.3f}, NAIVE {cover['NAIVE']:.3f}",
        ),
        StudyFinding("cover grows with α", last > first, f"literal: {first:.3f} to {last:.3f}"),
        StudyFinding(
            "cover falls with β",
            betas[-1] < betas[0],
            "literal: " + ", ".join(f"{c:.3f} at β = {v:g}" for v, c in zip(sweeps["β"], betas, strict=True)),
        ),
        StudyFinding("cover grows with w", widths[-1] > widths[0], f"literal: {widths[0]:.3f} to {widths[-1]:.3f}"),
        StudyFinding(
            "a query is 10,000 times faster than NAIVE's (100 s to 10 ms)",
            ratio > 1000,
            f"{ratio:.1f} times, against a vectorised NAIVE",
        ),
        StudyFinding("it takes a fifth of NAIVE's memory", share <= 0.2, f"{share:.3f} of NAIVE's in int32"),
    )
    numbers = {f"{name} = {value:g}": found[name, value] for name, value in found}
    return StudyResults(
        tuple(charts),
        (ReportTable("cover, milliseconds a query, megabytes", columns, tuple(rows)),),
        findings,
        ("The recommended reading takes only the number of entries from the setting, not α, β, w and z.",),
        numbers,
    )

"""The field study of Firefox on made-up people (Hartmann et al. 2019, figures 4, 5 and 7).

`shows` chooses between figure 4 (the loss of the three arms during the tuning), figure 5 (characters typed and rank
chosen afterwards) and figure 7 (how far an update from 2,000 reports is from that of all). The paper had real people and
137 iterations of 30 minutes with some 9,000 reports of the treatment each: 60 % of the 2,074,751 messages that came
before its evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require
from quorank.reproduce.studies.firefox_course import Course, shrunk_losses, tune
from quorank.reproduce.studies.study import Asked, Chart, Line, Measured, Sheet, Verdict
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.histories.people import People
from quorank.tuning.studies.address_bar import frecency_ranker
from quorank.tuning.studies.analysis import Analysis, analyse
from quorank.tuning.studies.rehearsal import observe_study, searches_by_arm, shipped_ranker
from quorank.tuning.studies.study import ARMS, Study

ROLLING = 5  # iterations in the average of figure 4


@dataclass(frozen=True)
class FirefoxStudy:
    """A tuning with three arms, then an evaluation of what it found."""

    kind: ClassVar[str] = "firefox-study"

    shows: Literal["loss", "arms", "estimates"] = "loss"
    iterations: int = 137
    updates: int = 9000  # of the treatment, an iteration
    sample: int = 2000  # reports of an estimate, figure 7
    samples: int = 50  # estimates an iteration, figure 7
    clients: int = 20_000  # of the evaluation, in all arms

    def __post_init__(self) -> None:
        require(self.iterations >= 2, f"iterations must be at least 2, got {self.iterations}")
        require(10 <= self.updates <= 10**6, f"updates must be 10 to a million, got {self.updates}")
        require(self.sample >= 1, f"sample must be at least 1, got {self.sample}")
        require(self.samples >= 2, f"samples must be at least 2, got {self.samples}")
        require(
            self.iterations * self.updates <= 10**9,
            f"at most a thousand million searches, got {self.iterations} iterations of {self.updates} updates",
        )
        require(100 <= self.clients < 2**31, f"clients must be at least 100, got {self.clients}")

    def measure(self, asked: Asked) -> Measured:
        require(asked.data is None, "this study makes its own people up; leave --data away")
        done, total = 0, asked.repetitions * self.iterations

        def watch() -> None:
            nonlocal done
            done += 1
            asked.progress(done, total, "iterations")

        samples = self.samples if self.shows == "estimates" else 0
        courses = [
            tune(
                seed,
                People(),
                self.iterations,
                self.updates,
                sample=self.sample,
                samples=samples,
                watch=watch,
            )
            for seed in range(1, asked.repetitions + 1)
        ]
        if self.shows == "loss":
            return _losses(courses, shrunk_losses(1, People(), 20_000))
        if self.shows == "estimates":
            return _estimates(courses, self.sample)
        return _arms(
            [_evaluate(seed, course, self.clients) for seed, course in enumerate(courses, start=1)], courses
        )


def rolling(values: list[float]) -> Doubles:
    """The mean of each entry and the four before it, of fewer at the beginning."""
    sums = np.cumsum([0.0, *values])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - ROLLING)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts), dtype=np.float64)


def _line(label: str, rows: list[list[float]], *, smooth: bool = False) -> Line:
    values = np.array([rolling(row) if smooth else row for row in rows])
    x = [float(i) for i in range(1, values.shape[1] + 1)]
    return Line(
        label, x, values.mean(axis=0).tolist(), values.std(axis=0).tolist() if len(rows) > 1 else None
    )


def _losses(courses: list[Course], shrunk: list[tuple[float, float, float]]) -> Measured:
    """Figure 4, and what it does not show: the share of searches whose chosen page stands first."""
    charts = tuple(
        Chart(
            title, "iteration", y, tuple(_line(arm, [row[arm] for row in rows], smooth=True) for arm in ARMS)
        )
        for title, y, rows in (
            ("Loss reported by clients", f"loss, mean of {ROLLING} iterations", [c.loss for c in courses]),
            ("Chosen suggestion in first place", "share of searches", [c.accuracy for c in courses]),
        )
    )
    last = {arm: float(np.mean([rolling(c.loss[arm])[-1] for c in courses])) for arm in ARMS}
    first = float(np.mean([rolling(c.loss["treatment"])[0] for c in courses]))
    right = {arm: float(np.mean([rolling(c.accuracy[arm])[-1] for c in courses])) for arm in ARMS}
    at = min(40, len(courses[0].loss["treatment"])) - 1
    early = {arm: float(np.mean([rolling(c.loss[arm])[at] for c in courses])) for arm in ARMS}
    (_, whole, same), (factor, smaller, still) = shrunk[0], shrunk[-1]
    verdicts = (
        Verdict(
            "The loss of the treatment declines over the study.",
            last["treatment"] < first,
            f"from {first:.1f} to {last['treatment']:.1f}",
        ),
        Verdict(
            "After 40 iterations the treatment's loss is clearly below that of the controls.",
            early["treatment"] < min(early["control"], early["control-no-decay"]),
            ", ".join(f"{arm} {loss:.1f}" for arm, loss in early.items()) + f" after {at + 1}",
        ),
        Verdict(
            "A declining loss shows that the tuning works.",
            None if abs(same - still) > 1e-9 else not smaller < whole,
            f"the loss has the unit of the score: the shipped weights times {factor:g} order every list as before "
            f"and lower it from {whole:.0f} to {smaller:.0f}; the share of chosen pages in first place, "
            f"which cannot be had so cheaply, is {right['treatment']:.3f} against {right['control']:.3f} of the control",
        ),
    )
    rows = tuple((f"{f:g}", f"{loss:.1f}", f"{accuracy:.4f}") for f, loss, accuracy in shrunk)
    sheet = Sheet("The shipped weights with all points multiplied", ("factor", "loss", "chosen first"), rows)
    numbers = {"last_loss": last, "last_accuracy": right, "shrunk": shrunk, "weights": _weights(courses)}
    return Measured(charts, (sheet,), verdicts, numbers=numbers)


def _estimates(courses: list[Course], sample: int) -> Measured:
    """Figure 7, and the same distance relative to the update itself."""
    relative = [(np.array(c.distance) / np.maximum(c.length, 1e-300)).tolist() for c in courses]
    first = courses[0]
    x = [float(i) for i in range(1, len(first.distance) + 1)]
    charts = (
        Chart(
            f"{sample:,} reports against all",
            "iteration",
            "L1 distance",
            (Line("mean ± standard deviation", x, first.distance, first.spread),),
            log_y=True,
        ),
        Chart(
            "The same, relative to the update",
            "iteration",
            "distance / length",
            (_line("relative", relative),),
        ),
        Chart(
            "Signs that the sample gets right",
            "iteration",
            "share of weights",
            (_line("signs", [c.agreement for c in courses]),),
        ),
    )
    tenth = max(1, len(x) // 10)

    def ends(rows: list[list[float]]) -> tuple[float, float]:
        return float(np.mean([r[:tenth] for r in rows])), float(np.mean([r[-tenth:] for r in rows]))

    absolute, share, signs = (
        ends([c.distance for c in courses]),
        ends(relative),
        ends([c.agreement for c in courses]),
    )
    verdicts = (
        Verdict(
            "Estimates become much more stable in the later iterations.",
            absolute[1] < absolute[0] / 2,
            f"L1 distance {absolute[0]:.1f} in the first tenth of the iterations, {absolute[1]:.1f} in the last",
        ),
        Verdict(
            "Later iterations need many fewer reports for a good estimate.",
            share[1] < share[0],
            f"the distance is {share[0]:.0%} of the update's own length at first and {share[1]:.0%} at last, and "
            f"{signs[0]:.0%} and {signs[1]:.0%} of the signs, all that Rprop looks at, are right: updates shrink faster "
            "than their error, so it is the early iterations that need few reports",
        ),
    )
    numbers = {"absolute": absolute, "relative": share, "signs": signs}
    return Measured(charts, (), verdicts, numbers=numbers)


def _evaluate(seed: int, course: Course, clients: int) -> Analysis:
    """New people, each in one arm, type with the tuned weights or with the shipped ones."""
    study = Study("firefox")
    rankers = {
        "treatment": frecency_ranker(course.weights[-1]), "control": shipped_ranker(),
        "no-decay": frecency_ranker(FRECENCY.shipped),
    }  # fmt: skip
    return analyse(study, searches_by_arm(study, observe_study(seed, study, People(), rankers, 0, clients)))


def _arms(found: list[Analysis], courses: list[Course]) -> Measured:
    """The table of figure 5 and the comparisons behind it."""

    def mean(arm: str, metric: str) -> float:
        return float(np.mean([a.arms[arm].mean_of_searches[metric] for a in found]))

    published = {"treatment": ("3.6747", "0.37435"), "control": ("4.26239", "0.35350")}
    published["control-no-decay"] = ("4.24125", "0.35771")
    table = Sheet(
        "Mean over searches",
        ("arm", "characters typed", "rank chosen", "in the paper: characters", "rank"),
        tuple(
            (arm, f"{mean(arm, 'characters'):.4f}", f"{mean(arm, 'rank'):.4f}", *published[arm])
            for arm in ARMS
        ),
    )
    one = found[0]
    comparisons = Sheet(
        "First repetition: Mann-Whitney U between clients, p corrected for six comparisons",
        ("comparison", "shift", "rank r", "corrected p", "pooled p"),
        tuple(
            (
                f"{c.metric}: {c.arm} against {c.baseline}",
                f"{c.shift:+.3f} ({c.shift_low:+.3f} to {c.shift_high:+.3f})",
                f"{c.rank_biserial:+.3f}",
                f"{c.corrected_p:.2g}",
                f"{c.pooled_p:.2g}",
            )
            for c in one.comparisons
        ),
    )
    typed = mean("treatment", "characters") - mean("control", "characters")
    rank = mean("treatment", "rank") - mean("control", "rank")
    sure = sum(a.of("characters", "treatment", "control").significant for a in found)
    decay = one.of("characters", "control", "control-no-decay")
    verdicts = (
        Verdict(
            "People of the treatment type about half a character less.",
            sure == len(found) and typed < -0.25,
            f"{typed:+.3f} characters, significant in {sure} of {len(found)} repetitions",
        ),
        Verdict(
            "They choose suggestions that are ranked slightly worse.",
            rank > 0,
            f"{rank:+.4f}: made-up people take the wanted page as soon as it is among the first that they read, so a "
            "better order lowers both figures",
        ),
        Verdict(
            "Without decay of scores, people type about as much as with it.",
            abs(decay.difference) < 0.1,
            f"{decay.difference:+.3f} characters with decay (corrected p {decay.corrected_p:.2g})",
        ),
    )
    numbers = {"analyses": [a.as_dict() for a in found], "weights": _weights(courses)}
    return Measured((), (table, comparisons), verdicts, numbers=numbers)


def _weights(courses: list[Course]) -> list[dict[str, float]]:
    return [FRECENCY.named(course.weights[-1]) for course in courses]

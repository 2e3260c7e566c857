"""Field study of Firefox on simulated people (Hartmann et al. 2019, figures 4, 5 and 7; §6.2 to §6.4).

`shows` selects figure 4 (the loss of the three arms during the tuning), figure 5 (characters typed and rank chosen
afterwards) or figure 7 (the distance of an update from 2,000 reports to that of all). The paper had real people and
137 iterations of 30 minutes with about 9,000 reports of the treatment each: 60 % of the 2,074,751 messages before its
evaluation.

Simulated people choose by other weights than the shipped ones, otherwise there is nothing to find. Clients of the
treatment compute updates and get a new version after every iteration; the controls only report the loss of the shipped
weights, with and without the daily decay of scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np

from quorank.errors import require
from quorank.files.codec import Range
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, uniforms
from quorank.reports.panels import Curve, Panel
from quorank.reports.report import ReportTable
from quorank.reproduce.studies.study import StudyFinding, StudyRequest, StudyResults
from quorank.tuning.coordinator import TuningCoordinator, TuningSettings, Updates
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.histories.generated import Suggestions, draw_choices, generate_suggestions, idle_days
from quorank.tuning.histories.scenarios import SCENARIOS
from quorank.tuning.loss import first_places, firsts, gradients, losses
from quorank.tuning.rules import Count, ImmediateGuard
from quorank.tuning.studies.address_bar import DECAY, People, decayed, observe_study
from quorank.tuning.studies.analysis import Analysis, analyse
from quorank.tuning.studies.study import ARMS, Study

MARGIN = SCENARIOS["frecency"].margin
ROLLING = 5  # iterations in the average of figure 4
FACTORS = (1.0, 0.5, 0.1)
_CONTROLS, _SCALED = 2**30, 2**31  # first search numbers of the controls, and of the scaled weights


@dataclass
class FirefoxTuning:
    """Measurements of a tuning, one entry per iteration."""

    weights: list[Doubles] = field(default_factory=list)  # of each iteration, then the final ones
    loss: dict[str, list[float]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    accuracy: dict[str, list[float]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    distance: list[float] = field(default_factory=list)  # L1 from samples' updates to that of all, mean
    spread: list[float] = field(default_factory=list)  # standard deviation over samples
    length: list[float] = field(default_factory=list)  # L1 of the update of all
    agreement: list[float] = field(default_factory=list)  # share of weights whose sign a sample gets right


def generate_searches(seed: int, first: int, count: int, people: People) -> tuple[Suggestions, Doubles]:
    """Return searches with the choices of these people, and (candidates,) days since each suggestion's last visit."""
    shown = generate_suggestions(seed, count, first=first, setting=people.history)
    truth = np.ascontiguousarray(FRECENCY.score(np.array([people.taste]), shown)[0])
    return draw_choices(seed, shown, truth, first=first), idle_days(seed, shown, first=first)


def loss_and_accuracy(scores: Doubles, items: Suggestions) -> tuple[float, float]:
    """Return the mean loss of these scores (candidates,), and the share of chosen suggestions in first place."""
    exact = np.ascontiguousarray(scores)
    loss = losses(exact[None, :], items, MARGIN)
    return float(loss.mean()), float(firsts(exact, items.offsets, items.chosen).mean())


def tune_weights(
    seed: int,
    people: People,
    iterations: int,
    updates: int,
    sample: int = 0,
    samples: int = 0,
    finished: Callable[[int], None] = lambda _: None,  # called after each iteration with their number
) -> FirefoxTuning:
    """Tune the shipped weights for `iterations` of `updates` searches each, and measure the controls.

    If `samples` is not 0, each iteration's update is also estimated `samples` times from `sample` of the searches.
    """
    settings = TuningSettings(closing=Count(updates), guard=ImmediateGuard())
    protocol = TuningCoordinator(FRECENCY, settings)
    state, tuning = protocol.start(), FirefoxTuning()
    for iteration in range(iterations):
        items, _ = generate_searches(seed, iteration * updates, updates, people)
        slopes, each = gradients(FRECENCY, state.weights, items, MARGIN)
        tuning.weights.append(state.weights)
        tuning.loss["treatment"].append(float(each.mean()))
        tuning.accuracy["treatment"].append(float(first_places(FRECENCY, state.weights[None, :], items).mean()))
        for place, (arm, decay) in enumerate((("control", DECAY), ("control-no-decay", 0.0))):
            count = max(1, updates // 3)
            items, idle = generate_searches(seed, _CONTROLS + (2 * iteration + place) * count, count, people)
            loss, accuracy = loss_and_accuracy(decayed(_shipped(items), idle, decay), items)
            tuning.loss[arm].append(loss)
            tuning.accuracy[arm].append(accuracy)
        if samples:
            _estimate(tuning, seed, iteration, slopes, sample, samples)
        state = protocol.receive(state, Updates(settings.release.apply(slopes), each))
        state, _ = protocol.advance(state, float(iteration))
        finished(iteration + 1)
    tuning.weights.append(state.weights)
    return tuning


def _shipped(items: Suggestions) -> Doubles:
    return np.asarray(FRECENCY.score(FRECENCY.shipped[None, :], items)[0], dtype=np.float64)


def _estimate(tuning: FirefoxTuning, seed: int, iteration: int, slopes: Doubles, sample: int, samples: int) -> None:
    """Measure how far the update of some reports is from that of all (§6.4); slopes are (updates, weights)."""
    whole = slopes.mean(axis=0)
    distances, right = [], []
    for draw in range(samples):
        order = uniforms(seed, Purpose.STUDY, len(slopes), round_=iteration, client=draw)
        some = slopes[np.argpartition(order, sample)[:sample]] if sample < len(slopes) else slopes
        part = some.mean(axis=0)
        distances.append(np.abs(part - whole).sum())
        right.append((np.sign(part) == np.sign(whole)).mean())
    tuning.distance.append(float(np.mean(distances)))
    tuning.spread.append(float(np.std(distances)))
    tuning.length.append(float(np.abs(whole).sum()))
    tuning.agreement.append(float(np.mean(right)))


def scaled_losses(seed: int, people: People, count: int) -> list[tuple[float, float, float]]:
    """Return (factor, loss, accuracy) of the shipped weights times each factor; the order of pages stays the same."""
    items, _ = generate_searches(seed, _SCALED, count, people)
    return [(factor, *loss_and_accuracy(factor * _shipped(items), items)) for factor in FACTORS]


@dataclass(frozen=True)
class FirefoxStudy:
    """Tuning with three arms, then an evaluation of its weights."""

    kind: ClassVar[str] = "firefox-study"

    shows: Literal["loss", "arms", "estimates"] = "loss"
    iterations: Annotated[int, Range(2)] = 137
    updates: Annotated[int, Range(10, 10**6)] = 9000  # of the treatment, an iteration
    sample: Annotated[int, Range(1)] = 2000  # reports of an estimate, figure 7
    samples: Annotated[int, Range(2)] = 50  # estimates an iteration, figure 7
    clients: Annotated[int, Range(100, 2**31 - 1)] = 20_000  # of the evaluation, in all arms

    def measure(self, request: StudyRequest) -> StudyResults:
        own = "this study generates its own people; leave the option out"
        require(request.data is None, "option.conflict", own, "--data")
        samples = self.samples if self.shows == "estimates" else 0
        total, tunings = request.repetitions * self.iterations, list[FirefoxTuning]()
        for seed in range(1, request.repetitions + 1):

            def finished(done: int, before: int = (seed - 1) * self.iterations) -> None:
                request.progress(before + done, total, "iterations")

            tunings.append(
                tune_weights(seed, People(), self.iterations, self.updates, self.sample, samples, finished=finished)
            )
        if self.shows == "loss":
            return loss_results(tunings, scaled_losses(1, People(), 20_000))
        if self.shows == "estimates":
            return estimate_results(tunings, self.sample)
        study = Study("firefox")
        found = [
            analyse(study, observe_study(seed, study, People(), tuning.weights[-1], 0, self.clients))
            for seed, tuning in enumerate(tunings, start=1)
        ]
        return arm_results(found, tunings)


def rolling(values: list[float]) -> Doubles:
    """Return the mean of each entry and the four before it, of fewer at the beginning."""
    return np.array([np.mean(values[max(0, end - ROLLING) : end]) for end in range(1, len(values) + 1)])


def _curve(label: str, rows: list[list[float]], *, smooth: bool = False) -> Curve:
    values = np.array([rolling(row) if smooth else row for row in rows])
    x = np.arange(1, values.shape[1] + 1)
    return Curve.of_means(label, x, values.mean(axis=0), values.std(axis=0) if len(rows) > 1 else None)


def loss_results(tunings: list[FirefoxTuning], scaled: list[tuple[float, float, float]]) -> StudyResults:
    """Return figure 4, and the share of searches whose chosen page stands first, which it does not show."""
    charts = tuple(
        Panel(title, "iteration", y, tuple(_curve(arm, [row[arm] for row in rows], smooth=True) for arm in ARMS))
        for title, y, rows in (
            ("Loss reported by clients", f"loss, mean of {ROLLING} iterations", [t.loss for t in tunings]),
            ("Chosen suggestion in first place", "share of searches", [t.accuracy for t in tunings]),
        )
    )
    loss = {arm: np.mean([rolling(t.loss[arm]) for t in tunings], axis=0).tolist() for arm in ARMS}
    right = {arm: float(np.mean([rolling(t.accuracy[arm])[-1] for t in tunings])) for arm in ARMS}
    at = min(40, len(loss["treatment"])) - 1
    first, last, early = loss["treatment"][0], *({arm: loss[arm][place] for arm in ARMS} for place in (-1, at))
    (_, whole, same), (factor, smaller, still) = scaled[0], scaled[-1]
    findings = (
        StudyFinding(
            "The loss of the treatment declines over the study.",
            last["treatment"] < first,
            f"from {first:.1f} to {last['treatment']:.1f}",
        ),
        StudyFinding(
            "After 40 iterations the treatment's loss is clearly below that of the controls.",
            early["treatment"] < min(early["control"], early["control-no-decay"]),
            ", ".join(f"{arm} {value:.1f}" for arm, value in early.items()) + f" after {at + 1}",
        ),
        StudyFinding(
            "A declining loss shows that the tuning works.",
            None if abs(same - still) > 1e-9 else not smaller < whole,
            f"the loss has the unit of the score: the shipped weights times {factor:g} order every list as before "
            f"and lower it from {whole:.0f} to {smaller:.0f}; the share of chosen pages in first place, "
            f"which cannot be had so cheaply, is {right['treatment']:.3f} against {right['control']:.3f} of the control",
        ),
    )
    rows = tuple((f"{f:g}", f"{value:.1f}", f"{accuracy:.4f}") for f, value, accuracy in scaled)
    sheet = ReportTable("The shipped weights with all points multiplied", ("factor", "loss", "chosen first"), rows)
    numbers = {"last_loss": last, "last_accuracy": right, "shrunk": scaled, "weights": _weights(tunings)}
    return StudyResults(charts, (sheet,), findings, numbers=numbers)


def estimate_results(tunings: list[FirefoxTuning], sample: int) -> StudyResults:
    """Return figure 7, and the same distance relative to the update itself."""
    relative = [(np.array(t.distance) / np.maximum(t.length, 1e-300)).tolist() for t in tunings]
    first = tunings[0]
    x = [float(i) for i in range(1, len(first.distance) + 1)]
    charts = (
        Panel(
            f"{sample:,} reports against all",
            "iteration",
            "L1 distance",
            (Curve.of_means("mean ± standard deviation", x, first.distance, first.spread),),
            log="y",
        ),
        Panel("The same, relative to the update", "iteration", "distance / length", (_curve("relative", relative),)),
        Panel(
            "Signs that the sample gets right",
            "iteration",
            "share of weights",
            (_curve("signs", [t.agreement for t in tunings]),),
        ),
    )
    tenth, rows = max(1, len(x) // 10), ([t.distance for t in tunings], relative, [t.agreement for t in tunings])
    absolute, share, signs = (
        (float(np.mean([r[:tenth] for r in of])), float(np.mean([r[-tenth:] for r in of]))) for of in rows
    )
    findings = (
        StudyFinding(
            "Estimates become much more stable in the later iterations.",
            absolute[1] < absolute[0] / 2,
            f"L1 distance {absolute[0]:.1f} in the first tenth of the iterations, {absolute[1]:.1f} in the last",
        ),
        StudyFinding(
            "Later iterations need many fewer reports for a good estimate.",
            share[1] < share[0],
            f"the distance is {share[0]:.0%} of the update's own length at first and {share[1]:.0%} at last, and "
            f"{signs[0]:.0%} and {signs[1]:.0%} of the signs, all that Rprop looks at, are right: updates shrink faster "
            "than their error, so it is the early iterations that need few reports",
        ),
    )
    numbers = {"absolute": absolute, "relative": share, "signs": signs}
    return StudyResults(charts, (), findings, numbers=numbers)


def arm_results(found: list[Analysis], tunings: list[FirefoxTuning]) -> StudyResults:
    """Return the table of figure 5 and the comparisons behind it."""

    def mean(arm: str, metric: str) -> float:
        return float(np.mean([a.arms[arm].mean_of_searches[metric] for a in found]))

    rows = tuple((arm, f"{mean(arm, 'characters'):.4f}", f"{mean(arm, 'rank'):.4f}") for arm in ARMS)
    table = ReportTable("Mean over searches", ("arm", "characters typed", "rank chosen"), rows)
    one = found[0]
    comparisons = ReportTable(
        "First repetition: Mann-Whitney U between clients, p corrected for six comparisons",
        ("comparison", "difference", "rank r", "corrected p", "pooled p"),
        tuple(
            (
                f"{c.metric}: {c.arm} against {c.baseline}",
                f"{c.difference:+.3f} ± {c.error:.3f}",
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
    findings = (
        StudyFinding(
            "People of the treatment type about half a character less.",
            sure == len(found) and typed < -0.25,
            f"{typed:+.3f} characters, significant in {sure} of {len(found)} repetitions",
        ),
        StudyFinding(
            "They choose suggestions that are ranked slightly worse.",
            rank > 0,
            f"{rank:+.4f}: simulated people take the wanted page as soon as it is among the first that they read, so a "
            "better order lowers both metrics",
        ),
        StudyFinding(
            "Without decay of scores, people type about as much as with it.",
            abs(decay.difference) < 0.1,
            f"{decay.difference:+.3f} characters with decay (corrected p {decay.corrected_p:.2g})",
        ),
    )
    numbers = {"analyses": [asdict(a) for a in found], "weights": _weights(tunings)}
    return StudyResults((), (table, comparisons), findings, numbers=numbers)


def _weights(tunings: list[FirefoxTuning]) -> list[dict[str, float]]:
    return [FRECENCY.named(tuning.weights[-1]) for tuning in tunings]

"""Scenarios: a heuristic with a generator of what its people see, or with the searches of recorded visits.

Simulated people take the item with the highest true score after noise (Hartmann et al. 2019, §6.1). The true weights
are the shipped ones as in the paper, or others: where they are the shipped ones there is nothing to find, and a
simulation can only show that nothing breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from quorank.errors import BadInput, require, suggest
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, uniforms
from quorank.tuning.heuristics.frecency import DECAY_FRECENCY, FIREFOX, FRECENCY, AgedSuggestions, with_ages
from quorank.tuning.heuristics.heuristic import Heuristic, load_object
from quorank.tuning.histories.generated import SIGMA, draw_choices, generate_suggestions
from quorank.tuning.histories.visits import History, find_searches
from quorank.tuning.searches import check_scores, count_searches, join_searches, pick_searches

HELD_OUT = 2**40  # number of the first held-out search; no client has it
LEAST = 20  # minimum number of recorded searches for a simulation


@dataclass(frozen=True, eq=False)
class Scenario:
    """Heuristic with a generator of its items, and a suitable margin of the published loss.

    Args:
        heuristic: The heuristic.
        show: show(seed, searches, first) → items of these searches, without choices.
        margin: Δ of the published loss, in points.
        recorded: recorded(history) → items of its searches, with the choices; None if it cannot score such pages.
    """

    follows_weights: ClassVar[bool] = True  # people choose by known weights

    heuristic: Heuristic
    show: Callable[[int, int, int], Any]
    margin: float
    recorded: Callable[[History], Any] | None = None

    def searches(self, seed: int, count: int, first: int, truth: Doubles, sigma: float = SIGMA) -> Any:
        """Return searches `first` to `first + count` of people who follow the weights `truth`."""
        items = self.show(seed, count, first)
        scores = self.heuristic.score(truth[None, :], items)
        check_scores(scores, 1, items)
        return draw_choices(seed, items, scores[0], sigma=sigma, first=first)


def _show_aged(seed: int, count: int, first: int) -> AgedSuggestions:
    return with_ages(seed, generate_suggestions(seed, count, first), first=first)


def _recorded_aged(history: History) -> AgedSuggestions:
    return find_searches(history).aged(history)


SCENARIOS = {
    "frecency": Scenario(FRECENCY, generate_suggestions, 30.0, lambda found: find_searches(found).suggestions(found)),
    "firefox": Scenario(FIREFOX, _show_aged, 30.0, _recorded_aged),
    "decay": Scenario(DECAY_FRECENCY, _show_aged, 30.0, _recorded_aged),
}


@dataclass(frozen=True, eq=False)
class RecordedScenario(Scenario):
    """Searches of recorded visits instead of generated ones; the choices are pages visited by typing.

    Each simulated search is drawn from them with replacement: every other one for the clients, the rest held out. The
    choices follow no weights.
    """

    items: Any = None

    follows_weights: ClassVar[bool] = False

    def searches(self, seed: int, count: int, first: int, truth: Doubles, sigma: float = SIGMA) -> Any:
        held_out, all_ = first >= HELD_OUT, count_searches(self.items)
        u = uniforms(seed, Purpose.QUERY, count, interaction=first & 0xFFFFFFFF, client=first >> 32)
        return pick_searches(self.items, 2 * (u * (all_ // 2)).astype(np.int64) + held_out)


def recorded_items(scenario: Scenario, histories: Sequence[History]) -> Any:
    """Return the searches in these histories as items of the scenario's heuristic."""
    name = scenario.heuristic.name
    known = ", ".join(name for name, one in SCENARIOS.items() if one.recorded)
    unable = f"the heuristic {name} cannot score pages of a history; these can: {known}"
    if scenario.recorded is None:
        raise BadInput("heuristic.no-visits", unable)
    return join_searches([scenario.recorded(history) for history in histories])


def recorded_scenario(scenario: Scenario, histories: Sequence[History]) -> RecordedScenario:
    """Return the scenario with the searches in these histories."""
    items = recorded_items(scenario, histories)
    found = count_searches(items)
    few = f"there are {found} searches in these visits (typed again, with others that match); expected at least {LEAST}"
    require(found >= LEAST, "visits.too-few-searches", few)
    return RecordedScenario(scenario.heuristic, scenario.show, scenario.margin, items=items)


def find_scenario(name: str) -> Scenario:
    """Return the scenario of a heuristic by its name, or one of the user's own by `module:object`."""
    if ":" in name:
        found = load_object(name)
        if not isinstance(found, Scenario):
            wrong = f"a simulation needs a Scenario (a heuristic with a generator of items), got {type(found).__name__}"
            raise BadInput("heuristic.no-scenario", wrong, name)
        return found
    if name not in SCENARIOS:
        known = f"{suggest(name, SCENARIOS)}; known: {', '.join(SCENARIOS)}"
        raise BadInput("heuristic.unknown", f"unknown heuristic {name!r}{known}")
    return SCENARIOS[name]


def find_heuristic(name: str) -> Heuristic:
    """Return a heuristic by its name, or one of the user's own by `module:object`; a scenario stands for its heuristic."""
    found = load_object(name) if ":" in name else find_scenario(name)
    found = found.heuristic if isinstance(found, Scenario) else found
    if not isinstance(found, Heuristic):
        raise BadInput("heuristic.wrong-type", f"expected a Heuristic or a Scenario, got {type(found).__name__}", name)
    return found

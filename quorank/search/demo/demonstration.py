"""Demonstration of `quorank search`: persons search alone, then join a federation, and their lists are measured.

Each person has a machine (`machine`) and searches through the real pages. On each day a person searches each of their
own queries once. After some days alone all join a real service and continue for some days, with a round whenever
everybody has chosen often enough. The same persons are also simulated without joining, with the same queries and the
same draws of clicks, which separates the effect of joining from that of searching more. The metric is nDCG@10 over all
documents of a person: of the lists shown on the first day, the last day before joining and the last day, and of
held-out queries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quorank.errors import require_range
from quorank.search.demo.federation_of_searches import DemoRounds, SearchFederation
from quorank.search.demo.machine import MadeUpMachine, make_machine
from quorank.search.demo.made_up_persons import MadeUpPerson, generated_persons, persons_of_collection
from quorank.search.demo.simulated_person import PageCalls, SimulatedPerson, search_day
from quorank.search.pages.server import SearchServer
from quorank.search.personal_search import PersonalSearch
from quorank.text.readers import read_collection

MOMENTS = ("first", "before", "alone", "together")
"""Moments of measurement: first day, before joining, and last day without and with joining."""
QUERIES = "queries.txt"
"""File with a person's queries, to try on the page."""
ROUND_COST = 4
"""Duration of a search with its part of a round, in searches without."""
Tell = Callable[[int, int], object]


@dataclass(frozen=True)
class DemoPlan:
    """Settings of a demonstration."""

    persons: int = 3
    documents: int = 400  # of each person
    queries: int = 20  # that each person searches, and as many held out
    days_alone: int = 2
    days_joined: int = 6
    seed: int = 1
    collection: str = ""  # text collection; empty: generated documents

    def __post_init__(self) -> None:
        require_range("--days-alone", self.days_alone, least=1, most=100)
        require_range("--days", self.days_joined, least=1, most=1000)

    def make_persons(self) -> list[MadeUpPerson]:
        """Return the persons."""
        if self.collection:
            found = read_collection(self.collection)
            return persons_of_collection(found, self.persons, self.documents, self.queries, self.seed)
        return generated_persons(self.persons, self.documents, self.queries, self.seed)


@dataclass(eq=False)
class OpenSearch:
    """Search of a person with its pages, and the simulated person."""

    search: PersonalSearch
    server: SearchServer
    simulated: SimulatedPerson


@dataclass(eq=False)
class SearchMetrics:
    """nDCG@10 by moment, for each person and query."""

    shown: dict[str, list[list[float]]] = field(default_factory=dict)
    held_out: dict[str, list[list[float]]] = field(default_factory=dict)

    def table(self, person: int) -> dict[str, dict[str, float]]:
        """Return the means of a person."""
        return {
            name: {moment: float(np.mean(found[moment][person])) for moment in MOMENTS}
            for name, found in (("shown", self.shown), ("held_out", self.held_out))
        }

    def together(self) -> dict[str, Any]:
        """Return the means over all queries, and their changes with standard errors over queries."""
        figures: dict[str, Any] = {}
        for name, found in (("shown", self.shown), ("held_out", self.held_out)):
            rows = {moment: np.concatenate([np.array(one) for one in found[moment]]) for moment in MOMENTS}
            pairs = {"learned": ("first", "together"), "joining": ("alone", "together")}
            changes = {word: _difference(rows[b] - rows[a]) for word, (a, b) in pairs.items()}
            figures[name] = {moment: float(rows[moment].mean()) for moment in MOMENTS} | changes
        return figures


def _difference(values: Any) -> dict[str, float]:
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return {"mean": float(values.mean()), "error": error}


@dataclass(eq=False)
class FinishedDemo:
    """Finished demonstration with all servers still open."""

    plan: DemoPlan
    machines: list[MadeUpMachine]
    open: list[OpenSearch]
    federation: SearchFederation
    measures: SearchMetrics
    rounds: int
    indexed: tuple[int, float]  # documents and seconds
    seconds: float

    def table(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        status = self.federation.status()
        persons = [self._person(number, one) for number, one in enumerate(self.open)]
        times = np.concatenate([one.simulated.milliseconds for one in self.open])
        return {
            "persons": persons,
            "all": self.measures.together(),
            "searches": len(times),
            "milliseconds": {"median": float(np.median(times)), "p95": float(np.quantile(times, 0.95))},
            "indexed": {"documents": self.indexed[0], "seconds": self.indexed[1]},
            "service": {
                "folder": str(self.federation.home.path),
                "rounds": status.rounds,
                "members": status.counts.enrolled,
                "page": self.federation.page,
            },
            "seconds": self.seconds,
        }

    def _person(self, number: int, one: OpenSearch) -> dict[str, Any]:
        found = one.simulated.calls.get("/api/status")
        federation = found["federation"]
        trials = one.search.history.trials()
        return {
            "name": one.simulated.person.name,
            "folder": str(self.machines[number].folder),
            "page": one.server.url,
            "documents": found["documents"],
            "choices": found["choices"],
            "releases": federation["releases"],
            "bytes_sent": federation["bytes_sent"],
            "rankers": {"tried": len(trials), "taken": sum(one.trial.taken for one in trials)},
            "try": one.simulated.person.held_out[0].text,
            **self.measures.table(number),
        }


@contextmanager
def run_demo(
    plan: DemoPlan, folder: Path, *, say: Callable[[str], object] = lambda _: None, tell: Tell = lambda done, of: None
) -> Iterator[FinishedDemo]:
    """Run a demonstration in a folder; its pages and its service stay open inside the block.

    Args:
        plan: Settings.
        folder: Empty folder for all data.
        say: Called with a sentence at each phase.
        tell: Called with the number of finished searches and their total.
    """
    began, now = time.monotonic(), time.time()
    with ExitStack() as stack:
        persons = plan.make_persons()
        grades = 1 + max(grade for one in persons for graded in one.grades.values() for grade in graded.values())
        machines = [
            make_machine(person, number, folder / "persons" / person.name, now, plan.seed)
            for number, person in enumerate(persons)
        ]
        for machine in machines:
            texts = "".join(f"{query.text}\n" for query in machine.person.queries)
            (machine.folder / QUERIES).write_text(texts, encoding="utf-8")
        setup = _Setup(plan, machines, max(grades, 2), _DemoProgress(plan, persons, tell))
        counts = ", ".join(f"{person.name} {len(person.documents):,}" for person in persons)
        say(f"{plan.persons} persons; notes, mail and pages of each: {counts}")
        measures = SearchMetrics()
        say("they search alone, and so does a copy of each, which never joins")
        with ExitStack() as alone:
            copies = setup.open_searches(alone, folder / "alone")
            for day in range(plan.days_alone + plan.days_joined):
                last = search_day(copies.people, day, setup.counted.step)
            measures.shown["alone"], measures.held_out["alone"] = last, setup.held_out(copies.people)
        service = stack.enter_context(ExitStack())  # closes after the pages
        there = setup.open_searches(stack, folder / "persons")
        measures.held_out["first"] = setup.held_out(there.people)
        for day in range(plan.days_alone):
            last = search_day(there.people, day, setup.counted.step)
            measures.shown.setdefault("first", last)
        measures.shown["before"], measures.held_out["before"] = last, setup.held_out(there.people)
        say("a service starts; they join it and continue")
        federation = SearchFederation.start(folder / "service", plan.persons)
        service.callback(federation.close)
        for person in there.people:
            invitation = federation.invite(
                person.person.name, folder / "persons" / person.person.name / "invitation.json"
            )
            person.calls.post("/api/join", invitation=str(invitation))
            person.calls.post("/api/consent", given=True)
        rounds = DemoRounds(there.people)

        def step() -> None:
            rounds.advance()
            setup.counted.step_with_round()

        for day in range(plan.days_alone, plan.days_alone + plan.days_joined):
            last = search_day(there.people, day, step)
        measures.shown["together"], measures.held_out["together"] = last, setup.held_out(there.people)
        seconds = time.monotonic() - began
        yield FinishedDemo(plan, machines, there.open, federation, measures, rounds.round, there.indexed, seconds)


class _DemoProgress:
    """Progress in searches; one with a round counts ROUND_COST."""

    def __init__(self, plan: DemoPlan, persons: Sequence[MadeUpPerson], tell: Tell) -> None:
        self._persons, self._tell, self.done = len(persons), tell, 0
        turns = max(len(person.searched) for person in persons) * len(persons)
        days = plan.days_alone + (plan.days_alone + plan.days_joined) + ROUND_COST * plan.days_joined
        self.total = days * turns + len(MOMENTS) * sum(len(person.held_out) for person in persons)

    def step(self, searches: int = 0) -> None:
        self.done += searches or self._persons
        self._tell(self.done, self.total)

    def step_with_round(self) -> None:
        self.step(ROUND_COST * self._persons)


@dataclass(eq=False)
class _OpenSearches:
    """Open searches of all persons."""

    open: list[OpenSearch]
    indexed: tuple[int, float]

    @property
    def people(self) -> list[SimulatedPerson]:
        return [one.simulated for one in self.open]


@dataclass(eq=False)
class _Setup:
    """Common data of the persons and their copies."""

    plan: DemoPlan
    machines: list[MadeUpMachine]
    grades: int
    counted: _DemoProgress

    def open_searches(self, stack: ExitStack, folder: Path) -> _OpenSearches:
        """Index each machine in a separate search folder, and serve its pages."""
        found, documents, began = [], 0, time.monotonic()
        searches = []
        for machine in self.machines:
            search = stack.enter_context(PersonalSearch.open(folder / machine.person.name / "search"))
            labels = _indexed(search, machine)
            documents += search.index.count()
            searches.append((machine, search, labels))
        seconds = time.monotonic() - began
        for number, (machine, search, labels) in enumerate(searches):
            server = stack.enter_context(SearchServer(search))
            calls = PageCalls(server)
            stack.callback(calls.close)
            simulated = SimulatedPerson(machine.person, number, calls, labels, self.grades, self.plan.seed)
            found.append(OpenSearch(search, server, simulated))
        return _OpenSearches(found, (documents, seconds))

    def held_out(self, people: Sequence[SimulatedPerson]) -> list[list[float]]:
        """Measure the held-out queries of all."""
        found = [person.held_out() for person in people]
        self.counted.step(sum(map(len, found)))
        return found


def _indexed(search: PersonalSearch, machine: MadeUpMachine) -> dict[int, str]:
    """Index a machine's sources; return the id in the collection of each indexed document."""
    labels = {}
    for source in machine.sources():
        number = search.add(source)
        search.update(number)
        for (kind, key), id_ in machine.keys.items():
            if kind == source.kind:
                found = search.index.label(number, key)
                assert found is not None, key
                labels[found[0]] = id_
    return labels

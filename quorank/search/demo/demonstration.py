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
from dataclasses import dataclass
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

    machine: MadeUpMachine
    search: PersonalSearch
    server: SearchServer
    simulated: SimulatedPerson


@contextmanager
def run_demo(
    plan: DemoPlan, folder: Path, *, say: Callable[[str], object] = lambda _: None, tell: Tell = lambda done, of: None
) -> Iterator[dict[str, Any]]:
    """Run a demonstration in a folder and yield its result; pages and service stay open inside the block.

    Args:
        plan: Settings.
        folder: Empty folder for all data.
        say: Called with a sentence at each phase.
        tell: Called with the number of finished searches and their total.
    """
    began, persons = time.monotonic(), plan.make_persons()
    turns = max(len(person.searched) for person in persons) * len(persons)
    days = plan.days_alone + (plan.days_alone + plan.days_joined) + ROUND_COST * plan.days_joined
    done, total = 0, days * turns + len(MOMENTS) * sum(len(person.held_out) for person in persons)
    shown: dict[str, list[list[float]]] = {}
    held_out: dict[str, list[list[float]]] = {}

    def step(searches: int = len(persons)) -> None:
        nonlocal done
        done += searches
        tell(done, total)

    def measure(moment: str, people: Sequence[SimulatedPerson]) -> None:
        held_out[moment] = [person.held_out() for person in people]
        step(sum(map(len, held_out[moment])))

    with ExitStack() as stack:
        machines = _make_machines(plan, persons, folder / "persons")
        counts = ", ".join(f"{person.name} {len(person.documents):,}" for person in persons)
        say(f"{plan.persons} persons; notes, mail and pages of each: {counts}")
        say("they search alone, and so does a copy of each, which never joins")
        with ExitStack() as alone:
            copies = [one.simulated for one in _open_searches(plan, machines, alone, folder / "alone")[0]]
            for day in range(plan.days_alone + plan.days_joined):
                shown["alone"] = search_day(copies, day, step)
            measure("alone", copies)
        service = stack.enter_context(ExitStack())  # closes after the pages
        searches, indexed = _open_searches(plan, machines, stack, folder / "persons")
        people = [one.simulated for one in searches]
        measure("first", people)
        for day in range(plan.days_alone):
            shown["before"] = search_day(people, day, step)
            shown.setdefault("first", shown["before"])
        measure("before", people)
        say("a service starts; they join it and continue")
        federation = SearchFederation.start(folder / "service", plan.persons)
        service.callback(federation.close)
        for person in people:
            name = person.person.name
            invitation = federation.invite(name, folder / "persons" / name / "invitation.json")
            person.calls.post("/api/join", invitation=str(invitation))
            person.calls.post("/api/consent", given=True)
        rounds = DemoRounds(people)

        def step_with_round() -> None:
            rounds.advance()
            step(ROUND_COST * len(persons))

        for day in range(plan.days_alone, plan.days_alone + plan.days_joined):
            shown["together"] = search_day(people, day, step_with_round)
        measure("together", people)
        status, times = federation.status(), np.concatenate([person.milliseconds for person in people])
        metrics = {"shown": shown, "held_out": held_out}
        yield {
            "persons": [_person_table(number, one, metrics) for number, one in enumerate(searches)],
            "all": {name: _mean_table(found) for name, found in metrics.items()},
            "searches": len(times),
            "milliseconds": {"median": float(np.median(times)), "p95": float(np.quantile(times, 0.95))},
            "indexed": indexed,
            "service": {
                "folder": str(federation.home.path),
                "rounds": status.rounds,
                "members": status.counts.enrolled,
                "page": federation.page,
            },
            "seconds": time.monotonic() - began,
        }


def _make_machines(plan: DemoPlan, persons: Sequence[MadeUpPerson], folder: Path) -> list[MadeUpMachine]:
    """Write the documents and the queries of all persons."""
    now, machines = time.time(), []
    for number, person in enumerate(persons):
        machines.append(make_machine(person, number, folder / person.name, now, plan.seed))
        texts = "".join(f"{query.text}\n" for query in person.queries)
        (folder / person.name / QUERIES).write_text(texts, encoding="utf-8")
    return machines


def _open_searches(
    plan: DemoPlan, machines: Sequence[MadeUpMachine], stack: ExitStack, folder: Path
) -> tuple[list[OpenSearch], dict[str, float]]:
    """Index each machine in a separate search folder and serve its pages; return documents and seconds of indexing."""
    documents, began, found = 0, time.monotonic(), []
    highest = max(grade for one in machines for graded in one.person.grades.values() for grade in graded.values())
    indexed = []
    for machine in machines:
        search = stack.enter_context(PersonalSearch.open(folder / machine.person.name / "search"))
        indexed.append((machine, search, _index(search, machine)))
        documents += search.index.count()
    seconds = time.monotonic() - began
    for number, (machine, search, labels) in enumerate(indexed):
        server = stack.enter_context(SearchServer(search))
        calls = PageCalls(server)
        stack.callback(calls.close)
        simulated = SimulatedPerson(machine.person, number, calls, labels, max(1 + highest, 2), plan.seed)
        found.append(OpenSearch(machine, search, server, simulated))
    return found, {"documents": documents, "seconds": seconds}


def _index(search: PersonalSearch, machine: MadeUpMachine) -> dict[int, str]:
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


def _person_table(number: int, one: OpenSearch, metrics: dict[str, dict[str, list[list[float]]]]) -> dict[str, Any]:
    """Return the result of a person."""
    found = one.simulated.calls.get("/api/status")
    federation, trials = found["federation"], one.search.history.trials()
    return {
        "name": one.simulated.person.name,
        "folder": str(one.machine.folder),
        "page": one.server.url,
        "documents": found["documents"],
        "choices": found["choices"],
        "releases": federation["releases"],
        "bytes_sent": federation["bytes_sent"],
        "rankers": {"tried": len(trials), "taken": sum(one.trial.taken for one in trials)},
        "try": one.simulated.person.held_out[0].text,
        **{
            name: {moment: float(np.mean(values[moment][number])) for moment in MOMENTS}
            for name, values in metrics.items()
        },
    }


def _mean_table(found: dict[str, list[list[float]]]) -> dict[str, Any]:
    """Return the means over all queries, and their changes with standard errors over queries."""
    rows = {moment: np.concatenate([np.array(one) for one in found[moment]]) for moment in MOMENTS}
    changes = {"learned": rows["together"] - rows["first"], "joining": rows["together"] - rows["alone"]}
    return {moment: float(rows[moment].mean()) for moment in MOMENTS} | {
        name: {
            "mean": float(values.mean()),
            "error": float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan"),
        }
        for name, values in changes.items()
    }

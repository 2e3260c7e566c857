"""Demonstration of `quorank search`: persons search alone, then join a federation, and their lists are measured.

Each person has a folder of notes (`made_up_persons`) and searches through the real pages, clicking as a cascade user. On
each day a person searches each of their own queries once. After some days alone all join a real service and continue
for some days, with a round whenever everybody has chosen often enough. The same persons are also simulated without
joining, with the same queries and the same draws of clicks, which separates the effect of joining from that of
searching more. The metric is nDCG@10, over all notes of a person, of the lists shown on the first and on the last day.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from urllib3 import BaseHTTPResponse, PoolManager

from quorank.errors import BadInput, require, require_range
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import find_experiment_file, set_value
from quorank.files.documents import parse_json
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, uniforms
from quorank.kernels.process import terminate_all
from quorank.metrics.lists import ndcg
from quorank.search.demo.made_up_persons import NAMES, MadeUpPerson, generated_persons
from quorank.search.pages.server import SearchServer
from quorank.search.personal_search import PAGE, PersonalSearch
from quorank.search.ranking.search_features import SEARCH_FEATURES
from quorank.search.sources import FilesSource
from quorank.search.taking_part import POLICY
from quorank.service.dashboard.loopback_server import loopback_socket
from quorank.service.enrolment import invite
from quorank.service.home import Home, Settings
from quorank.service.overview import Overview
from quorank.service.supervisor import start_service
from quorank.users import Cascade

GRADES = 3
CHANGES = {
    "federation.rounds": 10_000,  # they continue while the pages are open
    "federation.participation": "full",
    "federation.server": {"kind": "add", "step": 1.0},
    "privacy": {"kind": "none"},
}
"""Changes to the shipped experiment: noise cannot hide a handful of persons, so their updates have none."""
DEADLINE, PAUSE = 30.0, 2.0  # deadline of a round and polling interval, seconds
LOOK_SECONDS, ROUND_SECONDS = 0.05, 60.0


@dataclass(frozen=True)
class DemoPlan:
    """Settings of a demonstration."""

    persons: int = 3
    documents: int = 400  # of each person
    queries: int = 20  # of each person
    days_alone: int = 2
    days_joined: int = 6
    seed: int = 1

    def __post_init__(self) -> None:
        require_range("--persons", self.persons, least=2, most=len(NAMES))
        require_range("--documents", self.documents, least=20, most=20_000)
        require_range("--queries", self.queries, least=1, most=1000)
        require_range("--days-alone", self.days_alone, least=1, most=100)
        require_range("--days", self.days_joined, least=1, most=1000)


@dataclass(eq=False)
class SimulatedPerson:
    """Person with an open search who uses its pages' JSON interface."""

    person: MadeUpPerson
    server: SearchServer = field(repr=False)
    seed: int
    milliseconds: list[float] = field(default_factory=list, repr=False)  # of searches, as measured by the page
    pool: PoolManager = field(default_factory=PoolManager, repr=False)

    def request(self, method: str, target: str, **fields: Any) -> dict[str, Any]:
        """Return the JSON object of a request; `fields` are those of a POST request."""
        headers, body = {"Authorization": f"Bearer {self.server.token}"}, {"json": fields} if method == "POST" else {}
        answer: BaseHTTPResponse = self.pool.request(method, self.server.address + target, headers=headers, **body)
        found: dict[str, Any] = parse_json(answer.data, where=target)
        if answer.status != 200:
            code, sentence = found["code"], found["sentence"]
            raise BadInput(code, sentence, target)
        return found

    def find_and_click(self, number: int, day: int) -> float:
        """Search one of the queries and click from the top until satisfied; return the nDCG@10 of the list."""
        page = self.request("GET", f"api/find?q={quote(self.person.queries[number])}&limit={PAGE}")
        self.milliseconds.append(page["milliseconds"])
        graded, tables = self.person.grades[number], Cascade(preset="navigational").tables(GRADES, PAGE)
        grades = [graded.get(Path(result["path"]).name, 0) for result in page["results"]]
        address = {"round_": day, "client": self.person.number, "interaction": number}
        draws = uniforms(self.seed, Purpose.CLICK, 2 * PAGE, **address)
        for rank, grade in enumerate(grades):
            if draws[2 * rank] < tables.click[grade]:
                self.request("POST", "api/choose", token=page["token"], document=page["results"][rank]["document"])
                if draws[2 * rank + 1] < tables.stop[grade]:
                    break
        return ndcg(grades or [0], list(graded.values()), PAGE)


def search_day(persons: Sequence[SimulatedPerson], day: int, then: Callable[[], object]) -> list[Doubles]:
    """Run one day of all persons, in turns; return (queries,) nDCG@10 for each person."""
    orders: list[list[int]] = []
    for one in persons:
        draws = uniforms(one.seed, Purpose.QUERY, len(one.person.queries), round_=day, client=one.person.number)
        orders.append(np.argsort(draws, kind="stable").tolist())
    found = [np.zeros(len(order)) for order in orders]
    for place in range(max(map(len, orders))):
        for person, order, qualities in zip(persons, orders, found, strict=True):
            if place < len(order):
                qualities[order[place]] = person.find_and_click(order[place], day)
        then()
    return found


@contextmanager
def run_demo(
    plan: DemoPlan, folder: Path, *, say: Callable[[str], object], tell: Callable[[int, int], object]
) -> Iterator[dict[str, Any]]:
    """Run a demonstration in a folder and yield its result; pages and service stay open inside the block.

    Args:
        plan: Settings.
        folder: Empty folder for all data.
        say: Called with a sentence at each phase.
        tell: Called with the number of finished turns, in which each person searches once, and their total.
    """
    persons = generated_persons(plan.persons, plan.documents, plan.queries, plan.seed)
    now, done = time.time(), 0
    total = 2 * (plan.days_alone + plan.days_joined) * max(len(person.queries) for person in persons)
    for person in persons:
        person.write_notes(folder / "notes" / person.name, now)

    def step() -> None:
        nonlocal done
        done += 1
        tell(done, total)

    def open_searches(below: Path, stack: ExitStack) -> list[SimulatedPerson]:
        people = []
        for person in persons:
            search = stack.enter_context(PersonalSearch.open(below / person.name))
            search.update(search.add(FilesSource(str(folder / "notes" / person.name))))
            people.append(SimulatedPerson(person, stack.enter_context(SearchServer.serve(search)), plan.seed))
        return people

    counts = ", ".join(f"{person.name} {len(person.notes):,}" for person in persons)
    say(f"{plan.persons} persons with notes: {counts}")
    say("they search alone, and so does a copy of each, which never joins")
    with ExitStack() as alone:
        copies = open_searches(folder / "alone", alone)
        days = [search_day(copies, day, step) for day in range(plan.days_alone + plan.days_joined)]
    with ExitStack() as stack:
        service = stack.enter_context(ExitStack())  # closes after the pages
        people = open_searches(folder / "persons", stack)
        for day in range(plan.days_alone):
            search_day(people, day, step)
        say("a service starts; they join it and continue")
        home = service.enter_context(_served(folder / "service", plan.persons))
        for one in people:
            invitation = folder / f"{one.person.name}.json"
            with closing(home.store()) as store:
                invite(home, store, one.person.name, invitation)
            limits = f"cohort = {plan.persons}\nunstated = true\nreleases = 1000000\n"  # few persons, and made up
            (folder / "persons" / one.person.name / POLICY).write_text(limits)
            one.request("POST", "api/join", invitation=str(invitation))
            one.request("POST", "api/consent", given=True)
        last = 0

        def step_with_round() -> None:
            nonlocal last
            last = _play_round(people, last)
            step()

        for day in range(plan.days_alone, plan.days_alone + plan.days_joined):
            together = search_day(people, day, step_with_round)
        lists = {"first": days[0], "alone": days[-1], "together": together}
        means = {moment: [float(own.mean()) for own in found] for moment, found in lists.items()}
        devices = [one.request("GET", "api/status")["federation"] for one in people]
        times = np.concatenate([one.milliseconds for one in people])
        yield {
            "persons": [
                {
                    "name": one.person.name,
                    "page": one.server.url,
                    "try": one.person.queries[0],
                    **{moment: means[moment][row] for moment in means},
                    **{name: devices[row][name] for name in ("releases", "bytes_sent")},
                }
                for row, one in enumerate(people)
            ],
            "learned": _change(lists["first"], lists["together"]),
            "joining": _change(lists["alone"], lists["together"]),
            "milliseconds": {"median": float(np.median(times)), "p95": float(np.quantile(times, 0.95))},
            "service": {"rounds": Overview(home).read().rounds, "page": f"{home.settings.url}/?token={home.token}"},
        }


def _change(before: Sequence[Doubles], after: Sequence[Doubles]) -> dict[str, float]:
    """Return the mean change over all queries, and its standard error."""
    changes = np.concatenate(after) - np.concatenate(before)
    return {"mean": float(changes.mean()), "error": float(changes.std(ddof=1) / np.sqrt(len(changes)))}


@contextmanager
def _served(folder: Path, persons: int) -> Iterator[Home]:
    """Run a service with the experiment file `search` in a new folder, inside the block."""
    chosen = find_experiment_file("search")
    for key, value in {"federation.clients": persons, **CHANGES}.items():
        chosen = set_value(chosen, key, value, "quorank search demo")
    experiment = Experiment.read(chosen)
    with loopback_socket(0) as free:
        port = int(free.getsockname()[1])
    settings = Settings(
        "search-demo", len(SEARCH_FEATURES), f"127.0.0.1:{port}", port=port, workers=1, least=1.0 / persons,
        deadline=DEADLINE, pause=PAUSE,
    )  # fmt: skip
    home = Home.create(folder, experiment, settings)
    process = start_service(home, stays=False)
    try:
        yield home
    finally:
        terminate_all([process])


def _play_round(persons: Sequence[SimulatedPerson], last: int) -> int:
    """Play the next round once everybody has enough choices; return the round whose ranker all have."""
    for person in persons:
        found = person.request("GET", "api/status")["federation"]
        if found["last_round"] <= last and found["waiting"] < found["needed"]:
            return last
    end = time.monotonic() + ROUND_SECONDS
    while True:
        for person in persons:
            person.request("POST", "api/sync")
        rounds = [person.request("GET", "api/status")["federation"]["ranker_round"] or 0 for person in persons]
        if min(rounds) > last:
            return min(rounds)
        require(time.monotonic() < end, "demo.round-late", f"round {last + 1} has not ended within {ROUND_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)

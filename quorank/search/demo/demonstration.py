"""Demonstration of `quorank search`: persons search alone, then join a federation, and their lists are measured.

Each person has the files of a machine (`made_up_persons`) and searches through the real pages, clicking as a cascade
user. On each day a person searches each of their own queries once. After some days alone all join a real service and
continue for some days, with a round whenever everybody has chosen often enough. The same persons are also simulated
without joining, with the same queries and the same draws of clicks, which separates the effect of joining from that of
searching more. The metric is nDCG@10 over all documents of a person: of the lists shown on the first day, the last day
before joining and the last day, and of held-out queries.
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
from quorank.experiments.deployment import check_experiment
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file, set_value, shipped_file
from quorank.files.documents import parse_json
from quorank.kernels.draws import Purpose, uniforms
from quorank.kernels.process import terminate_all
from quorank.metrics.lists import ndcg
from quorank.search.demo.made_up_persons import Keys, MadeUpPerson, generated_persons, sources_of, write_machine
from quorank.search.pages.server import SearchServer
from quorank.search.personal_search import PAGE, PersonalSearch
from quorank.search.ranking.search_features import SEARCH_FEATURES
from quorank.service.dashboard.loopback_server import loopback_socket
from quorank.service.enrolment import invite
from quorank.service.home import Home, Settings
from quorank.service.overview import Overview
from quorank.service.supervisor import start_service
from quorank.text.collection import Query
from quorank.users import Cascade

MOMENTS = ("first", "before", "alone", "together")
"""Moments of measurement: first day, before joining, and last day without and with joining."""
ROUND_COST = 4
"""Duration of a search with its part of a round, in searches without."""
GRADES = 3
CHANGES = {
    "federation.rounds": 10_000,  # they continue while the pages are open
    "federation.participation": "full",
    "federation.server": {"kind": "add", "step": 1.0},
    "privacy": {"kind": "none"},
}
"""Changes to the shipped experiment: noise cannot hide a handful of persons, so their updates have none."""
DEADLINE, PAUSE = 30.0, 2.0
"""Deadline of a round and polling interval, seconds."""
LOOK_SECONDS, ROUND_SECONDS = 0.05, 60.0
Lists = list[list[float]]
"""nDCG@10 of each person's queries."""


@dataclass(frozen=True)
class DemoPlan:
    """Settings of a demonstration."""

    persons: int = 3
    documents: int = 400  # of each person
    queries: int = 20  # that each person searches, and as many held out
    days_alone: int = 2
    days_joined: int = 6
    seed: int = 1

    def __post_init__(self) -> None:
        require_range("--days-alone", self.days_alone, least=1, most=100)
        require_range("--days", self.days_joined, least=1, most=1000)

    def make_persons(self) -> list[MadeUpPerson]:
        """Return the persons."""
        return generated_persons(self.persons, self.documents, self.queries, self.seed)


@dataclass(eq=False)
class SimulatedPerson:
    """Person with an open search who uses its pages' JSON interface."""

    person: MadeUpPerson
    search: PersonalSearch = field(repr=False)
    server: SearchServer = field(repr=False)
    labels: dict[int, str] = field(repr=False)  # id in the index → id of the document
    seed: int
    milliseconds: list[float] = field(default_factory=list, repr=False)  # of searches, as measured by the page
    pool: PoolManager = field(default_factory=PoolManager, repr=False)

    @classmethod
    def open(cls, person: MadeUpPerson, machine: Path, keys: Keys, folder: Path, stack: ExitStack, seed: int) -> Any:
        """Index a machine in a search folder and serve its pages, until the stack is closed."""
        search = stack.enter_context(PersonalSearch.open(folder))
        labels = dict[int, str]()
        for source in sources_of(machine):
            number = search.add(source)
            search.update(number)
            of_source = {key: id_ for (kind, key), id_ in keys.items() if kind == source.kind}
            labels |= {found.id: of_source[found.key] for found in search.index.documents(number, [*of_source])}
        return cls(person, search, stack.enter_context(SearchServer(search)), labels, seed)

    def get(self, target: str) -> dict[str, Any]:
        """Return the JSON object of a GET request."""
        return _read_answer(self.pool.request("GET", self.server.address + target, headers=self._headers()), target)

    def post(self, target: str, **table: Any) -> dict[str, Any]:
        """Return the JSON object of a POST request with these fields."""
        address, headers = self.server.address + target, self._headers()
        return _read_answer(self.pool.request("POST", address, headers=headers, json=table), target)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.server.token}"}

    def find(self, query: Query) -> tuple[dict[str, Any], list[int], float]:
        """Search; return the page, the grades of its results, and its nDCG@10 over all documents of the person."""
        page = self.get(f"api/find?q={quote(query.text)}&limit={PAGE}")
        self.milliseconds.append(page["milliseconds"])
        graded = self.person.grades[query.id]
        grades = [graded.get(self.labels.get(result["document"], ""), 0) for result in page["results"]]
        return page, grades, ndcg(grades or [0], list(graded.values()), PAGE)

    def find_and_click(self, query: Query, day: int, place: int) -> float:
        """Search and click from the top until satisfied; return the nDCG@10."""
        page, grades, quality = self.find(query)
        tables = Cascade(preset="navigational").tables(GRADES, PAGE)
        number = self.person.number
        draws = uniforms(self.seed, Purpose.CLICK, 2 * PAGE, round_=day, client=number, interaction=place)
        for rank, grade in enumerate(grades):
            if draws[2 * rank] < tables.click[grade]:
                self.post("api/choose", token=page["token"], document=page["results"][rank]["document"])
                if draws[2 * rank + 1] < tables.stop[grade]:
                    break
        return quality

    def queries_of(self, day: int) -> list[Query]:
        """Return the person's own queries in the order of a day."""
        own = self.person.searched
        draws = uniforms(self.seed, Purpose.QUERY, len(own), round_=day, client=self.person.number)
        return [own[place] for place in np.argsort(draws, kind="stable")]

    def result(self, measured: dict[str, dict[str, Lists]]) -> dict[str, Any]:
        """Return the result of the person for JSON."""
        status, trials = self.get("api/status"), self.search.history.trials()
        own = {
            name: {moment: float(np.mean(lists[moment][self.person.number])) for moment in MOMENTS}
            for name, lists in measured.items()
        }
        return own | {
            "name": self.person.name,
            "page": self.server.url,
            "documents": status["documents"],
            "choices": status["choices"],
            "releases": status["federation"]["releases"],
            "bytes_sent": status["federation"]["bytes_sent"],
            "rankers": {"tried": len(trials), "taken": sum(one.trial.taken for one in trials)},
            "try": self.person.held_out[0].text,
        }


def _read_answer(answer: BaseHTTPResponse, target: str) -> dict[str, Any]:
    found: dict[str, Any] = parse_json(answer.data, where=target)
    if answer.status != 200:
        code, sentence = found["code"], found["sentence"]
        raise BadInput(code, sentence, target)
    return found


def search_day(persons: Sequence[SimulatedPerson], day: int, then: Callable[[], object]) -> Lists:
    """Run one day of all persons, in turns; return nDCG@10 for each person and query, in the queries' order."""
    orders = [person.queries_of(day) for person in persons]
    found: list[dict[str, float]] = [{} for _ in persons]
    for place in range(max(map(len, orders))):
        for person, order, qualities in zip(persons, orders, found, strict=True):
            if place < len(order):
                qualities[order[place].id] = person.find_and_click(order[place], day, place)
        then()
    return [[own[query.id] for query in person.person.searched] for person, own in zip(persons, found, strict=True)]


@contextmanager
def run_demo(
    plan: DemoPlan,
    folder: Path,
    *,
    say: Callable[[str], object] = lambda _: None,
    tell: Callable[[int, int], object] = lambda done, of: None,
) -> Iterator[dict[str, Any]]:
    """Run a demonstration in a folder and yield its result; pages and service stay open inside the block.

    Args:
        plan: Settings.
        folder: Empty folder for all data.
        say: Called with a sentence at each phase.
        tell: Called with the number of finished searches and their total.
    """
    began, persons = time.monotonic(), plan.make_persons()
    turns = max(len(person.searched) for person in persons)
    days = plan.days_alone + (plan.days_alone + plan.days_joined) + ROUND_COST * plan.days_joined
    done, total = 0, days * turns
    shown: dict[str, Lists] = {}
    held_out: dict[str, Lists] = {}

    def step(searches: int = 1) -> None:
        nonlocal done
        done += searches
        tell(done, total)

    def measure(moment: str, people: Sequence[SimulatedPerson]) -> None:
        held_out[moment] = [[one.find(query)[2] for query in one.person.held_out] for one in people]

    now = time.time()
    machines = [folder / "persons" / person.name for person in persons]
    keys = [write_machine(*pair, now, plan.seed) for pair in zip(persons, machines, strict=True)]

    def open_searches(below: Path, stack: ExitStack) -> list[SimulatedPerson]:
        return [
            SimulatedPerson.open(person, machine, own, below / person.name / "search", stack, plan.seed)
            for person, machine, own in zip(persons, machines, keys, strict=True)
        ]

    counts = ", ".join(f"{person.name} {len(person.documents):,}" for person in persons)
    say(f"{plan.persons} persons; notes, mail and pages of each: {counts}")
    say("they search alone, and so does a copy of each, which never joins")
    with ExitStack() as alone:
        copies = open_searches(folder / "alone", alone)
        for day in range(plan.days_alone + plan.days_joined):
            shown["alone"] = search_day(copies, day, step)
        measure("alone", copies)
    with ExitStack() as stack:
        service = stack.enter_context(ExitStack())  # closes after the pages
        people = open_searches(folder / "persons", stack)
        measure("first", people)
        for day in range(plan.days_alone):
            shown["before"] = search_day(people, day, step)
            shown.setdefault("first", shown["before"])
        measure("before", people)
        say("a service starts; they join it and continue")
        home = service.enter_context(_served(folder / "service", plan.persons))
        for one, machine in zip(people, machines, strict=True):
            with closing(home.store()) as store:
                invite(home, store, one.person.name, machine / "invitation.json")
            one.post("api/join", invitation=str(machine / "invitation.json"))
            one.post("api/consent", given=True)
        last = 0

        def step_with_round() -> None:
            nonlocal last
            last = _play_round(people, last)
            step(ROUND_COST)

        for day in range(plan.days_alone, plan.days_alone + plan.days_joined):
            shown["together"] = search_day(people, day, step_with_round)
        measure("together", people)
        times, measured = np.concatenate([one.milliseconds for one in people]), {"shown": shown, "held_out": held_out}
        yield {
            "persons": [one.result(measured) for one in people],
            "all": {name: _mean_table(found) for name, found in measured.items()},
            "milliseconds": {"median": float(np.median(times)), "p95": float(np.quantile(times, 0.95))},
            "service": {"rounds": Overview(home).read().rounds, "page": f"{home.settings.url}/?token={home.token}"},
            "seconds": time.monotonic() - began,
        }


@contextmanager
def _served(folder: Path, persons: int) -> Iterator[Home]:
    """Run a service with the experiment file `search` in a new folder, inside the block."""
    file, n_features = shipped_file(Path("search")), len(SEARCH_FEATURES)
    assert file is not None
    chosen = read_experiment_file(file)
    for key, value in {"federation.clients": persons, **CHANGES}.items():
        chosen = set_value(chosen, key, value, "quorank search demo")
    experiment = Experiment.read(chosen)
    check_experiment(experiment, n_features)
    with loopback_socket(0) as free:
        port = int(free.getsockname()[1])
    settings = Settings(
        "search-demo", n_features, f"127.0.0.1:{port}", port=port, workers=1, least=1.0 / persons, deadline=DEADLINE,
        pause=PAUSE,
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
        found = person.get("api/status")["federation"]
        if found["last_round"] <= last and found["waiting"] < found["needed"]:
            return last
    end = time.monotonic() + ROUND_SECONDS
    while True:
        for person in persons:
            person.post("api/sync")
        rounds = [person.get("api/status")["federation"]["ranker_round"] or 0 for person in persons]
        if min(rounds) > last:
            return min(rounds)
        require(time.monotonic() < end, "demo.round-late", f"round {last + 1} has not ended within {ROUND_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)


def _mean_table(found: dict[str, Lists]) -> dict[str, Any]:
    """Return the means over all queries, and their changes with standard errors over queries."""
    rows = {moment: np.concatenate(found[moment]) for moment in MOMENTS}
    changes = {"learned": rows["together"] - rows["first"], "joining": rows["together"] - rows["alone"]}
    return {moment: float(rows[moment].mean()) for moment in MOMENTS} | {
        name: {"mean": float(values.mean()), "error": float(values.std(ddof=1) / np.sqrt(len(values)))}
        for name, values in changes.items()
    }

"""Simulated person who searches through the pages' JSON interface and clicks by a cascade model."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np

from quorank.errors import BadInput
from quorank.files.documents import parse_json
from quorank.kernels.draws import Purpose, uniforms
from quorank.metrics.lists import ndcg
from quorank.search.demo.made_up_persons import MadeUpPerson
from quorank.search.pages.server import SearchServer
from quorank.search.personal_search import PAGE
from quorank.text.collection import Query
from quorank.users import Cascade

CALL_SECONDS = 60.0


class PageCalls:
    """Client of the JSON interface of a search, on one connection, with its token."""

    def __init__(self, server: SearchServer) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=CALL_SECONDS)
        self._headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}

    def get(self, target: str) -> dict[str, Any]:
        """Return the JSON object of a GET request."""
        return self._call("GET", target, None)

    def post(self, target: str, **table: Any) -> dict[str, Any]:
        """Return the JSON object of a POST request with these fields."""
        return self._call("POST", target, json.dumps(table).encode())

    def _call(self, method: str, target: str, body: bytes | None) -> dict[str, Any]:
        self._line.request(method, target, body, self._headers)
        answer = self._line.getresponse()
        found: dict[str, Any] = parse_json(answer.read(), where=target)
        if answer.status != 200:
            code, sentence = found["code"], found["sentence"]
            raise BadInput(code, sentence, target)
        return found

    def close(self) -> None:
        """Close the connection."""
        self._line.close()


@dataclass(eq=False)
class SimulatedPerson:
    """Person; `labels` maps ids of documents in the index to ids in the collection."""

    person: MadeUpPerson
    number: int
    calls: PageCalls = field(repr=False)
    labels: Mapping[int, str] = field(repr=False)
    grades: int  # of the judgements, 2 or 3
    seed: int
    milliseconds: list[float] = field(default_factory=list, repr=False)  # of searches, as measured by the page

    def shown(self, query: Query) -> tuple[dict[str, Any], list[int], float]:
        """Search; return the page, the grades of its results, and its nDCG@10 over all documents of the person."""
        page = self.calls.get(f"/api/find?q={quote(query.text)}&limit={PAGE}")
        self.milliseconds.append(page["milliseconds"])
        graded = self.person.grades[query.id]
        grades = [graded.get(self.labels.get(result["document"], ""), 0) for result in page["results"]]
        return page, grades, ndcg(grades or [0], list(graded.values()), PAGE)

    def search(self, query: Query, day: int, place: int) -> float:
        """Search and click as a cascade user, from the top until satisfied; return the nDCG@10."""
        page, grades, quality = self.shown(query)
        tables = Cascade(preset="navigational").tables(self.grades, PAGE)
        draws = uniforms(self.seed, Purpose.CLICK, 2 * PAGE, round_=day, client=self.number, interaction=place)
        for rank, grade in enumerate(grades):
            if draws[2 * rank] < tables.click[grade]:
                document = page["results"][rank]["document"]
                self.calls.post("/api/choose", token=page["token"], document=document)
                if draws[2 * rank + 1] < tables.stop[grade]:
                    break
        return quality

    def day(self, day: int) -> list[Query]:
        """Return the queries of a day: each of the person's own once, in a drawn order."""
        own = self.person.searched
        draws = uniforms(self.seed, Purpose.QUERY, len(own), round_=day, client=self.number)
        return [own[place] for place in np.argsort(draws, kind="stable")]

    def held_out(self) -> list[float]:
        """Return the nDCG@10 of each held-out query, without clicks."""
        return [self.shown(query)[2] for query in self.person.held_out]


def search_day(
    persons: Sequence[SimulatedPerson], day: int, then: Callable[[], object] = lambda: None
) -> list[list[float]]:
    """Run one day of all persons, in turns; return nDCG@10 for each person and query, in the queries' order."""
    orders = [person.day(day) for person in persons]
    found: list[dict[str, float]] = [{} for _ in persons]
    for place in range(max(map(len, orders))):
        for person, order, qualities in zip(persons, orders, found, strict=True):
            if place < len(order):
                qualities[order[place].id] = person.search(order[place], day, place)
        then()
    return [
        [qualities[query.id] for query in person.person.searched]
        for person, qualities in zip(persons, found, strict=True)
    ]

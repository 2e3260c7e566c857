"""Page of what this machine learned and sent: choices, the personal part, rankers that came, releases, consent, leaving."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from quorank.errors import BadInput, require
from quorank.files.atomic import expand_home, write_whole
from quorank.files.private_database import wipe
from quorank.search.pages.bodies import whole_number
from quorank.search.pages.drawing import ShareBars, draw
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import PersonalSearch
from quorank.search.ranking.choice_history import StoredTrial
from quorank.search.ranking.personal_part import LEAST
from quorank.search.ranking.search_features import SEARCH_FEATURES

SHOWN_CHOICES, SHOWN_TRIALS, SHOWN_RELEASES = 30, 20, 100
PASTED = "pasted-invitation.json"
NOTICES = {
    "joined": "Joined. Nothing is sent until you agree to take part.",
    "agreed": "You take part. What leaves from now on is listed below.",
    "paused": "Paused: from now on nothing leaves this machine.",
    "asked": "The service was asked.",
    "left": "Withdrawn: the service confirmed it, and all that the device had kept is erased.",
    "leaving": "The service has your request, and confirms it when it is done. Nothing is sent any more.",
    "not-reached": "Your request is noted, and nothing is sent any more; the service is told as soon as it can be reached.",
    "query": "What was chosen for this query is forgotten.",
    "result": "The result and every choice of it are forgotten.",
    "reset": "All choices are forgotten; lists are ordered by the shipped ranker again.",
    "everything": "Everything is forgotten: documents, sources, choices, and the device.",
}


@dataclass(frozen=True)
class LearnedPage:
    """Answers for the page at `/learned`."""

    search: PersonalSearch
    upkeep: Upkeep
    _spent: dict[tuple[Any, int], dict[str, Any]] = field(default_factory=dict)
    _counting: Lock = field(default_factory=Lock)

    def page(self, request: Request) -> Response:
        """Draw the whole page."""
        return self.draw(notice=NOTICES.get(request.query_params.get("done", ""), ""))

    def draw(self, *, notice: str = "", problem: BadInput | None = None, status: int = 200) -> Response:
        """Draw the page, with what was wrong about what was asked."""
        history = self.search.history
        choices, trials = history.choices(), history.trials()
        return draw(
            "learned.html.jinja",
            status,
            here="learned",
            notice=notice,
            problem=problem,
            choices=len(choices),
            recent=[self._choice(choice) for choice in reversed(choices[-SHOWN_CHOICES:])],
            moved=self._moved(),
            from_federation=history.shared is not None,
            trials=[(one, trial_words(one)) for one in trials[:SHOWN_TRIALS]],
            taken=sum(one.trial.taken for one in trials),
            tried=len(trials),
            talk=self.upkeep.last_talk,
            **self._membership(),
        )

    def _choice(self, choice: Any) -> dict[str, Any]:
        label = self.search.index.label(*choice.document)
        return {"choice": choice, "label": label}

    def _moved(self) -> ShareBars:
        """What this person's choices add to the weight of each feature in the ranker of all, the largest first."""
        shared = self.search.shared
        rows = zip(SEARCH_FEATURES, (self.search.parameters - shared).tolist(), shared.tolist(), strict=True)
        found = ((name, shift, (weight,)) for name, shift, weight in rows if shift != 0.0)
        return ShareBars(tuple(sorted(found, key=lambda row: -abs(row[1]))))

    def _membership(self) -> dict[str, Any]:
        membership = self.search.membership
        status = membership.status()
        if status is None:
            return {"device": None, "releases": [], "consents": [], "privacy": {}, "terms": None, "url": ""}
        client = membership.client
        stored = client.store.releases()
        return {
            "device": status,
            "terms": client.terms,
            "url": client.invitation.url,
            "releases": list(reversed(stored[-SHOWN_RELEASES:])),
            "consents": [{"at": at, "given": given} for at, given in reversed(client.store.consents())],
            "privacy": self._privacy(client.terms, status),
        }

    def _privacy(self, terms: Any, status: dict[str, Any]) -> dict[str, Any]:
        """ε of the whole run, and of the rounds until this device's last release; counted once, for that takes a while."""
        last = status["last_round"]
        rounds = 0 if last is None or status["releases"] == 0 else last + 1
        with self._counting:
            key = (terms, rounds)
            if key not in self._spent:
                self._spent.clear()
                self._spent[key] = stated_privacy(terms, rounds)
            return self._spent[key]

    # what a click asks for

    def join(self, fields: dict[str, str]) -> Response:
        """Accept an invitation, from a file or as it was pasted."""
        path, text = fields.get("path", "").strip(), fields.get("text", "").strip()
        sentence = "write the path of an invitation, or paste it"
        try:
            require(path or text, "invitation.missing", sentence)
            require("\0" not in path, "path.malformed", "this is no path")
            with self._pasted(text) if text else _as_it_is(path) as file:
                self.search.membership.join(file)
        except BadInput as error:
            return self.draw(problem=error, status=400)
        self.upkeep.talk_soon()
        return _done("joined")

    @contextmanager
    def _pasted(self, text: str) -> Iterator[Path]:
        """A private file of a pasted invitation, which is overwritten and deleted afterwards: it holds a code."""
        path = self.search.home.folder / PASTED
        write_whole(path, text, private=True)
        try:
            yield path
        finally:
            wipe([path])

    def consent(self, fields: dict[str, str]) -> Response:
        """Agree to take part, or pause."""
        given = fields.get("given") == "yes"
        self.search.membership.consent(given)
        self.upkeep.talk_soon()
        return _done("agreed" if given else "paused")

    def talk(self, fields: dict[str, str]) -> Response:
        """Ask the service now."""
        require(self.search.membership.joined, "device.missing", "this search has not joined a federation")
        self.upkeep.talk(force=True)
        return _done("asked")

    def leave(self, fields: dict[str, str]) -> Response:
        """Withdraw from the federation."""
        _require_sure(fields)
        report = self.search.membership.leave()
        self.upkeep.talk_soon()
        return _done(report.outcome if report.outcome in ("left", "leaving") else "not-reached")

    def forget_query(self, fields: dict[str, str]) -> Response:
        """Forget what was chosen for a query."""
        self.search.forget_query(fields.get("query", ""))
        return _done("query")

    def forget_result(self, fields: dict[str, str]) -> Response:
        """Erase a document and every choice of it."""
        document = whole_number(fields.get("document", ""), "document")
        with self.upkeep.writing():
            self.search.forget_document(document)
        return _done("result")

    def reset(self, fields: dict[str, str]) -> Response:
        """Forget all choices."""
        _require_sure(fields)
        self.search.reset()
        return _done("reset")

    def forget_everything(self, fields: dict[str, str]) -> Response:
        """Erase everything that this search holds."""
        _require_sure(fields)
        self.erase_all()
        return _done("everything")

    def erase_all(self) -> None:
        """Erase everything, while no source is read."""
        with self.upkeep.writing():
            self.search.forget_all()
        self.upkeep.watch_again()


@contextmanager
def _as_it_is(path: str) -> Iterator[Path]:
    yield expand_home(path)


def _require_sure(fields: dict[str, str]) -> None:
    require(fields.get("sure") == "yes", "request.not-sure", "this cannot be undone; tick the box that says so")


def _done(what: str) -> Response:
    return RedirectResponse(f"/learned?done={what}", status_code=303)


def stated_privacy(terms: Any, rounds: int) -> dict[str, Any]:
    """Return what the terms of a run state: ε planned, its δ and unit, and ε of the first rounds; None where none is."""
    try:
        whole = terms.mechanism.statement() or {}
        so_far = (terms.mechanism.statement(rounds) or {}).get("epsilon") if rounds else 0.0
    except BadInput:  # terms that no noise fits: the person must still be able to leave
        whole, so_far = {}, None
    planned = whole.get("epsilon")
    return {
        "kind": terms.privacy.kind,
        "planned": planned,
        "delta": whole.get("delta"),
        "unit": whole.get("unit"),
        "spent": None if planned is None else so_far,
    }


def trial_words(one: StoredTrial) -> str:
    """Say whether a ranker was taken, and why."""
    trial = one.trial
    if trial.lists < LEAST:
        few = f"{trial.lists} choices are too few to hold it against ({LEAST} are needed)"
        return f"taken: {few}" if trial.taken else f"not taken: it holds numbers that cannot be used; {few}"
    change = f"{trial.difference:+.3f} ± {trial.error:.3f}".replace("-", "−")
    held = f"on {trial.lists} past choices the mean gain changes by {change}"
    if trial.taken:
        return f"taken: {held}, which is not worse"
    return f"not taken: {held}, so what you chose would stand lower"

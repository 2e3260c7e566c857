"""Page of learned and sent data: choices, personal part, received rankers, releases, consent, leaving."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from quorank.errors import BadInput, require
from quorank.files.atomic import expand_home, write_whole
from quorank.files.private_database import wipe
from quorank.search.pages.bodies import read_integer
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
    "agreed": "You take part. All future releases are listed below.",
    "paused": "Paused: from now on nothing leaves this machine.",
    "asked": "The service was contacted.",
    "left": "Withdrawn: the service confirmed it, and the device's data is erased.",
    "leaving": "The service has your request and will confirm it. Nothing is sent any more.",
    "not-reached": "Your request is stored, and nothing is sent any more; the service gets it as soon as it is reached.",
    "query": "The choices for this query are forgotten.",
    "result": "The result and all its choices are forgotten.",
    "reset": "All choices are forgotten; the shipped ranker is in use again.",
    "everything": "Everything is forgotten: documents, sources, choices, and the device.",
}


@dataclass(frozen=True)
class LearnedPage:
    """Handlers of the page at `/learned`."""

    search: PersonalSearch
    upkeep: Upkeep
    _spent: dict[tuple[Any, int], dict[str, Any]] = field(default_factory=dict)
    _counting: Lock = field(default_factory=Lock)

    def page(self, request: Request) -> Response:
        """Draw the whole page."""
        return self.draw(notice=NOTICES.get(request.query_params.get("done", ""), ""))

    def draw(self, *, notice: str = "", problem: BadInput | None = None, status: int = 200) -> Response:
        """Draw the page, with the problem of a request."""
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
            weight_changes=self._weight_changes(),
            from_federation=history.shared is not None,
            trials=[(one, trial_sentence(one)) for one in trials[:SHOWN_TRIALS]],
            taken=sum(one.trial.taken for one in trials),
            tried=len(trials),
            contact=self.upkeep.last_contact,
            **self._membership(),
        )

    def _choice(self, choice: Any) -> dict[str, Any]:
        label = self.search.index.label(*choice.document)
        return {"choice": choice, "label": label}

    def _weight_changes(self) -> ShareBars:
        """Return the change of each weight of the shared ranker by this person's choices, the largest first."""
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
        """Return ε of the whole run and of the rounds up to this device's last release, cached: it takes seconds."""
        rounds = status["last_round"]
        with self._counting:
            key = (terms, rounds)
            if key not in self._spent:
                self._spent.clear()
                self._spent[key] = stated_privacy(terms, rounds)
            return self._spent[key]

    # actions

    def join(self, fields: dict[str, str]) -> Response:
        """Accept an invitation, from a file or pasted."""
        path, text = fields.get("path", "").strip(), fields.get("text", "").strip()
        sentence = "write the path of an invitation, or paste it"
        try:
            require(path or text, "invitation.missing", sentence)
            require("\0" not in path, "path.malformed", "this is not a path")
            with self._pasted(text) if text else nullcontext(expand_home(path)) as file:
                self.search.membership.join(file)
        except BadInput as error:
            return self.draw(problem=error, status=400)
        self.upkeep.contact_soon()
        return _redirect("joined")

    @contextmanager
    def _pasted(self, text: str) -> Iterator[Path]:
        """Write a pasted invitation to a private file, which is overwritten and deleted afterwards: it contains a code."""
        path = self.search.home.folder / PASTED
        write_whole(path, text, private=True)
        try:
            yield path
        finally:
            wipe([path])

    def consent(self, fields: dict[str, str]) -> Response:
        """Give or withdraw consent."""
        given = fields.get("given") == "yes"
        self.search.membership.consent(given)
        self.upkeep.contact_soon()
        return _redirect("agreed" if given else "paused")

    def contact(self, fields: dict[str, str]) -> Response:
        """Contact the service now."""
        require(self.search.membership.joined, "device.missing", "this search has not joined a federation")
        self.upkeep.contact(force=True)
        return _redirect("asked")

    def leave(self, fields: dict[str, str]) -> Response:
        """Withdraw from the federation."""
        _require_confirmation(fields)
        report = self.search.membership.leave()
        self.upkeep.contact_soon()
        return _redirect(report.outcome if report.outcome in ("left", "leaving") else "not-reached")

    def forget_query(self, fields: dict[str, str]) -> Response:
        """Forget the choices for a query."""
        self.search.forget_query(fields.get("query", ""))
        return _redirect("query")

    def forget_result(self, fields: dict[str, str]) -> Response:
        """Erase a document and all its choices."""
        document = read_integer(fields.get("document", ""), "document")
        with self.upkeep.writing():
            self.search.forget_document(document)
        return _redirect("result")

    def reset(self, fields: dict[str, str]) -> Response:
        """Forget all choices."""
        _require_confirmation(fields)
        self.search.reset()
        return _redirect("reset")

    def forget_everything(self, fields: dict[str, str]) -> Response:
        """Erase all data of this search."""
        _require_confirmation(fields)
        self.erase_all()
        return _redirect("everything")

    def erase_all(self) -> None:
        """Erase everything, while no source is scanned."""
        with self.upkeep.writing():
            self.search.forget_all()
        self.upkeep.watch_again()


def _require_confirmation(fields: dict[str, str]) -> None:
    require(fields.get("sure") == "yes", "request.not-sure", "this cannot be undone; tick the box that says so")


def _redirect(what: str) -> Response:
    return RedirectResponse(f"/learned?done={what}", status_code=303)


def stated_privacy(terms: Any, rounds: int) -> dict[str, Any]:
    """Return planned ε, δ and unit of a run, and ε of its first `rounds` rounds; None where the terms state none."""
    try:
        whole = terms.mechanism.statement() or {}
        so_far = (terms.mechanism.statement(rounds) or {}).get("epsilon") if rounds else 0.0
    except BadInput:  # impossible terms: the person must still be able to leave
        whole, so_far = {}, None
    planned = whole.get("epsilon")
    return {
        "kind": terms.privacy.kind,
        "planned": planned,
        "delta": whole.get("delta"),
        "unit": whole.get("unit"),
        "spent": None if planned is None else so_far,
    }


def trial_sentence(one: StoredTrial) -> str:
    """Return whether a received ranker was accepted, and why."""
    trial = one.trial
    if trial.lists < LEAST:
        few = f"{trial.lists} choices are too few for a comparison ({LEAST} are needed)"
        return f"accepted: {few}" if trial.taken else f"rejected: it has invalid numbers; {few}"
    change = f"{trial.difference:+.3f} ± {trial.error:.3f}".replace("-", "−")
    compared = f"on {trial.lists} past choices the mean gain changes by {change}"
    return f"accepted: {compared}, which is not worse" if trial.taken else f"rejected: {compared}"

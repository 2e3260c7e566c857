"""Device for applications: `rank` shows a list, `record` learns from its clicks, `sync` exchanges with the service.

A device polls; nothing is held open. Each answer is stored before it leaves, and sent again until the service has confirmed
it. Whatever a service sends, a device answers only as its terms allow: a task must be signed by the key of the invitation,
the terms at enrolment must be those of the invitation, and everything else is rejected or declined.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.federation.reply import LARGEST_MESSAGE
from quorank.federation.unlearning import NOTHING
from quorank.learning import Shown
from quorank.learning.online import ClickGuard
from quorank.member.device import Device
from quorank.member.device_answers import DeviceAnswers
from quorank.member.membership import IDENTITY, LEAVING, MEMBER, TERMS
from quorank.member.private_store import PrivateStore
from quorank.member.sync import HOUR, SyncedMembership, SyncReport, send_reply
from quorank.protocol.http_client import ServedTask, ServiceClient, ServiceRefusal
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey, task_content
from quorank.protocol.messages import Declined
from quorank.protocol.terms import Terms

MOST_LETTERS = 12
"""Maximum number of letters of one exchange; a secure sum has five."""
CONFIRMED = "confirmed"
"""Fact: the digest of the last confirmed answer."""
_ETAG = re.compile(r'(?:W/)?"[!#-~]{1,100}"')
_HEAD_BYTES = 1 << 16  # of a task or letter beside its numbers


class Client(SyncedMembership[Terms]):
    """A device; open it with `Client.open`, and close it or use it as a context.

    >>> terms = Terms("run", 0, n_features=2, rounds=10, interactions=1)
    >>> desk = Invitation("desk", "https://127.0.0.1:9", MemberKey.create().public, terms.table(), code=bytes(32))
    >>> desk.write(Path("invitation.json"))
    >>> with Client.open("device", "invitation.json") as client:
    ...     client.consent(True)
    ...     shown = client.rank([[0.1, 0.9], [0.8, 0.2]])
    ...     client.record(shown, clicks=[True, False])
    ...     client.status()["waiting"]  # for `client.sync()`, which exchanges with the service
    1
    """

    def __init__(
        self,
        store: PrivateStore,
        invitation: Invitation,
        *,
        start: npt.ArrayLike | None = None,
        guard: ClickGuard | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(store, invitation, **options)
        self._start, self._guard, self._seed = start, guard, seed
        self._recorded: WeakSet[Shown] = WeakSet()
        self._task: ServedTask | None = None  # last one, for the service to say that it has not changed
        self._make_device()

    @classmethod
    def open(
        cls,
        folder: Path | str,
        invitation: Path | str | None = None,
        *,
        start: npt.ArrayLike | None = None,
        guard: ClickGuard | None = None,
        **options: Any,
    ) -> Client:
        """Open the device of a folder; no network is needed.

        Args:
            folder: Directory of the private store.
            invitation: Invitation file, needed once; the same one may be given again.
            start: Parameters that show lists before the first ranker arrives; by default those of the terms.
            guard: Rejects rankers for the owner's lists that the owner's clicks contradict.

        Returns:
            The device. One process at a time may hold it.

        Raises:
            BadInput: `device.missing` without device and invitation, `folder.busy` while another process holds it,
                `folder.other-run` for another invitation, `device.left` after leaving, `invitation.kind` for a party's.
        """
        return cls._opened(folder, invitation, start=start, guard=guard, **options)

    @classmethod
    def read_terms(cls, table: object) -> Terms:
        return Terms.read(table)

    def _make_device(self) -> None:
        self.device = Device(
            self.store, self.terms, seed=self._seed, entropy=self._entropy, clock=self._clock, guard=self._guard,
            start=self._start,
        )  # fmt: skip
        self._answers = DeviceAnswers(self.device, self.invitation.identities)

    def enrol(self, service: ServiceClient) -> None:
        super().enrol(service)
        self._make_device()

    # ------------------------------------------------------------ calls of an application

    def rank(self, features: npt.ArrayLike) -> Shown:
        """Draw the list to show.

        Args:
            features: Candidate documents' features, shape (documents, n_features).

        Returns:
            The list; `order` holds row numbers, best first, at most `terms.k` of them.

        Raises:
            BadInput: `features.shape` for another number of features.
        """
        self._check_open()
        return self.device.rank(features)

    def present(self, features: npt.ArrayLike) -> Shown:
        """Take a list that the application shows in an order of its own.

        Args:
            features: Features of the shown documents, shape (documents, n_features), best first.

        Returns:
            The list, for `record`; only for learners that correct clicks by rank alone (`counterfactual`).
        """
        self._check_open()
        return self.device.present(features)

    def record(self, shown: Shown, clicks: npt.ArrayLike, query: str | None = None) -> None:
        """Store the clicks on a list, once, when the person is done with it.

        Args:
            shown: A list of `rank` or `present`.
            clicks: True or false for each document of `shown.order`.
            query: Text by which `forget` finds the interaction; stored only if given, and never sent.

        Raises:
            BadInput: `list.recorded` for a list that was recorded already.
        """
        self._check_open()
        require(shown not in self._recorded, "list.recorded", "this list was recorded already; each counts once")
        self.device.record(shown, clicks, query)
        self._recorded.add(shown)

    def forget(self, names: Sequence[str]) -> None:
        """Erase the interactions recorded with these names as their `query`; what was sent stays sent."""
        self._check_open()
        with self.store.transaction():
            self.store.forget_named(names)
        self.store.overwrite_deleted()
        self._make_device()

    def status(self) -> dict[str, Any]:
        """Return the device's status as JSON holds it."""
        self._check_open()
        return device_status(self.store) | {"next": self._left_to_wait()}

    def log(self) -> dict[str, list[dict[str, Any]]]:
        """Return all that ever left the device, with its privacy, and every change of consent, as JSON holds it."""
        self._check_open()
        return device_log(self.store)

    # ------------------------------------------------------------ one exchange

    def _exchange(self, service: ServiceClient) -> SyncReport:
        task = self._current_task(service)
        if task.content is None:
            return SyncReport("nothing", task.next, "task.none", "there is no task yet")
        unasked = not task.asked and task.kind == "round"
        if task.kind in ("over", "secure") or unasked:
            declined = self.device.see(task.content)
            if declined is not None:
                return _declined(declined, task.next)
            if unasked:
                return SyncReport("nothing", task.next, "task.unasked", "this round asks others")
            if task.kind == "over":
                return SyncReport("over", task.next, "run.over", "all rounds of the run are done")
            return self._answer_letters(service, task.next)
        if task.kind == "tuning":
            return _declined(Declined("task"), task.next)
        rebuilds = task.kind == "rebuilding"
        answer = self._answers.answer_rebuilding(task.content) if rebuilds else self.device.answer(task.content)
        if isinstance(answer, Declined):
            return _declined(answer, task.next)
        return self._reply(service, task, answer)

    def _current_task(self, service: ServiceClient) -> ServedTask:
        """Return the current task, from memory if it has not changed; without content where there is none."""
        kept, private = self._task, sum(values.size for values in self.terms.client_mechanism.start().values())
        longest = int(_HEAD_BYTES + 8 * (self.terms.parameters + private))
        served = service.task("" if kept is None else kept.etag, longest)
        if served.content is not None:
            self._task = served if _ETAG.fullmatch(served.etag) else None
        elif kept is not None and served.etag == kept.etag:
            return replace(served, kind=kept.kind, content=kept.content)
        return served

    def _reply(self, service: ServiceClient, task: ServedTask, answer: bytes) -> SyncReport:
        """Send an answer unless the service has confirmed it."""
        assert task.content is not None
        question = hashlib.sha256(task_content(task.kind, task.content)).digest()
        name = question + hashlib.sha256(answer).digest()
        if self.store.fact(CONFIRMED) == name:
            return SyncReport("nothing", task.next, "task.answered", "the service has the answer to this task")
        if not self.store.consent:
            return _declined(Declined("consent"), HOUR)
        report, settled = send_reply(service, answer, task.next)
        if settled:
            self.store.set_fact(CONFIRMED, name)
        if answer == NOTHING and report.outcome == "sent":
            sentence = "this device holds nothing for the rebuilding"
            return SyncReport("nothing", report.next, "rebuilding.nothing", sentence)
        return report

    def _answer_letters(self, service: ServiceClient, next_: float) -> SyncReport:
        """Answer the letters of a secure sum."""
        terms = self.terms
        longest = min(LARGEST_MESSAGE, (1 << 20) + 512 * terms.setting.clients + 16 * terms.parameters)
        answered = 0
        for _ in range(MOST_LETTERS):
            mail = service.mail(longest)
            next_ = mail.next
            if mail.content is None:
                break
            found = self._answers.answer_secure(mail.content)
            if isinstance(found, Declined) and found.code in ("waiting", "consent", "storage"):
                return _declined(found, next_)  # it may still be answered later
            try:
                service.answer(mail.id, b"" if isinstance(found, Declined) else found)
            except ServiceRefusal as error:
                if not error.code.startswith("mail."):
                    raise
                return SyncReport("refused", next_, error.code, error.sentence)
            if isinstance(found, Declined):
                return _declined(found, next_)
            answered += len(found)
        if answered:
            return SyncReport("sent", next_, sent=answered)
        return SyncReport("nothing", next_, "mail.none", "there is no message yet")


def _declined(declined: Declined, next_: float) -> SyncReport:
    return SyncReport("nothing", next_, f"device.{declined.code}", declined.sentence)


# ---------------------------------------------------------------- status and log, also while another process plays it


def agreed_terms(store: PrivateStore) -> Terms:
    """Return the terms that this device agreed to; `device.not-joined` before it has."""
    found = store.note(TERMS, dict[str, Any])
    if found is None:
        sentence = "this device has not joined a run yet; give an invitation"
        raise BadInput("device.not-joined", sentence, f"{store.folder}")
    return Terms.read(found)


def device_status(store: PrivateStore) -> dict[str, Any]:
    """Return consent, interactions and counts of releases."""
    terms, ranker = agreed_terms(store), store.ranker
    member, secret = store.fact(MEMBER), store.fact(IDENTITY)
    releases, size = store.rows("SELECT count(*), coalesce(sum(bytes), 0) FROM releases")[0]
    leaves = store.fact(LEAVING) is not None
    return {
        "run": terms.run,
        "client": terms.client,
        "state": "leaving" if leaves else "invited" if member is None else "enrolled",
        "consent": store.consent,
        "waiting": store.waiting(),
        "needed": terms.interactions,
        "releases": int(releases),
        "bytes_sent": int(size),
        "last_round": store.last_round(terms.run),
        "rounds": terms.rounds,
        "ranker_round": None if ranker is None else ranker.round,
        "privacy": terms.privacy.kind,
        "reports": terms.reports,
        "identity": None if secret is None else MemberKey(secret).public.hex(),
    }


def device_log(store: PrivateStore) -> dict[str, list[dict[str, Any]]]:
    """Return releases with the run's privacy statement, and changes of consent; times are seconds since 1970.

    The statement may take seconds to compute.
    """
    terms = agreed_terms(store)
    statement = terms.mechanism.statement() or {"kind": terms.privacy.kind, "epsilon": None}
    releases = [
        {
            "at": release.at,
            "run": release.run,
            "round": release.round,
            "interactions": release.interactions,
            "bytes": release.size,
            "privacy": statement | release.privacy,
        }
        for release in store.releases()
    ]
    return {"releases": releases, "consent": [{"at": at, "given": on} for at, on in store.consents()]}

"""Device for applications: `rank` shows a list, `record` learns from its clicks, `sync` exchanges with the service.

A device polls and holds no connection open. Each answer is stored before it leaves, and sent again until the service has
confirmed it. A device answers only what its terms allow: a task must be signed by the key of the invitation, the terms at
enrolment must be those of the invitation, and everything else is rejected or declined.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast
from weakref import WeakSet

import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.federation.reply import LARGEST_MESSAGE
from quorank.federation.unlearning import NOTHING
from quorank.learning import Shown
from quorank.learning.online import ClickGuard
from quorank.member.device import Device
from quorank.member.device_answers import DeviceAnswers
from quorank.member.known_members import KnownMembers
from quorank.member.membership import ATTESTATION, IDENTITY, INVITATION, LEAVING, MEMBER, TERMS, Pins
from quorank.member.policy import Policy, check_terms, promise_of, set_policy
from quorank.member.private_store import PrivateStore
from quorank.member.sync import HOUR, SyncedMembership, SyncReport, send_reply
from quorank.protocol.http_client import ServedTask, ServiceClient, ServiceRefusal
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey, task_content
from quorank.protocol.messages import Declined
from quorank.protocol.terms import Terms

MOST_LETTERS = 12  # maximum number of letters of one exchange; a secure sum has five
CONFIRMED = "confirmed"  # fact: the digest of the last confirmed answer
_ETAG = re.compile(r'(?:W/)?"[!#-~]{1,100}"')
_HEAD_BYTES = 1 << 16  # limit on a task without its parameters, bytes


class DeviceStatus(TypedDict):
    """Status of a device, JSON values."""

    run: str
    client: int  # number of the client
    state: Literal["invited", "enrolled", "leaving"]
    consent: bool
    waiting: int  # interactions recorded for the next update
    needed: int  # interactions of an update
    releases: int
    bytes_sent: int
    last_round: int | None  # of the last release
    rounds: int  # of the run
    ranker_round: int | None  # of the newest ranker
    privacy: str  # kind of the mechanism
    reports: dict[str, Any] | None  # reports of metrics; None without
    identity: str | None  # public key, hexadecimal
    statement: list[str]  # sentences on what leaves, how often, who can read it, and what ε means
    declined: str  # reason for which the owner's policy declines the terms; empty if it accepts them
    members: str | None  # digest and length of the list of members
    pinned: list[str]  # members whose keys the owner has pinned
    next: NotRequired[float]  # seconds until the next sync is useful; of an open device


class ReleaseRecord(TypedDict):
    """Release in the log of a device."""

    at: float  # seconds since 1970
    run: str
    round: int
    interactions: int
    bytes: int
    privacy: dict[str, Any]  # statement of the mechanism


class ConsentRecord(TypedDict):
    """Change of consent in the log of a device."""

    at: float  # seconds since 1970
    given: bool


class DeviceLog(TypedDict):
    """Log of a device, JSON values."""

    releases: list[ReleaseRecord]
    consent: list[ConsentRecord]


class Client(SyncedMembership[Terms]):
    """Device of one person: shows lists, learns from clicks and takes part in the rounds of a service.

    Open it with `Client.open`, and close it or use it as a context manager. Only `sync` and `leave` use the network, and
    nothing is sent without consent. Several threads may share a device.

    Attributes:
        terms: Agreed terms of the run, such as `terms.n_features` and the length of a list, `terms.k`.
        folder: Directory of the private store.

    >>> terms = Terms("run", 0, n_features=2, rounds=10, interactions=1)
    >>> desk = Invitation("desk", "https://127.0.0.1:9", MemberKey.create().public, terms.table(), code=bytes(32))
    >>> desk.write(Path("invitation.json"))  # a service's operator does this
    >>> trial = Policy(cohort=1, searches=1, unstated=True)  # of no real person
    >>> with Client.open("device", "invitation.json", policy=trial) as client:
    ...     print(client.sync().outcome)  # without consent nothing is sent
    ...     client.consent(True)
    ...     shown = client.rank([[0.1, 0.9], [0.8, 0.2]])
    ...     client.record(shown, clicks=[True, False])
    ...     client.status()["waiting"]  # interactions for the next `client.sync()`
    consent
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
        policy: Policy | None = None,
        attestation: bytes = b"",
        **options: Any,
    ) -> None:
        super().__init__(store, invitation, **options)
        if policy is not None:
            set_policy(store, policy)
        if attestation:
            store.set_fact(ATTESTATION, attestation)
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
        policy: Policy | None = None,
        attestation: bytes = b"",
        **options: Any,
    ) -> Client:
        """Open the device of a folder, or create it from an invitation; no network is needed.

        Args:
            folder: Directory of the private store, created with mode 0700.
            invitation: Invitation file, needed once; the same one may be given again.
            start: Parameters that show lists before the first ranker arrives; by default those of the terms.
            guard: Rejects rankers for the owner's lists that the owner's clicks contradict.
            policy: The owner's limits on terms, kept in the folder; by default the folder's, else `Policy()`.
            attestation: Signature of the attester that the terms name, for the key in `status()["identity"]`; needed once,
                before the device enrols.
            options: For simulations: `seed` of the draws of lists, `entropy` (source of secret bytes) and `clock`.

        Returns:
            The device. One process at a time may open it.

        Raises:
            BadInput: `device.missing` without device and invitation, `folder.busy` while another process has it open,
                `folder.other-run` for another invitation, `device.left` after leaving, `invitation.kind` for a party's
                invitation, `ranker.wrong-size` for a `start` of another length.

        >>> Client.open("elsewhere")
        Traceback (most recent call last):
            ...
        quorank.errors.BadInput: elsewhere: there is no device here; join with an invitation first
        """
        return cls._opened(
            folder, invitation, start=start, guard=guard, policy=policy, attestation=attestation, **options
        )

    @classmethod
    def _read_terms(cls, table: object) -> Terms:
        return Terms.read(table)

    def check_policy(self) -> None:
        """Decline the agreed terms where they are outside the owner's policy.

        Raises:
            BadInput: `policy.` and the name of the exceeded limit; nothing is sent then.
        """
        check_terms(self.store, self.terms)

    def statement(self) -> list[str]:
        """Return sentences on what leaves this device, how often, who can read it, and what ε means here.

        The first call may take seconds.

        >>> with Client.open("device") as client:
        ...     client.statement()[1]
        'How often: at most 10 times in this run.'
        """
        self._check_open()
        return promise_of(self.store, self.terms).sentences()

    def _make_device(self) -> None:
        self.device = Device(
            self.store, self.terms, seed=self._seed, entropy=self._entropy, clock=self._clock, guard=self._guard,
            start=self._start,
        )  # fmt: skip
        known = KnownMembers(self.store, self.pins, self.invitation.service, self.terms.attester)
        self._answers = DeviceAnswers(self.device, known)

    def enrol(self, service: ServiceClient) -> None:
        super().enrol(service)
        self._make_device()

    # ------------------------------------------------------------ calls of an application

    def rank(self, features: npt.ArrayLike) -> Shown:
        """Draw the list to show for a query.

        Args:
            features: Candidate documents' features, shape (documents, n_features).

        Returns:
            The list; `order` holds row numbers of `features`, best first, at most `terms.k` of them. Lists are drawn at
            random around the ranker's order, because learning needs the exploration.

        Raises:
            BadInput: `features.shape` for another number of features, `features.not-finite`, `device.closed`.

        >>> with Client.open("device") as client:
        ...     sorted(client.rank([[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]]).order.tolist())
        [0, 1, 2]
        """
        self._check_open()
        return self.device.rank(features)

    def present(self, features: npt.ArrayLike) -> Shown:
        """Register a list that the application has ordered.

        Args:
            features: Features of the shown documents, shape (documents, n_features), best first.

        Returns:
            The list, for `record`.

        Raises:
            BadInput: `list.not-drawn` where the agreed learner corrects clicks by the probability of a drawn list
                (only `counterfactual` corrects them by rank alone), `features.shape`, `device.closed`.
        """
        self._check_open()
        return self.device.present(features)

    def record(self, shown: Shown, clicks: npt.ArrayLike, query: str | None = None) -> None:
        """Store the clicks on a list after the person has finished with it.

        Args:
            shown: List returned by `rank` or `present`; each list is recorded once, also without a click.
            clicks: True or false for each document of `shown.order`.
            query: Text by which `forget` finds the interaction; stored only if given, and never sent.

        Raises:
            BadInput: `list.recorded` for a list that was recorded already, `clicks.shape`, `clicks.not-boolean`,
                `device.closed`.

        >>> with Client.open("device") as client:
        ...     shown = client.rank([[0.1, 0.9], [0.8, 0.2]])
        ...     client.record(shown, [False, True], query="wing flutter")
        ...     client.record(shown, [False, True])
        Traceback (most recent call last):
            ...
        quorank.errors.BadInput: this list was recorded already; each counts once
        """
        self._check_open()
        require(shown not in self._recorded, "list.recorded", "this list was recorded already; each counts once")
        self.device.record(shown, clicks, query)
        self._recorded.add(shown)

    def forget(self, names: Sequence[str]) -> None:
        """Erase the interactions of these queries from the disk; releases that were sent cannot be recalled.

        Args:
            names: Texts that were given to `record` as `query`.

        Raises:
            BadInput: `device.closed`, or `file.busy` while another process reads the store.

        >>> with Client.open("device") as client:
        ...     before = client.status()["waiting"]
        ...     client.record(client.rank([[0.1, 0.9]]), [True], query="private")
        ...     client.forget(["private"])
        ...     client.status()["waiting"] - before
        0
        """
        self._check_open()
        with self.store.transaction():
            self.store.forget_named(names)
        self.store.overwrite_deleted()
        self._make_device()

    def status(self) -> DeviceStatus:
        """Return the device's status.

        Returns:
            JSON values by name: `run`, `client` (number), `state` ("invited", "enrolled" or "leaving"), `consent`,
            `waiting` and `needed` (interactions for the next update), `releases`, `bytes_sent`, `last_round`, `rounds`,
            `ranker_round`, `privacy`, `reports`, `identity` (public key), `statement`, `declined` (reason for which the
            policy declines the terms; empty if it accepts them), `members`, `pinned`, and `next`, seconds until the next
            sync is useful.

        Raises:
            BadInput: `device.closed`.

        >>> with Client.open("device") as client:
        ...     status = client.status()
        >>> status["state"], status["consent"], status["releases"], status["rounds"]
        ('invited', True, 0, 10)
        """
        self._check_open()
        return cast("DeviceStatus", device_status(self.store) | {"next": self._left_to_wait()})

    def log(self) -> DeviceLog:
        """Return the log of everything that left the device, and of changes of consent.

        Returns:
            JSON values: `releases` (time, run, round, interactions, bytes, privacy) and `consent` (time, given); times
            are seconds since 1970. The first call computes the privacy statement, which may take seconds.

        Raises:
            BadInput: `device.closed`.

        >>> with Client.open("device") as client:
        ...     log = client.log()
        >>> log["releases"], [change["given"] for change in log["consent"]]
        ([], [True])
        """
        self._check_open()
        return cast("DeviceLog", device_log(self.store))

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
            return self._answer_letters(service, task.content, task.next)
        if task.kind == "tuning":
            return _declined(Declined("task"), task.next)
        rebuilds = task.kind == "rebuilding"
        answer = self._answers.answer_rebuilding(task.content) if rebuilds else self.device.answer(task.content)
        if isinstance(answer, Declined):
            return _declined(answer, task.next)
        return self._reply(service, task, answer)

    def _current_task(self, service: ServiceClient) -> ServedTask:
        """Return the current task, from memory if it is unchanged; its content is None before the first task."""
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

    def _answer_letters(self, service: ServiceClient, task: bytes, next_: float) -> SyncReport:
        """Answer the letters of the secure sum of a signed task."""
        terms = self.terms
        longest = min(LARGEST_MESSAGE, (1 << 20) + 512 * terms.setting.clients + 16 * terms.parameters)
        answered = 0
        for _ in range(MOST_LETTERS):
            mail = service.mail(longest)
            next_ = mail.next
            if mail.content is None:
                break
            self._answers.update_members(mail.content, service.members)
            found = self._answers.answer_secure(mail.content, task)
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


# ---------------------------------------------------------------- status and log, also while a process runs the device


def agreed_terms(store: PrivateStore) -> Terms:
    """Return the terms that this device agreed to.

    Raises:
        BadInput: `device.not-joined` before an invitation was accepted.
    """
    found = store.note(TERMS, dict[str, Any])
    if found is None:
        sentence = "this device has not joined a run yet; give an invitation"
        raise BadInput("device.not-joined", sentence, f"{store.folder}")
    return Terms.read(found)


def known_members(store: PrivateStore) -> KnownMembers:
    """Return the members that a device knows, and those that its owner has pinned.

    Raises:
        BadInput: `device.not-joined` before an invitation was accepted.
    """
    terms = agreed_terms(store)
    stored = store.fact(INVITATION)
    service, given = (b"", {}) if stored is None else ((found := Invitation.parse(stored)).service, found.identities)
    return KnownMembers(store, Pins(store, given), service, terms.attester)


def device_status(store: PrivateStore) -> dict[str, Any]:
    """Return the status of a device from its private store, also while another process has it open.

    Args:
        store: The private store.

    Returns:
        The values of `Client.status` without `next`.

    Raises:
        BadInput: `device.not-joined` before an invitation was accepted.
    """
    terms, ranker = agreed_terms(store), store.ranker
    member, secret = store.fact(MEMBER), store.fact(IDENTITY)
    releases, size = store.rows("SELECT count(*), coalesce(sum(bytes), 0) FROM releases")[0]
    leaves, declined = store.fact(LEAVING) is not None, ""
    try:
        check_terms(store, terms)
    except BadInput as error:
        declined = error.sentence
    known = known_members(store)
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
        "statement": promise_of(store, terms).sentences(),
        "declined": declined,
        "members": None if known.list is None else f"{known.list.head}",
        "pinned": sorted(known.pins.known),
    }


def device_log(store: PrivateStore) -> dict[str, list[dict[str, Any]]]:
    """Return the log of a device from its private store, also while another process has it open.

    Args:
        store: The private store.

    Returns:
        JSON values as `Client.log` returns them; the privacy statement may take seconds to compute.

    Raises:
        BadInput: `device.not-joined` before an invitation was accepted.
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

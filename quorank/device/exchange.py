"""One exchange of a device with its service: enrolment, the task and its answer, messages of secure sums, leaving.

A device asks; nothing is held open. Each answer is stored before it leaves, and sent again until the service has confirmed
it. Whatever a service says, a device sends nothing but the answers that its terms name: a task must be signed by the key of
the invitation, the terms at enrolment must be those of the invitation, and all else is refused or declined.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from quorank.device import leaving
from quorank.device.answering import DeviceAnswers
from quorank.device.private_store import Erased, PrivateStore
from quorank.documents import Items, Text, parse_json
from quorank.errors import require
from quorank.federation import notices, wire
from quorank.federation.declined import Declined
from quorank.federation.leaving import receipt_of
from quorank.federation.member_key import is_signed, task_content
from quorank.federation.requests import KIND, MAIL, SIGNED
from quorank.federation.service_line import ServiceLine, ServiceRefusal
from quorank.federation.terms import Terms

HOUR = 3600.0
MOST_MESSAGES = 12
"""Of a secure sum, in one exchange: it has five."""
NOTHING = b"nothing"
"""The reply of a device that holds nothing for a rebuilding."""
MEMBER, TASK, CONFIRMED = "member", "task", "confirmed"
"""Facts: the number that the service gave, the last task, and which answer the service has confirmed."""

_KINDS = ("round", "secure", "rebuilding", "tuning", "over")
_ETAG = re.compile(r'(?:W/)?"[!#-~]{1,100}"')
_MAIL = re.compile(r"0|[1-9][0-9]{0,17}")
_HEAD = 1 << 16  # bytes of a task or message beside its numbers


@dataclass(frozen=True)
class SyncReport:
    """What one `sync` did, and when it is worth calling again.

    `outcome`: sent (a release was confirmed), nothing (there is no task, or no answer to it yet: `code` says why), over
    (all rounds are done), early (it was called before its time), busy (another thread is at it), consent (it is off: nobody
    was asked anything), leaving (the service has the request), left (all is erased), refused (the service did not take what
    was sent), failed (the service was not reached, or not understood).
    """

    outcome: str
    next: float  # seconds
    code: str = ""
    sentence: str = ""
    sent: int = 0  # bytes of the release
    erased: Erased | None = None

    def table(self) -> dict[str, object]:
        """For JSON."""
        return {name: getattr(self, name) for name in ("outcome", "next", "code", "sentence", "sent")}


class ServiceTask(NamedTuple):
    """A task whose signature was checked."""

    kind: str
    content: bytes
    next: float

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(task_content(self.kind, self.content)).digest()


def longest_task(terms: Terms) -> int:
    """Bytes that a task of this run takes at most."""
    private = sum(values.size for values in terms.client_mechanism.start().values())
    return int(_HEAD + 8 * (terms.parameters + private))


def enrolled_terms(line: ServiceLine, agreed: Terms, code: bytes, token: str) -> Terms:
    """Enrol; the terms as the service confirms them, which must be the agreed ones but for the client's number."""
    found = line.enrol(code, token)
    terms = Terms.read(found.get("terms"))
    sentence = "the service enrols under other terms than those of the invitation; nothing is sent"
    require(replace(terms, client=agreed.client) == agreed, "terms.changed", sentence)
    require(terms.client == found["member"], "terms.changed", sentence)
    return terms


class Exchange:
    """What an enrolled device says and hears; `consent` is looked at before anything is sent."""

    def __init__(self, line: ServiceLine, answers: DeviceAnswers, clock: Callable[[], float]) -> None:
        self.line, self.answers, self.clock = line, answers, clock
        self.device = answers.device
        self.store: PrivateStore = self.device.store

    def take_part(self) -> SyncReport:
        """Fetch the task of the moment and answer it."""
        task = self._task()
        if isinstance(task, float):
            return SyncReport("nothing", task, "task.none", "there is no task yet")
        if task.kind in ("over", "secure"):
            declined = self.device.see(task.content)
            if declined is not None:
                return _declined(declined, task.next)
            if task.kind == "over":
                return SyncReport("over", task.next, "run.over", "all rounds of the run are done")
            return self._messages(task.next)
        if task.kind == "tuning":
            return _declined(Declined("task"), task.next)
        rebuilds = task.kind == "rebuilding"
        answer = self.answers.rebuild(task.content) if rebuilds else self.device.answer(task.content)
        if isinstance(answer, Declined):
            return _declined(answer, task.next)
        return self._reply(task, NOTHING if answer == notices.NOTHING else answer)

    def _task(self) -> ServiceTask | float:
        """The task of the moment, or the seconds to wait for one."""
        kept = self._kept()
        known = {"if-none-match": kept[0]} if kept is not None else {}
        answer = self.line.call("GET", "/v1/task", longest=longest_task(self.device.terms), headers=known)
        next_ = HOUR if answer.next is None else answer.next
        if answer.status == 204:
            return next_
        if answer.status == 304:
            require(kept is not None, "service.unreadable", "the service's answer cannot be read")
            assert kept is not None
            return ServiceTask(kept[1], kept[2], next_)
        kind, content = answer.headers.get(KIND, ""), answer.content
        try:
            signature = base64.b64decode(answer.headers.get(SIGNED, ""), validate=True)
        except (binascii.Error, ValueError):
            signature = b""
        sound = answer.status == 200 and kind in _KINDS
        require(sound, "service.unreadable", "the service's answer cannot be read")
        signed = is_signed(self.line.service, task_content(kind, content), signature)
        require(signed, "task.signature", "the task is not signed by the service of the invitation; it is refused")
        etag = answer.headers.get("etag", "")
        if _ETAG.fullmatch(etag) and (kept is None or kept[0] != etag):
            head = json.dumps([etag, kind]).encode()
            with self.store.transaction():
                self.store.set_fact(TASK, head + b"\n" + content)
        return ServiceTask(kind, content, next_)

    def _kept(self) -> tuple[str, str, bytes] | None:
        """(tag, kind, content) of the last task."""
        head, _, content = (self.store.fact(TASK) or b"").partition(b"\n")
        if not head:
            return None
        etag, kind = parse_json(head, Items(Text(), 2), f"{self.store.folder}: task")
        return etag, kind, content

    def _reply(self, task: ServiceTask, answer: bytes) -> SyncReport:
        name = task.digest + hashlib.sha256(answer).digest()
        if self.store.fact(CONFIRMED) == name:
            return SyncReport("nothing", task.next, "task.answered", "the service has the answer to this task")
        if not self.store.consent:
            return _declined(Declined("consent"), HOUR)
        try:
            said = self.line.call("POST", "/v1/reply", answer)
        except ServiceRefusal as error:
            if not error.code.startswith("reply."):
                raise
            self._confirmed(name)  # the same bytes again would be refused again
            wait = task.next if error.wait is None else error.wait
            return SyncReport("refused", wait, error.code, error.sentence)
        told = said.table().get("next") if said.content else None
        self._confirmed(name)
        next_ = float(told) if isinstance(told, int | float) and 0 <= told <= 86400 else said.next or task.next
        if answer == NOTHING:
            return SyncReport("nothing", next_, "rebuilding.nothing", "this device holds nothing for the rebuilding")
        return SyncReport("sent", next_, sent=len(answer))

    def _confirmed(self, name: bytes) -> None:
        with self.store.transaction():
            self.store.set_fact(CONFIRMED, name)

    def _messages(self, next_: float) -> SyncReport:
        """Answer what is in the mailbox, as far as it is of a secure sum."""
        longest = min(
            wire.LARGEST, (1 << 20) + 512 * self.device.terms.setting.clients + 16 * self.device.terms.parameters
        )
        answered = 0
        for _ in range(MOST_MESSAGES):
            said = self.line.call("GET", "/v1/mail", longest=longest)
            next_ = next_ if said.next is None else said.next
            if said.status == 204:
                break
            number = said.headers.get(MAIL, "")
            require(_MAIL.fullmatch(number), "service.unreadable", "the service's answer cannot be read")
            found = self.answers.sum_up(said.content)
            if isinstance(found, Declined) and found.code in ("waiting", "consent", "storage"):
                return _declined(found, next_)  # it may still be answered later
            try:
                self.line.call("POST", f"/v1/mail?id={number}", b"" if isinstance(found, Declined) else found)
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

    def leave(self, request: bytes) -> SyncReport:
        """Hand in a request to leave, and ask how far it is; where it is confirmed, all is erased."""
        if self.store.fact(leaving.HEARD) is None:
            try:
                self.line.call("POST", "/v1/leave", request)
            except ServiceRefusal as error:
                if error.code != "request.left":
                    raise
            with self.store.transaction():
                self.store.set_fact(leaving.HEARD, b"1")
        said = self.line.call("GET", "/v1/leave")
        found: Mapping[str, object] = said.table()
        if found.get("state") != "done":
            sentence = "the service has the request, and confirms it when the others' ranker is built again"
            return SyncReport("leaving", 60.0 if said.next is None else said.next, "leaving.heard", sentence)
        good = found.get("receipt") == receipt_of(request).decode()
        sentence = "the service did not confirm that this client leaves; nothing was erased; try again later"
        require(good, "leaving.not-confirmed", sentence)
        terms = self.device.terms
        return SyncReport("left", 0.0, erased=leaving.complete(self.store, terms, request, self.clock))


def _declined(declined: Declined, next_: float) -> SyncReport:
    return SyncReport("nothing", next_, f"device.{declined.code}", declined.sentence)

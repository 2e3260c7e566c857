"""One exchange of an enrolled device with its service: the task and its answer, messages of secure sums.

A device asks; nothing is held open. Each answer is stored before it leaves, and sent again until the service has confirmed
it. Whatever a service says, a device sends nothing but the answers that its terms name: a task must be signed by the key of
the invitation, the terms at enrolment must be those of the invitation, and all else is refused or declined.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace

from quorank.federation import wire
from quorank.federation.leavers.rebuilding import NOTHING
from quorank.files.documents import Items, Text, parse_json
from quorank.member.answering import DeviceAnswers
from quorank.member.membership import HOUR, SyncReport, hand_in
from quorank.member.private_store import PrivateStore
from quorank.protocol.http_client import ServedTask, ServiceClient, ServiceRefusal
from quorank.protocol.keys import task_content
from quorank.protocol.messages import Declined
from quorank.protocol.terms import Terms

MOST_MESSAGES = 12
"""Of a secure sum, in one exchange: it has five."""
TASK, CONFIRMED = "task", "confirmed"
"""Facts: the last task, and which answer the service has confirmed."""

_ETAG = re.compile(r'(?:W/)?"[!#-~]{1,100}"')
_HEAD = 1 << 16  # bytes of a task or message beside its numbers


def longest_task(terms: Terms) -> int:
    """Bytes that a task of this run takes at most."""
    private = sum(values.size for values in terms.client_mechanism.start().values())
    return int(_HEAD + 8 * (terms.parameters + private))


class Exchange:
    """What an enrolled device says and hears; consent is looked at again before anything is sent."""

    def __init__(self, line: ServiceClient, answers: DeviceAnswers) -> None:
        self.line, self.answers = line, answers
        self.device = answers.device
        self.store: PrivateStore = self.device.store

    def take_part(self) -> SyncReport:
        """Fetch the task of the moment and answer it."""
        task = self._task()
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
            return self._messages(task.next)
        if task.kind == "tuning":
            return _declined(Declined("task"), task.next)
        rebuilds = task.kind == "rebuilding"
        answer = self.answers.rebuild(task.content) if rebuilds else self.device.answer(task.content)
        if isinstance(answer, Declined):
            return _declined(answer, task.next)
        name = hashlib.sha256(task_content(task.kind, task.content)).digest()
        return self._reply(name, answer, task.next)

    def _task(self) -> ServedTask:
        """The task of the moment, the stored one where it has not changed; without content where there is none."""
        kept = self._kept()
        served = self.line.task(kept[0] if kept else "", longest_task(self.device.terms))
        if served.content is None:
            same = kept is not None and served.etag == kept[0]
            return served if kept is None or not same else replace(served, kind=kept[1], content=kept[2])
        if _ETAG.fullmatch(served.etag):
            head = json.dumps([served.etag, served.kind]).encode()
            with self.store.transaction():
                self.store.set_fact(TASK, head + b"\n" + served.content)
        return served

    def _kept(self) -> tuple[str, str, bytes] | None:
        """(tag, kind, content) of the last task."""
        head, _, content = (self.store.fact(TASK) or b"").partition(b"\n")
        if not head:
            return None
        etag, kind = parse_json(head, Items(Text(), 2), f"{self.store.folder}: task")
        return etag, kind, content

    def _reply(self, task: bytes, answer: bytes, next_: float) -> SyncReport:
        """Send an answer, unless the service has it; `task` is the digest of what it answers."""
        name = task + hashlib.sha256(answer).digest()
        if self.store.fact(CONFIRMED) == name:
            return SyncReport("nothing", next_, "task.answered", "the service has the answer to this task")
        if not self.store.consent:
            return _declined(Declined("consent"), HOUR)
        report, settled = hand_in(self.line, answer, next_)
        if settled:
            with self.store.transaction():
                self.store.set_fact(CONFIRMED, name)
        if answer == NOTHING and report.outcome == "sent":
            sentence = "this device holds nothing for the rebuilding"
            return SyncReport("nothing", report.next, "rebuilding.nothing", sentence)
        return report

    def _messages(self, next_: float) -> SyncReport:
        """Answer what is in the mailbox, as far as it is of a secure sum."""
        longest = min(
            wire.LARGEST, (1 << 20) + 512 * self.device.terms.setting.clients + 16 * self.device.terms.parameters
        )
        answered = 0
        for _ in range(MOST_MESSAGES):
            mail = self.line.mail(longest)
            next_ = mail.next
            if mail.content is None:
                break
            found = self.answers.sum_up(mail.content)
            if isinstance(found, Declined) and found.code in ("waiting", "consent", "storage"):
                return _declined(found, next_)  # it may still be answered later
            try:
                self.line.answer(mail.id, b"" if isinstance(found, Declined) else found)
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

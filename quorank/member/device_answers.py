"""Answers of a device to every kind of message: tasks of its run, phases of secure sums, rounds of a rebuilding.

In a secure sum the update leaves as masked integers, and only where enough others are summed with it. The device takes part
in a round once: that it has begun is on disk before its keys leave, and its interactions are used before its masked input
leaves. A device that is killed in between has left the round and never gives a second input, which would be one more
release than the ledger's noise covers.

In a rebuilding the device learns again from interactions that it still holds, after another client has left. A rebuilding
is a run of its own (`leavers.rebuilding`) from the first ranker. Each of its rounds stands for Δt rounds: the device learns
from the next Δt batches of B used interactions, cyclically, and sends 1/Δt of the way, which the coordinator scales. A
device without any says so and is left out, and so does one that has given all releases of its terms: each answer is one
more release of interactions that were released before, and counts like those of rounds. Where
the device adds the noise itself it was calibrated for one release, so such a device declines, and the ranker restarts.
"""

from __future__ import annotations

import logging
from functools import cached_property

from quorank.errors import BadInput
from quorank.federation.reply import Task, decode_task
from quorank.federation.unlearning import NOTHING, is_rebuilding, rebuilding_interval
from quorank.kernels.arrays import Doubles, Uint32s
from quorank.member.client_privacy import check_task, masked_vector
from quorank.member.device import Device
from quorank.member.known_members import KnownMembers, Page
from quorank.member.membership import IDENTITY
from quorank.privacy.mechanisms.integer_sums import IntegerSums, secure_sums
from quorank.privacy.streams import SECRET_BYTES
from quorank.protocol.http_client import ServiceRefusal
from quorank.protocol.keys import MemberKey
from quorank.protocol.member_list import Head
from quorank.protocol.messages import Declined, Refusal
from quorank.protocol.secure_round import Opening, SecureMember, parse_opening, task_for_all

_SECURE = b"QSEC"
_BEGUN = "secure round"


class DeviceAnswers:
    """Answers of one device, which takes part in secure sums of `members`."""

    def __init__(self, device: Device, members: KnownMembers) -> None:
        self.device, self.members = device, members
        self._member: SecureMember | None = None  # in the secure sum of `_task`
        self._task = b""

    def answer_secure(self, content: bytes, task: bytes) -> bytes | Declined:
        """Return the answer to a phase of a secure sum of the signed `task`, and to nothing else."""
        if not content.startswith(_SECURE):
            return Declined("malformed")
        if not self.device.terms.privacy.hides_single_updates:
            return Declined("secure")
        return self.device.guarded(lambda: self._answer_phase(content, task))

    def answer_rebuilding(self, content: bytes) -> bytes | Declined:
        """Return the answer to a task of a rebuilding, and to nothing else."""
        if not is_rebuilding(content, self.device.terms.run):
            return Declined("run")
        return self.device.guarded(lambda: self._replay(content))

    def _replay(self, content: bytes) -> bytes:
        device, store, terms = self.device, self.device.store, self.device.terms
        with store.transaction():
            if not store.consent:
                raise Refusal("consent")
            if not terms.client_mechanism.can_release_again:
                raise Refusal("task")
            task = decode_task(content)
            check_task(terms, task)
            stored = device.stored_reply(task)
            if stored is not None:
                return stored
            store.drop_fact("carried")  # momentum learned at rankers of the client that has left
            if self._batches() == 0 or store.released(terms.run) >= terms.releases:
                return NOTHING
            reply = device.reply(task, self._replayed_update(task), terms.client_mechanism)
            device.log_release(task, reply, len(reply), {"rebuilding": True})
        return reply

    def _replayed_update(self, task: Task) -> Doubles:
        """Return the mean update per batch of this round, its shared part."""
        device, terms = self.device, self.device.terms
        interval, held = rebuilding_interval(task.run, terms.run) or 1, self._batches()
        count, online = min(interval, held), device.learner(task.theta, task.round)
        start = online.parameters
        for batch in range(task.round * interval, task.round * interval + count):
            first = batch % held * terms.interactions
            for one in device.store.used_interactions(terms.run, first, terms.interactions):
                online.learn(one.shown, one.clicks)
        update = (online.parameters - start) / count
        return update if terms.split is None else update * terms.split.send

    def _batches(self) -> int:
        return self.device.store.used(self.device.terms.run) // self.device.terms.interactions

    # ------------------------------------------------------------ secure sums

    @cached_property
    def mechanism(self) -> IntegerSums:
        return secure_sums(self.device.terms.client_mechanism)

    @cached_property
    def key(self) -> MemberKey:
        """The member's key; a device without a membership makes one at its first use."""
        store = self.device.store
        secret = store.fact(IDENTITY)
        if secret is None:
            secret = MemberKey.create(self.device.entropy).secret
            store.set_fact(IDENTITY, secret)
        return MemberKey(secret)

    def _answer_phase(self, content: bytes, task: bytes) -> bytes:
        try:
            opening = parse_opening(content)
        except BadInput as error:
            raise Refusal("version" if error.code == "secure-sum.version" else "malformed") from None
        if opening is not None and opening.task != self._task:
            if task_for_all(decode_task(opening.task)) != task:
                raise Refusal("task")
            self._begin(opening)
        if self._member is None:
            raise Refusal("secure")
        if not self.device.store.consent:
            self._member = None
            raise Refusal("consent")
        try:
            return self._member.answer(content)
        except BadInput:
            self._member = None
            raise Refusal("unmasking") from None

    def update_members(self, content: bytes, page: Page) -> None:
        """Fetch the entries of the list of members that a letter needs; one that contradicts the known list is not stored.

        Raises:
            ServiceRefusal: The service refuses, or is unreachable.
        """
        try:
            opening = parse_opening(content)
            if opening is not None:
                self.members.update(Head.from_bytes(opening.members), page)
        except ServiceRefusal:
            raise
        except BadInput as error:
            logging.getLogger(__name__).warning("%s: %s", error.code, error.sentence)

    def _begin(self, opening: Opening) -> None:
        """Take part in a new round, unless this device has been in it before."""
        store, mechanism, (occasion, task, head) = self.device.store, self.mechanism, opening
        self._member, self._task = None, b""
        key = self.key
        try:
            members = self.members.at(Head.from_bytes(head))
        except BadInput:
            raise Refusal("members") from None
        with self.device.committing():
            self.device.prepare(task)
            begun = store.fact(_BEGUN)
            if begun is not None and int(begun) > occasion.round:
                raise Refusal("old")
            store.set_fact(_BEGUN, str(occasion.round + 1).encode())
        self._task = task
        self._member = SecureMember(
            self.device.terms.client, occasion, self._vector, key, mechanism.signed_by,
            members=members, agreed=mechanism.plan, entropy=self.device.entropy,
        )  # fmt: skip

    def _vector(self) -> Uint32s:
        """Return the integers to mask; from here on the interactions are used."""
        device, terms = self.device, self.device.terms
        with device.store.transaction():
            _, prepared = device.prepare(self._task)
            if prepared is None:
                raise Refusal("repeated")
            secret = self.device.entropy(SECRET_BYTES)
            update, round_ = device.sent_part(prepared), prepared.task.round
            vector = masked_vector(self.mechanism, update, round_, terms.client, secret)
            device.note(prepared, None, vector.nbytes)
        return vector

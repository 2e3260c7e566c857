"""A device in secure sums: its update leaves as whole numbers under masks, and only where enough others are summed with it.

The device takes part in a round once. That it has begun is on disk before its keys leave, and its interactions count as
used before its masked input leaves: a device that is killed in between has left the round and never gives a second input
for it, since each input is one more release for the ledger, whose noise covers one.
"""

from __future__ import annotations

import os

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Uint32s
from quorank.member.client_privacy import Entropy, masked_vector
from quorank.member.device import Device
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.privacy.secure_sum.masks import Occasion
from quorank.privacy.streams import SECRET_BYTES
from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import Declined, Refusal
from quorank.protocol.secure_identity import Pinned
from quorank.protocol.secure_round import SecureMember, invitation

_BEGUN = "secure round"


class SecureDevice:
    """Answers the phases of secure rounds for a device."""

    def __init__(self, device: Device, pinned: Pinned | None = None, entropy: Entropy = os.urandom) -> None:
        mechanism = device.terms.client_mechanism
        require(isinstance(mechanism, IntegerSums), "secure-sum.none", "this run's updates do not leave in secure sums")
        assert isinstance(mechanism, IntegerSums)
        self.device, self.mechanism, self.pinned, self._entropy = device, mechanism, pinned, entropy
        self._member: SecureMember | None = None
        self._task = b""

    @property
    def identity(self) -> MemberKey:
        """This client's long-term name, made at the first use and kept in the private file."""
        store = self.device.store
        secret = store.fact("identity")
        if secret is None:
            secret = MemberKey.create(self._entropy).secret
            with store.transaction():
                store.set_fact("identity", secret)
        return MemberKey(secret)

    def answer(self, content: bytes) -> bytes | Declined:
        """The reply to one phase's task, or why there is none; it never raises."""
        return self.device.guarded(lambda: self._answer(content))

    def _answer(self, content: bytes) -> bytes:
        try:
            opening = invitation(content)
        except BadInput as error:
            raise Refusal("version" if error.code == "secure-sum.version" else "malformed") from None
        if opening is not None and opening[1] != self._task:
            self._begin(*opening)
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

    def _begin(self, occasion: Occasion, task: bytes) -> None:
        """Take part in a new round, unless this device has been in it before."""
        store, least = self.device.store, self.mechanism.signed_by
        self._member, self._task = None, b""
        identity = self.identity
        with self.device.committing():
            self.device.prepare(task)
            begun = store.fact(_BEGUN)
            if begun is not None and int(begun) > occasion.round:
                raise Refusal("old")
            store.set_fact(_BEGUN, str(occasion.round + 1).encode())
        self._task = task
        self._member = SecureMember(
            self.device.terms.client,
            occasion,
            self._vector,
            identity,
            least,
            pinned=self.pinned,
            agreed=self.mechanism.plan,
            entropy=self._entropy,
        )

    def _vector(self) -> Uint32s:
        """The device's numbers; from here on its interactions are used."""
        device, terms = self.device, self.device.terms
        with device.store.transaction():
            _, prepared = device.prepare(self._task)
            if prepared is None:
                raise Refusal("repeated")
            secret = self._entropy(SECRET_BYTES)
            words = masked_vector(self.mechanism, device.sent_part(prepared), prepared.task.round, terms.client, secret)
            device.note(prepared, None, words.nbytes)
        return words

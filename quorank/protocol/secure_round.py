"""Secure sum over the network: the phases of Bonawitz et al. 2017, fig. 4, as tasks and replies of bytes.

The coordinator's side (`SecureRound`) opens a phase, sends its tasks and accepts replies until its driver closes the phase;
clients without a reply are excluded. The client's side (`SecureMember`) answers each phase once, repeats the same bytes for
a repeated task, and leaves the round at its first refusal. Its state is in memory only: a client that restarts has left the
round, which the protocol tolerates.

Phases: keys, shares, masked inputs, agreement on the survivors, unmasking. A message is `QSEC`, a version, the phase, and
a bundle of parts (`frames`). With its keys a client sends the identity that signed them; devices know the others'
identities from the list of members (`member_list`), whose head is part of the occasion.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

from quorank.errors import BadInput, require
from quorank.federation.coordinator import Verdict
from quorank.federation.reply import LARGEST_MESSAGE, Task, decode_task, encode_task
from quorank.kernels.arrays import Uint32s
from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import Neighbourhood, Roster
from quorank.privacy.secure_sum.masks import Occasion
from quorank.privacy.secure_sum.messages import (
    KeyList,
    MaskedInput,
    SecureSumMessage,
    ShareDelivery,
    ShareKeys,
    UnmaskReply,
    UnmaskRequest,
)
from quorank.privacy.secure_sum.server import RoundFailed, SecureServer
from quorank.protocol import frames
from quorank.protocol.keys import PUBLIC, SIGNATURE, MemberKey
from quorank.protocol.secure_identity import (
    SURVIVORS,
    GuardedClient,
    Pinned,
    SignedKeys,
    is_signed_by,
    listed_bytes,
    pack_clients,
    unpack_clients,
)

M = TypeVar("M", bound=SecureSumMessage)

KEYS, SHARES, MASKED, AGREEMENT, UNMASKING, OVER = range(1, 7)
PHASES = ("", "keys", "shares", "masked inputs", "agreement", "unmasking", "end")
VERSION = 4
_HEAD = struct.Struct("<4sBB")
SESSION = 16  # random bytes that the coordinator draws for each sum
_SIGNED = struct.Struct(f"<I{SIGNATURE}s")
_MALFORMED = "a message of a secure sum is malformed"


class RoundMembers(Protocol):
    """Members that a client knows, and may sum with."""

    def identities(self, mine: int, own: bytes, least: int, clients: Sequence[int]) -> dict[int, bytes]:
        """Return the public keys of a roster's clients; reject a roster with others."""

    def check_known(self, mine: int, clients: Sequence[int]) -> None:
        """Reject survivors of which the client knows too few."""


def envelope(phase: int, parts: Sequence[bytes]) -> bytes:
    """Encode a message of one phase."""
    return _HEAD.pack(b"QSEC", VERSION, phase) + frames.pack(parts)


def open_envelope(content: bytes) -> tuple[int, list[bytes]]:
    """Return (phase, parts) of a message; errors quote nothing of it."""
    require(_HEAD.size <= len(content) <= LARGEST_MESSAGE, "secure-sum.malformed", _MALFORMED)
    magic, version, phase = _HEAD.unpack_from(content)
    require(magic == b"QSEC" and KEYS <= phase < OVER, "secure-sum.malformed", _MALFORMED)
    sentence = "a message of a secure sum is of another version; install the same on both sides"
    require(version == VERSION, "secure-sum.version", sentence)
    return phase, frames.unpack(content[_HEAD.size :])


def _named(client: int, message: M) -> M:
    sentence = "the reply names another client than the one that sent it; drop it"
    require(message.client == client, "secure-sum.other-client", sentence)
    return message


def task_for_all(task: Task) -> bytes:
    """Encode a task without the clients that a letter names: the bytes that the service publishes."""
    return encode_task(replace(task, clients=()))


def occasion_of(session: bytes, task: Task, members: bytes = b"") -> Occasion:
    """Return the occasion of a sum, bound to its task and to the head of the list of members.

    Keys, masks and signatures belong to one occasion. Members that were given different tasks, such as another θ, or
    different lists therefore reject each other's keys, and no sum of their updates is opened.
    """
    return Occasion(session + hashlib.sha256(task_for_all(task) + members).digest(), task.round)


class SecureRound:
    """The coordinator's side of one round; `least` is the agreed minimum number of clients in a sum.

    `tasks` returns the messages of a phase, `receive` judges a reply without raising, `advance` closes the phase and raises
    RoundFailed where too few clients are left. At the end `total` is the sum modulo 2^32 over `server.survivors`. Clients
    that the others would reject are excluded: all signatures are checked against the identity sent with a client's keys.
    """

    def __init__(
        self,
        task: Task,
        session: bytes,
        cohort: Iterable[int],
        least: int,
        *,
        known: Pinned | None = None,  # earlier identities of clients
        members: bytes = b"",  # head of the list of members
        neighbourhood: Neighbourhood | None = None,
    ) -> None:
        self.server = SecureServer(occasion_of(session, task, members), len(task.theta), neighbourhood)
        self.least, self.phase = least, KEYS
        self._tasks = {
            client: envelope(KEYS, [session, encode_task(replace(task, clients=(client,))), members])
            for client in cohort
        }
        self.asked = frozenset(self._tasks)  # the clients of this sum
        self._replied: set[int] = set()
        self._known, self.identities = dict(known or {}), dict[int, bytes]()
        self._signed: dict[int, bytes] = {}  # the signed keys of each client
        self._listed = b""  # the list of survivors that they sign
        self._requests: dict[int, UnmaskRequest] = {}
        self._signatures: dict[int, bytes] = {}
        self.total: Uint32s | None = None

    @property
    def done(self) -> bool:
        return self.phase == OVER

    @property
    def waiting(self) -> frozenset[int]:
        return frozenset(self._tasks) - self._replied

    @property
    def has_enough_replies(self) -> bool:
        """Return whether the open phase has enough replies for a sum."""
        return len(self._replied) >= self.least

    def tasks(self) -> dict[int, bytes]:
        """Return the tasks of clients without a reply to the open phase."""
        return {client: self._tasks[client] for client in sorted(self.waiting)}

    def receive(self, client: int, content: bytes) -> Verdict:
        """Judge the reply of an authenticated client; a false or late reply changes nothing."""
        try:
            phase, parts = open_envelope(content)
            expected = f"the reply is not of the phase of {PHASES[self.phase]}; drop it"
            require(phase == self.phase, "secure-sum.phase", expected)
            sentence = "this client was asked nothing in this phase; drop its reply"
            require(client in self._tasks, "secure-sum.not-asked", sentence)
            sentence = "this client has replied already; drop its reply"
            require(client not in self._replied, "secure-sum.repeated", sentence)
            require(len(parts) == (2 if phase == KEYS else 1), "secure-sum.malformed", _MALFORMED)
            self._take(client, *parts)
        except BadInput as error:
            return Verdict(False, client, error.code, str(error))
        self._replied.add(client)
        return Verdict(True, client)

    def _take(self, client: int, raw: bytes, identity: bytes = b"") -> None:
        server = self.server
        if self.phase == AGREEMENT:
            signed = is_signed_by(self.identities, SURVIVORS, server.occasion, client, self._listed, raw)
            sentence = f"client {client} did not sign the list of survivors; drop its signature"
            require(signed, "secure-sum.agreement", sentence)
            self._signatures[client] = raw
        elif self.phase == KEYS:
            keys = SignedKeys.from_bytes(raw)
            self._check_identity(client, keys, identity)
            server.receive_keys(keys.keys)
            self.identities[client], self._signed[client] = identity, raw
        elif self.phase == SHARES:
            server.receive_shares(_named(client, ShareKeys.from_bytes(raw)))
        elif self.phase == MASKED:
            server.receive_masked(_named(client, MaskedInput.from_bytes(raw)))
        else:
            server.receive_reply(_named(client, UnmaskReply.from_bytes(raw)))

    def _check_identity(self, client: int, signed: SignedKeys, identity: bytes) -> None:
        require(len(identity) == PUBLIC, "secure-sum.malformed", _MALFORMED)
        _named(client, signed.keys)
        sentence = f"client {client} has another identity than before; leave it out, or invite it again"
        require(self._known.get(client, identity) == identity, "secure-sum.identity", sentence)
        sentence = f"the keys of client {client} are not signed by it; leave it out"
        require(signed.is_genuine({client: identity}, self.server.occasion), "secure-sum.unsigned", sentence)

    def advance(self) -> None:
        """Close the phase and open the next one."""
        try:
            tasks = self._next_parts()
        except RoundFailed:
            self.phase, self._tasks = OVER, {}
            raise
        self.phase += 1
        self._tasks = {client: envelope(self.phase, parts) for client, parts in tasks.items()}
        self._replied = set()

    def _next_parts(self) -> Mapping[int, Sequence[bytes]]:
        """Close the phase; return the parts of each client's next task."""
        server = self.server
        if self.phase == KEYS:
            return {
                client: [keys.to_bytes(), *(self._signed[other] for other, _ in keys.neighbours)]
                for client, keys in server.key_lists().items()
            }
        if self.phase == SHARES:
            return {client: [delivery.to_bytes()] for client, delivery in server.deliveries().items()}
        if self.phase == MASKED:
            survivors = server.survivors
            server.require_enough(len(survivors), "clients sent masked inputs", self.least)
            self._requests = server.unmask_requests()
            assert server.roster is not None
            self._listed = listed_bytes(server.roster, server.sharers, survivors)
            return {client: [pack_clients(survivors)] for client in survivors}
        if self.phase == AGREEMENT:
            server.require_enough(len(self._signatures), "clients signed the list of survivors", self.least)
            signatures = [_SIGNED.pack(*pair) for pair in self._signatures.items()]
            return {client: [self._requests[client].to_bytes(), *signatures] for client in self._signatures}
        self.total = server.total()
        return {}


class SecureRounds:
    """The coordinator's side of the sums of a cohort's groups, with the interface of `SecureRound`.

    A group with too few clients is excluded and the others continue; `advance` raises RoundFailed where none is left.
    """

    def __init__(self, rounds: Sequence[SecureRound]) -> None:
        self.rounds = list(rounds)
        self.failed: list[SecureRound] = []

    @property
    def _going(self) -> list[SecureRound]:
        return [one for one in self.rounds if one not in self.failed]

    @property
    def done(self) -> bool:
        return all(one.done for one in self._going)

    @property
    def phase(self) -> int:
        return max((one.phase for one in self._going), default=OVER)

    @property
    def waiting(self) -> frozenset[int]:
        return frozenset[int]().union(*(one.waiting for one in self._going))

    @property
    def has_enough_replies(self) -> bool:
        return all(one.has_enough_replies for one in self._going)

    @property
    def liars(self) -> dict[int, str]:
        """Clients that sent or returned false shares, with the error code."""
        return {client: code for one in self.rounds for client, code in one.server.liars.items()}

    @property
    def survivors(self) -> frozenset[int]:
        """Clients of the opened sums."""
        return frozenset(client for one in self.rounds if one.total is not None for client in one.server.survivors)

    def tasks(self) -> dict[int, bytes]:
        """Return the tasks of clients without a reply to the open phase."""
        return dict(sorted(task for one in self._going for task in one.tasks().items()))

    def receive(self, client: int, content: bytes) -> Verdict:
        """Judge the reply of an authenticated client to its group's round."""
        for one in self._going:
            if client in one.asked:
                return one.receive(client, content)
        return Verdict(False, client, "secure-sum.not-asked", "this client was asked nothing; drop its reply")

    def advance(self) -> None:
        """Close the phase of every group and open the next one."""
        for one in self._going:
            try:
                one.advance()
            except RoundFailed as error:
                self.failed.append(one)
                last = error
        if not self._going:
            raise last


class SecureMember:
    """Client's side of one round; `vector` is called once, when the input is masked."""

    def __init__(
        self,
        client: int,
        occasion: Occasion,
        vector: Callable[[], Uint32s],
        identity: MemberKey,
        least: int,
        *,
        members: RoundMembers | None = None,  # without them no signature is checked
        agreed: Neighbourhood | None = None,  # agreed neighbourhood
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        inner = SecureClient(client, occasion, agreed, entropy)
        self.client: GuardedClient | None = GuardedClient(inner, identity, least)
        self.phase = KEYS
        self._vector, self._members = vector, members
        self._answers: dict[bytes, bytes] = {}  # by digest of the task: a repeated task gets the same bytes

    def answer(self, content: bytes) -> bytes:
        """Return the reply to a task; after a refusal (BadInput) there is no further answer in this round."""
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if digest in self._answers:
            return self._answers[digest]
        phase, parts = open_envelope(content)
        require(self.client is not None, "secure-sum.left", "this client has left the round")
        assert self.client is not None
        sentence = f"the task is not of the phase of {PHASES[self.phase]}; drop it"
        require(phase == self.phase, "secure-sum.phase", sentence)
        try:
            reply = envelope(phase, self._step(self.client, phase, parts))
        except BaseException:
            self.client = None  # and all secrets with it
            raise
        self.phase += 1
        if self.phase == OVER:
            self.client = None
        self._answers[digest] = reply
        return reply

    def _step(self, client: GuardedClient, phase: int, parts: list[bytes]) -> list[bytes]:
        require(parts, "secure-sum.malformed", _MALFORMED)
        first, *rest = parts
        if phase == KEYS:
            return [client.advertise().to_bytes(), client.identity.public]
        if phase == SHARES:
            keys = KeyList.from_bytes(first)
            if self._members is not None:
                own, clients = client.identity.public, Roster(keys.roster).clients
                client.pinned = self._members.identities(client.inner.client, own, client.least, clients)
            return [client.share(keys, [SignedKeys.from_bytes(raw) for raw in rest]).to_bytes()]
        if phase == MASKED:
            return [client.inner.mask(ShareDelivery.from_bytes(first), self._vector()).to_bytes()]
        if phase == AGREEMENT:
            survivors = unpack_clients(first)
            if self._members is not None:
                self._members.check_known(client.inner.client, survivors)
            return [client.agree(survivors)]
        require(all(len(raw) == _SIGNED.size for raw in rest), "secure-sum.malformed", _MALFORMED)
        signatures = dict(_SIGNED.unpack(raw) for raw in rest)
        return [client.unmask(UnmaskRequest.from_bytes(first), signatures).to_bytes()]


class Opening(NamedTuple):
    """Message that opens a secure round."""

    occasion: Occasion
    task: bytes
    members: bytes  # head of the list of members; empty where clients are simulated


def parse_opening(content: bytes) -> Opening | None:
    """Return the message that opens a secure round; None for other phases."""
    phase, parts = open_envelope(content)
    if phase != KEYS:
        return None
    require(len(parts) == 3 and len(parts[0]) == SESSION, "secure-sum.malformed", _MALFORMED)
    session, task, members = parts
    return Opening(occasion_of(session, decode_task(task), members), task, members)

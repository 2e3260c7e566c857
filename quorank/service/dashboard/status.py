"""Status of a federation as one plain document: what its page, its metrics and `status` are made of.

One shape for devices, parties, tuned heuristics and simulations. Whoever holds the coordinator writes it (`Status.text`),
every other process reads it back (`Status.read`) and believes nothing that does not fit. Sizes are bounded whatever the
number of members and rounds: `LISTED` members, `KEPT_ROUNDS` points of the history, `KEPT_EVENTS` events. Clients are
numbers in it, but for the names that the operator gave them.

Durations are of a monotonic clock; `at` alone is of the wall's, to say when the document was true.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from quorank.errors import require
from quorank.files.documents import (
    ANYTHING,
    DocumentShape,
    Each,
    Flag,
    Items,
    Maybe,
    Number,
    Table,
    Text,
    Whole,
    parse_json,
)

FORMAT, VERSION = "quorank status", 1
LISTED = 200
"""Members that are listed one by one; of all others there are numbers only."""
KEPT_EVENTS = 200
KEPT_ROUNDS = 400
"""Points of the history; where rounds are more, a point is of several that follow each other."""
SEEN_SECONDS = 900.0
"""A member counts as seen lately for so long after its last request."""
LATEST_ROUNDS = 20
"""The time left is estimated from so many of the newest rounds."""
TELLING = 0.05
"""Quality says something where its standard error is no more than this."""
_LARGEST = 1 << 22  # bytes of a document
_LONGEST = 2000  # characters of a text in it

Kind = Literal["devices", "parties", "tuning", "simulation"]
State = Literal["new", "starting", "running", "rebuilding", "done", "stopped"]
MemberState = Literal["not invited", "invited", "present", "away", "left", "revoked"]


@dataclass(frozen=True)
class MemberCounts:
    """How many members there are, by what is known of them."""

    planned: int | None = None  # that the run is planned for; None where whoever comes takes part
    invited: int = 0  # with an invitation that nobody has used yet
    enrolled: int = 0  # who may take part: neither left nor revoked
    seen: int = 0  # of them, who asked for something within SEEN_SECONDS
    waiting: int | None = 0  # of the open round, without a reply; None where that is withheld
    late: int | None = 0  # whose reply came, or is still out, after the round's deadline
    left: int = 0
    revoked: int = 0


@dataclass(frozen=True)
class MemberStatus:
    """One member of those that are listed."""

    client: int
    name: str | None
    state: MemberState
    waiting: bool = False  # the open round, or the session, waits for its answer
    late: bool = False
    seen_seconds: float | None = None  # since its last request
    version: str | None = None  # of its program, if it told
    phase: str | None = None  # of a party: what it does now
    identity: str | None = None  # the public key in hexadecimal, to be compared by voice


@dataclass(frozen=True)
class Quality:
    """How good the ranking is, with its uncertainty; `value` is None where too few reported to say."""

    measure: str  # "nDCG@10 by clicks"
    value: float | None = None  # of the newest round
    error: float | None = None  # its standard error; None of a figure without noise
    round: int | None = None
    devices: int | None = None  # that it is of
    smoothed: float | None = None  # over rounds, older ones weighing less
    smoothed_error: float | None = None
    least_devices: int = 0  # without so many reports no figure is shown

    @property
    def best(self) -> tuple[float, float | None] | None:
        """The figure to show with its standard error: the smoothed one where there is one."""
        if self.smoothed is not None:
            return self.smoothed, self.smoothed_error
        return None if self.value is None else (self.value, self.error)

    @property
    def telling(self) -> bool:
        """Whether the figure says something: there is one, and its noise does not drown it."""
        return self.best is not None and (self.best[1] is None or self.best[1] <= TELLING)


@dataclass(frozen=True)
class RoundFigures:
    """What a round that is over looked like, or the mean of `rounds` that follow each other."""

    round: int  # the last one, from 1
    seconds: float | None = None
    replies: float | None = None
    quality: float | None = None
    error: float | None = None  # standard error of the quality
    epsilon: float | None = None  # spent after it
    rounds: int = 1


@dataclass(frozen=True)
class Event:
    """A line of the log."""

    time: float
    event: str  # one of `observe.EVENTS`
    fields: dict[str, float | str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """Something that an operator must look at; with `fatal` the service cannot do its work now."""

    code: str  # disk.full, certificate.expires, nobody.seen, identity.copied, restore.behind, rebuilding.refused
    sentence: str
    fatal: bool = False


@dataclass(frozen=True)
class WeightStatus:
    """A weight of a tuned heuristic, with the bounds that hold whatever is learned."""

    name: str
    value: float
    shipped: float
    lower: float
    upper: float
    before: float | None = None  # in the version before


@dataclass(frozen=True)
class Versions:
    """Versions of all who talk to each other; those of members are counted."""

    service: str = ""
    protocol: int = 1
    members: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """How a federation stands at one moment."""

    kind: Kind
    state: State
    run: str
    at: float  # seconds since 1970
    address: str | None = None  # under which members reach it
    process: int | None = None
    uptime_seconds: float | None = None
    versions: Versions = field(default_factory=Versions)
    rehearsal: bool = False  # keys and noise follow from a seed: nothing is secret
    phase: str | None = None  # of a group's session
    # rounds: of a tuning its versions, of a group the turns of its training
    rounds: int = 0  # done
    rounds_planned: int | None = None  # None where it goes on until it is stopped
    open_seconds: float | None = None  # since the open round began
    deadline_seconds: float | None = None  # until the open round ends with what it has
    seconds_left: float | None = None  # of the run, estimated
    last_round_seconds: float | None = None
    cohort: int | None = None  # asked in the open round and able to answer, as planned where that is withheld; or K
    needed: int | None = None  # replies without which the open round does not end
    replies: int | None = None  # of the open round, so far
    accepted: int | None = 0  # replies of all rounds
    refused: dict[str, int] = field(default_factory=dict)  # by code
    withheld: str | None = None  # why numbers of a round are not told
    sent_bytes: int | None = None
    received_bytes: int | None = None
    traffic: dict[str, dict[str, int]] = field(default_factory=dict)  # of a group: envelopes and bytes by kind
    checkpoint_age_seconds: float | None = None
    checkpoints_failed: int = 0
    counts: MemberCounts = field(default_factory=MemberCounts)
    members: tuple[MemberStatus, ...] = ()  # no more than LISTED
    quality: Quality | None = None
    quality_note: str | None = None
    epsilon_spent: float | None = None  # by all that was released, reports and rebuildings included
    epsilon_planned: float | None = None
    epsilon_delta: float | None = None
    epsilon_unit: str | None = None
    epsilon_horizon: str | None = None
    epsilon_method: str | None = None
    report_epsilon: float | None = None  # of one report on the quality
    rebuilding_rounds: int = 0  # whose sums were made, those of given up rebuildings too
    rebuilding_note: str | None = None
    weights: tuple[WeightStatus, ...] = ()  # of a tuning: version `rounds`
    arms: dict[str, int] = field(default_factory=dict)  # of a tuning: members by arm
    history: tuple[RoundFigures, ...] = ()
    events: tuple[Event, ...] = ()  # the newest first
    problems: tuple[Problem, ...] = ()

    def table(self) -> dict[str, Any]:
        """The document as plain values."""
        return {"format": FORMAT, "version": VERSION} | asdict(self)

    def text(self) -> str:
        """The document as JSON."""
        return json.dumps(_plain(self.bounded().table()), allow_nan=False)

    def bounded(self) -> Status:
        """The same document with no more members, rounds and events than it may have."""
        return replace(
            self, members=self.members[:LISTED], history=thinned(self.history), events=self.events[:KEPT_EVENTS]
        )

    @classmethod
    def read(cls, content: bytes | str, where: str = "status") -> Self:
        """Read a document that `text` made; anything else is refused."""
        code, shape = "status.malformed", _shape(Status)
        require(len(content) <= _LARGEST, code, "is too long for a status", where)
        head: dict[str, DocumentShape] = {"format": Text((FORMAT,)), "version": Whole(VERSION, VERSION)}
        table = parse_json(content, Table(head | shape.keys, shape.optional, closed=True), where, code=code)
        return _built(cls, {key: value for key, value in table.items() if key not in head})  # type: ignore[no-any-return]

    @property
    def well(self) -> bool:
        """Whether nothing keeps the service from doing its work."""
        return not any(problem.fatal for problem in self.problems)


def member_state(*, left: bool, revoked: bool, enrolled: bool, seen_seconds: float | None) -> MemberState:
    """The state of a member that has left, was revoked, has enrolled or not, and was seen so long ago."""
    if left:
        return "left"
    if revoked:
        return "revoked"
    if not enrolled:
        return "invited"
    return "present" if seen_seconds is not None and seen_seconds <= SEEN_SECONDS else "away"


def shown_state(told: State, process: int | None) -> State:
    """The state to show where this process runs, or none, and what was last told is `told`."""
    if process is None:
        return told if told in ("new", "done") else "stopped"
    return "starting" if told in ("new", "stopped") else told


_PUBLIC = {
    "nobody.seen": "no member was seen lately",
    "identity.copied": "identities seem to run on two machines; the operator's status says which",
    "restore.behind": "no member of a restored service has answered; the operator's status says why",
    "rebuilding.refused": "a rebuilding was refused; the operator's status says why",
}
"""What everybody is told of problems whose sentences name members or ε."""


def public_problems(problems: Iterable[Problem]) -> dict[str, Any]:
    """Codes and sentences for everybody, with nothing about members, and whether the service can do its work."""
    found = list(problems)
    told = [{"code": one.code, "sentence": _PUBLIC.get(one.code, one.sentence)} for one in found]
    return {"ok": not any(one.fatal for one in found), "problems": told}


LEAST_FREE_BYTES = 64 << 20
"""With less room than this the disk counts as full."""
RENEW_DAYS = 30.0
UNSEEN_SECONDS = 1800.0


def problems_of(
    *,
    free_bytes: int | None = None,
    writing_fails: bool = False,
    certificate_days: float | None = None,
    unseen_seconds: float | None = None,
    quiet_seconds: float = UNSEEN_SECONDS,
    enrolled: int = 0,
    copied: Collection[int] = (),
    unanswered: int = 0,
    rebuilding_refused: float | None = None,
    budget: float | None = None,
) -> tuple[Problem, ...]:
    """What an operator must look at, from what was measured: room on the disk, days of the certificate, seconds since
    any member was seen, members whose identity seems to run twice, members
    who came to a restored service and answered nothing, ε of a rebuilding that was refused.
    """
    found = []
    if writing_fails or (free_bytes is not None and free_bytes < LEAST_FREE_BYTES):
        room = "" if free_bytes is None else f" ({free_bytes >> 20} MiB are left)"
        told = (
            f"the disk is full{room}: what finds no room is refused until there is some, and nothing accepted is lost"
        )
        found.append(Problem("disk.full", told, fatal=True))
    if certificate_days is not None and certificate_days <= 0.0:
        found.append(Problem("certificate.expires", "the certificate has ended: no member can come", fatal=True))
    elif certificate_days is not None and certificate_days < RENEW_DAYS:
        told = f"the certificate ends in {certificate_days:.0f} days: restart for a new one, or replace the given one"
        found.append(Problem("certificate.expires", told))
    if enrolled and unseen_seconds is not None and unseen_seconds > quiet_seconds:
        told = f"nobody was seen for {unseen_seconds / 60.0:.0f} minutes, of {enrolled:,} enrolled"
        found.append(Problem("nobody.seen", told))
    if copied:
        who = ", ".join(map(str, sorted(copied)[:5])) + (" …" if len(copied) > 5 else "")
        told = f"{len(copied)} identities seem to run on two machines: client {who}; revoke them and invite anew"
        found.append(Problem("identity.copied", told))
    if unanswered:
        told = (
            f"all {unanswered:,} members came since the service was restored, and none answered its round: if they had "
            "answered it before, restore the backup again with --skip and the number of rounds that were played since"
        )
        found.append(Problem("restore.behind", told))
    if rebuilding_refused is not None:
        limit = "" if budget is None else f", beyond the budget of {budget:.4g}"
        told = f"a rebuilding would bring ε to {rebuilding_refused:.4g}{limit}; the ranker started anew"
        found.append(Problem("rebuilding.refused", told))
    return tuple(found)


def seconds_left(history: Sequence[RoundFigures], rounds: int, open_seconds: float | None = None) -> float | None:
    """Estimate how long so many rounds will take, the open one among them, from the newest; None before there is one."""
    known = [(point.seconds, point.rounds) for point in history if point.seconds is not None][-LATEST_ROUNDS:]
    if not known or rounds <= 0:
        return 0.0 if rounds <= 0 else None
    mean = sum(seconds * count for seconds, count in known) / sum(count for _, count in known)
    return max(0.0, mean - (open_seconds or 0.0)) + mean * (rounds - 1)


def thinned(history: Sequence[RoundFigures], most: int = KEPT_ROUNDS) -> tuple[RoundFigures, ...]:
    """No more than `most` points: neighbours are taken together until they fit, the newest round stays alone."""
    points = list(history)
    while len(points) > max(most, 2):
        old, newest = points[:-1], points[-1]
        points = [*(_together(old[at : at + 2]) for at in range(0, len(old), 2)), newest]
    return tuple(points)


def with_round(history: Sequence[RoundFigures], figures: RoundFigures) -> tuple[RoundFigures, ...]:
    """The history with one more round, within its bound."""
    return thinned((*history, figures))


def _together(points: Sequence[RoundFigures]) -> RoundFigures:
    """One point for several: means of what a round takes and gets, the last of what goes on from round to round."""
    last, rounds = points[-1], sum(point.rounds for point in points)

    def mean(name: str) -> float | None:
        known = [(value, point.rounds) for point in points if (value := getattr(point, name)) is not None]
        return sum(value * count for value, count in known) / sum(count for _, count in known) if known else None

    return replace(last, seconds=mean("seconds"), replies=mean("replies"), rounds=rounds)


def listed(members: Iterable[MemberStatus]) -> tuple[MemberStatus, ...]:
    """The members to list: those that a round waits for first, then by number."""
    first = sorted(members, key=lambda member: (not member.late, not member.waiting, member.client))
    return tuple(sorted(first[:LISTED], key=lambda member: member.client))


def _plain(value: Any) -> Any:
    """Plain JSON values: a number that is none becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


_BOUNDS = {"members": LISTED, "history": KEPT_ROUNDS, "events": KEPT_EVENTS, "problems": 100, "weights": 1000}
_SCALARS: dict[Any, DocumentShape] = {
    int: Whole(0, 2**53), float: Number(-1e15, 1e15), str: Text(longest=_LONGEST), bool: Flag(),
}  # fmt: skip


@cache
def _shape(cls: type[Any]) -> Table:
    hints = get_type_hints(cls)
    needed: dict[str, DocumentShape] = {}
    optional: dict[str, DocumentShape] = {}
    for each in fields(cls):
        absent = each.default is not MISSING or each.default_factory is not MISSING
        (optional if absent else needed)[each.name] = _shape_of(hints[each.name], _BOUNDS.get(each.name))
    return Table(needed, optional, closed=True)


def _shape_of(hint: Any, most: int | None = None) -> DocumentShape:
    if is_dataclass(hint):
        return _shape(hint)  # type: ignore[arg-type]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in arguments if option is not type(None)]
        return Maybe(_shape_of(options[0])) if len(options) == 1 else ANYTHING_PLAIN
    if origin is Literal:
        return Text(arguments)
    if origin is tuple:
        return Items(_shape_of(arguments[0]), most)
    if origin is dict:
        return Each(_shape_of(arguments[1]))
    return _SCALARS.get(hint, ANYTHING)


class _PlainValue(DocumentShape):
    """A number, a text, or nothing."""

    def check(self, value: object) -> None:
        if isinstance(value, int | float):
            Number(-1e16, 1e16).check(float(value))
        elif value is not None:
            Text(longest=_LONGEST).check(value)


ANYTHING_PLAIN = _PlainValue()


def _built(hint: Any, value: Any) -> Any:
    """A value of a checked document as what its type says."""
    if value is None:
        return None
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return hint(**{key: _built(hints[key], item) for key, item in value.items()})  # type: ignore[operator]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in arguments if option is not type(None)]
        return _built(options[0], value) if len(options) == 1 else value
    if origin is tuple:
        return tuple(_built(arguments[0], item) for item in value)
    return value

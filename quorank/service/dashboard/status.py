"""Status of a federation as one document, shown by its dashboard, its metrics and `status`.

One format for devices, parties, tuned heuristics and simulations. The coordinator's holder writes it (`Status.text`), other
processes read and check it (`Status.read`). Its size is bounded for any number of members and rounds: `LISTED` members,
`KEPT_ROUNDS` points of the history, `KEPT_EVENTS` events. Clients appear by number and the operator's names.

Durations come from a monotonic clock; only `at` is wall time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from quorank.errors import require
from quorank.files.codec import Length, Range
from quorank.files.documents import decode_document, parse_json
from quorank.service.dashboard.numbers import duration

FORMAT, VERSION = "quorank status", 1
LISTED = 200  # maximum number of listed members
KEPT_EVENTS = 200
KEPT_ROUNDS = 400  # maximum number of points of the history; with more rounds, every second one is dropped
SEEN_SECONDS = 900.0  # seconds after its last request for which a member counts as online
LATEST_ROUNDS = 20  # number of newest rounds for estimates of the time left
STALL_FACTOR, STALL_SECONDS = 3.0, 60.0  # an open round is stalled after FACTOR times the mean, and SECONDS at least
SIGNIFICANT = 0.05  # maximum standard error of a significant quality
_LARGEST = 1 << 22  # bytes of a document

Count = Annotated[int, Range(0, 2**53)]
Real = Annotated[float, Range(-1e15, 1e15)]
Text = Annotated[str, Length(2000)]

Kind = Literal["devices", "parties", "tuning", "simulation"]
State = Literal["new", "starting", "running", "rebuilding", "done", "stopped"]
MemberState = Literal["not invited", "invited", "present", "away", "left", "revoked"]


@dataclass(frozen=True)
class MemberCounts:
    """Numbers of members by state."""

    planned: Count | None = None  # of the run; None with open participation
    invited: Count = 0  # with an unused invitation
    enrolled: Count = 0  # neither left nor revoked
    seen: Count = 0  # enrolled ones with a request within SEEN_SECONDS
    waiting: Count | None = 0  # without a reply to the open round; None where withheld
    left: Count = 0
    revoked: Count = 0


@dataclass(frozen=True)
class MemberStatus:
    """Listed member."""

    client: Count
    name: Text | None
    state: MemberState
    waiting: bool = False  # it owes an answer to the open round or the session
    seen_seconds: Real | None = None  # since its last request
    phase: Text | None = None  # current phase of a party
    identity: Text | None = None  # public key in hexadecimal, to be compared by voice


@dataclass(frozen=True)
class Quality:
    """Quality of the ranking with its uncertainty; `value` is None with too few reports."""

    measure: Text  # "nDCG@10 by clicks"
    value: Real | None = None  # of the newest round
    error: Real | None = None  # its standard error; None without noise
    round: Count | None = None
    devices: Count | None = None  # number of reports
    smoothed: Real | None = None  # over rounds, with decaying weights
    smoothed_error: Real | None = None
    least_devices: Count = 0  # minimum number of reports

    @property
    def best(self) -> tuple[float, float | None] | None:
        """Smoothed value with its standard error, or else the newest one."""
        if self.smoothed is not None:
            return self.smoothed, self.smoothed_error
        return None if self.value is None else (self.value, self.error)

    def words(self) -> tuple[str, str]:
        """Return the value with two standard errors, and a note; also without a value or with too much noise."""
        if self.best is None:
            return "too few reports", f"{self.measure}, shown from {self.least_devices} reports in a round"
        value, error = self.best
        of = f"{self.measure} over rounds" if self.smoothed is not None else self.measure
        of += f", {self.devices:,} reports in round {self.round}" if self.devices else ""
        if error is None:
            return f"{value:.4f}", of
        if not self.is_significant:
            return "too few reports", f"{value:.2f} ± {2 * error:.2f} is mostly noise; {of}"
        return f"{value:.3f} ± {2 * error:.3f}", of

    @property
    def is_significant(self) -> bool:
        """Return whether there is a value whose noise is small enough."""
        return self.best is not None and (self.best[1] is None or self.best[1] <= SIGNIFICANT)


@dataclass(frozen=True)
class RoundFigures:
    """Metrics of a completed round."""

    round: Count  # from 1
    seconds: Real | None = None
    replies: Real | None = None
    quality: Real | None = None
    error: Real | None = None  # standard error of the quality
    epsilon: Real | None = None  # spent by then


@dataclass(frozen=True)
class Event:
    """Event of the log."""

    time: Real
    event: Text  # one of `event_log.EVENTS`
    fields: dict[str, Real | Text | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """Problem that needs the operator; a `fatal` one keeps the service from working."""

    code: Text
    sentence: Text
    fatal: bool = False


@dataclass(frozen=True)
class WeightStatus:
    """Weight of a tuned heuristic with its bounds."""

    name: Text
    value: Real
    shipped: Real
    lower: Real
    upper: Real
    before: Real | None = None  # in the previous version


@dataclass(frozen=True)
class Versions:
    """Versions of service, protocol and members' programs (counts)."""

    service: Text = ""
    protocol: Count = 1
    members: dict[str, Count] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """State of a federation at one moment."""

    kind: Kind
    state: State
    run: Text
    at: Real  # seconds since 1970
    address: Text | None = None  # for members
    process: Count | None = None
    uptime_seconds: Real | None = None
    versions: Versions = field(default_factory=Versions)
    rehearsal: bool = False  # keys and noise follow from a seed: nothing is secret
    phase: Text | None = None  # of a group's session
    # rounds of a tuning are its versions, of a group its training turns
    rounds: Count = 0  # done
    rounds_planned: Count | None = None  # None: runs until it is stopped
    open_seconds: Real | None = None  # since the open round began
    deadline_seconds: Real | None = None  # until the open round closes with fewer replies
    seconds_left: Real | None = None  # of the run, estimated
    last_round_seconds: Real | None = None
    cohort: Count | None = None  # of the open round, available members; planned size where withheld; or K
    needed: Count | None = None  # minimum replies of the open round
    replies: Count | None = None  # of the open round
    accepted: Count | None = 0  # replies in all rounds
    refused: dict[str, Count] = field(default_factory=dict)  # by code
    withheld: Text | None = None  # reason for withheld numbers
    sent_bytes: Count | None = None
    received_bytes: Count | None = None
    traffic: dict[str, dict[str, Count]] = field(default_factory=dict)  # of a group: envelopes and bytes by kind
    checkpoints_failed: Count = 0
    counts: MemberCounts = field(default_factory=MemberCounts)
    members: Annotated[tuple[MemberStatus, ...], Length(LISTED)] = ()
    quality: Quality | None = None
    epsilon_spent: Real | None = None  # by all releases, reports and rebuildings
    epsilon_planned: Real | None = None
    epsilon_delta: Real | None = None
    epsilon_unit: Text | None = None
    epsilon_horizon: Text | None = None
    report_epsilon: Real | None = None  # of one report
    rebuilding_rounds: Count = 0  # with a sum, including abandoned rebuildings
    weights: Annotated[tuple[WeightStatus, ...], Length(1000)] = ()  # of a tuning
    arms: dict[str, Count] = field(default_factory=dict)  # of a tuning: members by arm
    history: Annotated[tuple[RoundFigures, ...], Length(KEPT_ROUNDS)] = ()
    events: Annotated[tuple[Event, ...], Length(KEPT_EVENTS)] = ()  # newest first
    problems: Annotated[tuple[Problem, ...], Length(100)] = ()
    requests: Count | None = None  # of members, answered by all intake workers
    request_seconds: Real | None = None  # time that the answers took, in all
    request_rate: Real | None = None  # answered requests per second, over the last minute

    def table(self) -> dict[str, Any]:
        """Return the document as plain values; non-finite numbers become null."""
        found: dict[str, Any] = _finite({"format": FORMAT, "version": VERSION} | asdict(self))
        return found

    def text(self) -> str:
        """Return the document as JSON."""
        return json.dumps(self.table(), allow_nan=False)

    @classmethod
    def read(cls, content: bytes | str) -> Status:
        """Read a document of `text`.

        Raises:
            BadInput: `status.malformed` for anything else.
        """
        code, where = "status.malformed", "status"
        require(len(content) <= _LARGEST, code, "is too long for a status", where)
        table = parse_json(content, dict[str, Any], where, code=code)
        head = {"format": FORMAT, "version": VERSION}
        sentence = f"expected a {FORMAT} of version {VERSION}"
        require({name: table.pop(name, None) for name in head} == head, code, sentence, where)
        found: Status = decode_document(cls, table, where, code=code)
        return found

    @property
    def usual_seconds(self) -> float | None:
        """Mean seconds of the latest rounds."""
        return mean_seconds(self.history)

    @property
    def is_stalled(self) -> bool:
        """Return whether the open round has taken much longer than the latest rounds took."""
        if self.state != "running" or self.open_seconds is None or self.usual_seconds is None:
            return False
        return self.open_seconds > max(STALL_SECONDS, STALL_FACTOR * self.usual_seconds)

    @property
    def is_deserted(self) -> bool:
        """Return whether members have enrolled and none is online."""
        alone = self.counts.enrolled > 0 and self.counts.seen == 0
        return self.state == "running" and self.kind != "simulation" and alone

    def stall(self) -> str | None:
        """Describe a stalled round for people; None otherwise."""
        if not self.is_stalled:
            return None
        unit = {"parties": "turn", "tuning": "version"}.get(self.kind, "round")
        took = f"the latest took {duration(self.usual_seconds)} on average"
        text = f"this {unit} has been open for {duration(self.open_seconds)}; {took}"
        text += f"; {self.counts.seen:,} members are online"
        if self.withheld is None and self.replies is not None and self.needed is not None:
            text += f"; {self.replies:,} of {self.needed:,} needed replies were received"
        return text

    @property
    def request_latency(self) -> float | None:
        """Mean seconds of an answered request."""
        return self.request_seconds / self.requests if self.requests and self.request_seconds is not None else None

    @property
    def is_healthy(self) -> bool:
        """Return whether no fatal problem exists."""
        return not any(problem.fatal for problem in self.problems)


def with_round(history: Sequence[RoundFigures], figures: RoundFigures) -> tuple[RoundFigures, ...]:
    """Append a round to the history; one that is too long loses every second of its older points."""
    points = (*history, figures)
    return points if len(points) <= KEPT_ROUNDS else (*points[:-1:2], figures)


def mean_seconds(history: Sequence[RoundFigures]) -> float | None:
    """Return the mean seconds of the newest rounds."""
    known = [point.seconds for point in history if point.seconds is not None][-LATEST_ROUNDS:]
    return sum(known) / len(known) if known else None


def seconds_left(history: Sequence[RoundFigures], rounds: int, open_seconds: float | None = None) -> float | None:
    """Estimate the seconds of the remaining rounds, the open one included; None before the first round."""
    mean = mean_seconds(history)
    if mean is None or rounds <= 0:
        return 0.0 if rounds <= 0 else None
    return max(0.0, mean - (open_seconds or 0.0)) + mean * (rounds - 1)


def listed(members: Iterable[MemberStatus]) -> tuple[MemberStatus, ...]:
    """Return the members to list: awaited ones first where there are too many, by number."""
    first = sorted(members, key=lambda member: (not member.waiting, member.client))
    return tuple(sorted(first[:LISTED], key=lambda member: member.client))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

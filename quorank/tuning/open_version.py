"""The open version of a tuning in the field: its replies as they came, and what is made of them once they are enough.

What learns is `TuningCoordinator`, the machine that `quorank tune simulate` drives too. Replies are summed in the order of
the devices' numbers, whichever came first, so the same replies give the same bits. After the last version devices answer
for the figures of the study, where there is one with an ε.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np

from quorank.errors import BadInput, require
from quorank.federation.accepted_replies import ReplyLimits
from quorank.federation.reply import Reply, decode_reply
from quorank.tuning.coordinator import TuningState
from quorank.tuning.field import HEAVIEST, FieldTuning, task_of, updates_of
from quorank.tuning.models import Model
from quorank.tuning.studies.private_means import LEAST_CLIENTS, PrivateMeans

LONGEST_RELEASE = 1e9
"""L2 norm of an update: beyond what any score's slopes are."""
DAY = 86_400.0

KeyOf = Callable[[int], bytes]
"""The public key of a member, by its number."""


class OpenVersion:
    """Where a tuning stands, from the model of its last version on; `key_of` says who a member is."""

    def __init__(self, tuning: FieldTuning, run: str, key_of: KeyOf, model: Model | None = None) -> None:
        self.tuning, self.run, self.terms, self._key_of = tuning, run, tuning.terms(run), key_of
        coordinator = tuning.coordinator
        self.state = coordinator.start() if model is None else coordinator.resume(model)
        self.before: dict[str, float] | None = None  # the weights of the version before
        self.replies: dict[int, Reply] = {}  # by member
        self.refused: dict[str, int] = {}  # replies that cannot count, by code
        self._gathered: TuningState | None = None  # the state with the replies received, until another comes

    @property
    def version(self) -> int:
        """Versions that are out."""
        return self.state.version

    @property
    def learned(self) -> bool:
        """Whether all versions are made: what is left to ask for are the study's figures."""
        return self.version >= self.tuning.iterations

    @cached_property
    def _figures(self) -> PrivateMeans:
        found = self.terms.figures
        assert found is not None
        return found

    # ------------------------------------------------------------ what devices are asked

    def task(self, state: TuningState | None = None) -> bytes:
        """The task of the version that is open in a state."""
        found = state or self.state
        return task_of(found, figures=found.version >= self.tuning.iterations).encode(self.run)

    def room(self, state: TuningState | None = None) -> int:
        """Replies that this version takes; 0 where their number is not known before."""
        figures = (state or self.state).version >= self.tuning.iterations
        return self.tuning.answers if figures else self.tuning.room

    def limits(self, state: TuningState | None = None) -> ReplyLimits:
        """What replies to this version are judged by before they are confirmed."""
        version = (state or self.state).version
        return ReplyLimits(self.run, version, self.terms.parameters, HEAVIEST, LONGEST_RELEASE, 1)

    # ------------------------------------------------------------ what they reply

    def receive(self, member: int, content: bytes) -> str:
        """Take a member's reply; the code of its refusal, or none."""
        try:
            reply = decode_reply(content, self.terms.parameters)
            self._check(reply, member)
        except BadInput as error:
            self.refused[error.code] = self.refused.get(error.code, 0) + 1
            return error.code
        self.replies[member], self._gathered = reply, None
        return ""

    def _check(self, reply: Reply, member: int) -> None:
        """Refuse what must not count: of somebody else, of a control, or no answer of an honest device."""
        require(reply.client == member, "reply.other-client", "the reply names another client than its sender")
        shaped = reply.release.shape == (self.terms.parameters,) and reply.round == self.version
        require(shaped and reply.run == self.run, "reply.shape", "the reply is none to this version")
        if self.learned:
            answer = reply.statistics[: len(self._figures.study.metrics)]
            require(self._figures.allows(answer), "reply.no-answer", "no honest device answers so")
        else:
            learns = self.terms.study is None or self.terms.learns(self._key_of(member))
            require(learns, "reply.not-treated", "this device is in a control arm")
            usable = self.tuning.coordinator.usable(updates_of(self.tuning, {member: reply})).all()
            require(usable, "reply.not-usable", "the update has values that no honest device sends")

    def forget(self, member: int) -> None:
        """Take a member's reply out again: it has left."""
        self.replies.pop(member, None)
        self._gathered = None

    def arms(self, keys: Iterable[bytes]) -> dict[str, int]:
        """How many of the devices with these keys are in each arm of the study."""
        study = self.tuning.study
        found = Counter() if study is None else Counter(map(study.arm_of, keys))
        return {} if study is None else {arm: found[arm] for arm in study.arms}

    # ------------------------------------------------------------ what is made of it

    def next_version(self, seconds: float) -> tuple[TuningState, Model] | None:
        """The state and the version that follow, where the replies close this one after so many seconds."""
        if not self.replies or len(self.replies) < self.tuning.room:
            return None
        coordinator = self.tuning.coordinator
        if self._gathered is None:
            self._gathered = coordinator.receive(self.state, updates_of(self.tuning, self.replies))
        return coordinator.advance(self._gathered, 0.0) if coordinator.closes(self._gathered, seconds) else None

    def begin(self, after: TuningState) -> bool:
        """Begin the version of a state; whether its weights are the reference again, and were not before."""
        changed = not np.array_equal(after.published, self.state.published)
        self.before = self.tuning.heuristic.named(self.state.published)
        self.state, self.replies, self.refused, self._gathered = after, {}, {}, None
        return changed and np.array_equal(after.published, after.reference)

    def study(self, seconds: float) -> dict[str, Any] | None:
        """What the study found, once enough devices have answered or its days are over."""
        if len(self.replies) < self.tuning.answers and seconds < DAY * self.tuning.days:
            return None
        study, arms = self._figures.study, dict[str, list[list[int]]]()
        for member, reply in sorted(self.replies.items()):
            answer = [int(value) for value in reply.statistics[: len(study.metrics)]]
            arms.setdefault(study.arm_of(self._key_of(member)), []).append(answer)
        few = {arm: len(arms.get(arm, ())) for arm in study.arms if len(arms.get(arm, ())) < LEAST_CLIENTS}
        if few:
            return {"study": study.name, "epsilon": self._figures.epsilon, "too_few": few}
        found: dict[str, Any] = self._figures.analyse({arm: np.array(rows) for arm, rows in arms.items()}).as_dict()
        return found

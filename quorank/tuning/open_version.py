"""Open version of a tuning in the field: its replies, and the next version once they suffice.

The coordinator is that of `quorank tune simulate`. Replies are summed in the order of the devices' numbers,
independent of their arrival, so the same replies give the same bits. After the last version devices answer for the
study's metrics, if it has an ε.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np

from quorank.errors import BadInput, require
from quorank.federation.reply import Reply, ReplyLimits, decode_reply
from quorank.tuning.coordinator import TuningState
from quorank.tuning.field import MOST_SEARCHES, FieldTuning, TuningTask, updates_of
from quorank.tuning.models import Model
from quorank.tuning.studies.private_means import LEAST_CLIENTS, PrivateMeans

LONGEST_RELEASE = 1e9
"""Upper bound on the L2 norm of an update, above the slopes of any score."""
DAY = 86_400.0

KeyOf = Callable[[int], bytes]
"""Function from a member's number to its public key."""


class OpenVersion:
    """State of a tuning from the model of its last version on.

    Args:
        tuning: The operator's settings.
        run: Name of the run.
        key_of: Public key of a member.
        model: Last version; None at the start.
    """

    def __init__(self, tuning: FieldTuning, run: str, key_of: KeyOf, model: Model | None = None) -> None:
        self.tuning, self.run, self.terms, self._key_of = tuning, run, tuning.terms(run), key_of
        coordinator = tuning.coordinator
        self.state = coordinator.start() if model is None else coordinator.resume(model)
        self.before: dict[str, float] | None = None  # the weights of the version before
        self.replies: dict[int, Reply] = {}  # by member
        self.refused: dict[str, int] = {}  # number of rejected replies, by code
        self._gathered: TuningState | None = None  # state with the replies added, until the next reply

    @property
    def version(self) -> int:
        """Number of published versions."""
        return self.state.version

    @property
    def learned(self) -> bool:
        """True once all versions are made; only the study's metrics may be missing."""
        return self.version >= self.tuning.iterations

    @cached_property
    def _private_means(self) -> PrivateMeans:
        found = self.terms.private_means
        assert found is not None
        return found

    # ------------------------------------------------------------ tasks

    def task(self, state: TuningState) -> bytes:
        """Return the task of a state."""
        asks = state.version >= self.tuning.iterations
        return TuningTask(state.version, state.published, state.weights, state.reference, asks).encode(self.run)

    def replies_needed(self, state: TuningState) -> int:
        """Return the number of replies to this version; 0 where it is not known in advance."""
        return self.tuning.answers if state.version >= self.tuning.iterations else self.tuning.replies_needed

    def limits(self, state: TuningState) -> ReplyLimits:
        """Return the checks of replies to this version before they are confirmed."""
        return ReplyLimits(self.run, state.version, self.terms.parameters, MOST_SEARCHES, LONGEST_RELEASE, 1)

    # ------------------------------------------------------------ replies

    def receive(self, member: int, content: bytes) -> str:
        """Add a member's reply; return the code of its rejection, or an empty string."""
        try:
            reply = decode_reply(content, self.terms.parameters)
            self._check(reply, member)
        except BadInput as error:
            self.refused[error.code] = self.refused.get(error.code, 0) + 1
            return error.code
        self.replies[member], self._gathered = reply, None
        return ""

    def _check(self, reply: Reply, member: int) -> None:
        """Raise BadInput for a reply of another member, of a control arm, or with values that no honest device sends."""
        require(reply.client == member, "reply.other-client", "the reply names another client than its sender")
        shaped = reply.release.shape == (self.terms.parameters,) and reply.round == self.version
        require(shaped and reply.run == self.run, "reply.shape", "the reply is not to this version")
        if self.learned:
            allowed = self._private_means.allows(reply.statistics[: len(self._private_means.study.metrics)])
            require(allowed, "reply.no-answer", "the answer has values that no honest device sends")
        else:
            learns = self.terms.study is None or self.terms.learns(self._key_of(member))
            require(learns, "reply.not-treated", "this device is in a control arm")
            usable = self.tuning.coordinator.usable(updates_of(self.tuning, {member: reply})).all()
            require(usable, "reply.not-usable", "the update has values that no honest device sends")

    def forget(self, member: int) -> None:
        """Remove the reply of a member that has left."""
        self.replies.pop(member, None)
        self._gathered = None

    def arms(self, keys: Iterable[bytes]) -> dict[str, int]:
        """Return the number of devices with these keys in each arm of the study."""
        study = self.tuning.study
        return {} if study is None else dict.fromkeys(study.arms, 0) | Counter(map(study.arm_of, keys))

    # ------------------------------------------------------------ results

    def next_version(self, seconds: float) -> tuple[TuningState, Model] | None:
        """Return the next state and version if the replies close this one after these seconds; else None."""
        if not self.replies or len(self.replies) < self.tuning.replies_needed:
            return None
        coordinator = self.tuning.coordinator
        if self._gathered is None:
            self._gathered = coordinator.receive(self.state, updates_of(self.tuning, self.replies))
        return coordinator.advance(self._gathered, 0.0) if coordinator.closes(self._gathered, seconds) else None

    def begin(self, after: TuningState) -> bool:
        """Begin the version of a state; return whether it rolled the weights back to the reference."""
        changed = not np.array_equal(after.published, self.state.published)
        self.before = self.tuning.heuristic.named(self.state.published)
        self.state, self.replies, self.refused, self._gathered = after, {}, {}, None
        return changed and np.array_equal(after.published, after.reference)

    def study(self, seconds: float) -> dict[str, Any] | None:
        """Return the result of the study once enough devices have answered or its time limit is over; else None."""
        if len(self.replies) < self.tuning.answers and seconds < DAY * self.tuning.days:
            return None
        study, arms = self._private_means.study, dict[str, list[list[int]]]()
        for member, reply in sorted(self.replies.items()):
            answer = [int(value) for value in reply.statistics[: len(study.metrics)]]
            arms.setdefault(study.arm_of(self._key_of(member)), []).append(answer)
        few = {arm: len(arms.get(arm, ())) for arm in study.arms if len(arms.get(arm, ())) < LEAST_CLIENTS}
        if few:
            return {"study": study.name, "epsilon": self._private_means.epsilon, "too_few": few}
        return asdict(self._private_means.analyse({arm: np.array(rows) for arm, rows in arms.items()}))

"""A device's part in rebuilding the ranker after another client has left: it learns again from lists that it still holds.

A rebuilding is a run of its own (`name_of`) from the first ranker, in fewer and longer rounds (`leavers.unlearning`,
method `fresh`; thesis chapter 6 without eq. 6.2). Each of its rounds stands for Δt of the run: a device learns from the
next Δt batches of B interactions that its releases have used and that it keeps, beginning again after the last, and sends
1/Δt of the way, which the coordinator stretches. So nobody has to search again, nothing that is held is left out, and a
release is no longer than in the run. Like every task it is answered once, with consent, and stands in the log. A device
that has released nothing says so, and is left out.

Each answer is one more release of interactions that were released before. Where the device draws noise itself, and in
secure sums, that noise was planned for one release, so such a device declines, and the ranker starts anew instead.
"""

from __future__ import annotations

from quorank.federation import wire
from quorank.federation.leavers.rebuilding import NOTHING, can_replay, interval_of
from quorank.kernels.arrays import Doubles
from quorank.member.client_privacy import check_task
from quorank.member.device import Device
from quorank.protocol.messages import Declined, Refusal


class Rebuilder:
    """Answers the tasks of rebuildings for a device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def answer(self, content: bytes) -> bytes | Declined:
        """The reply to a task, or why there is none; it never raises."""
        return self.device.guarded(lambda: self._answer(content))

    def _answer(self, content: bytes) -> bytes:
        device, store, terms = self.device, self.device.store, self.device.terms
        with store.transaction():
            if not store.consent:
                raise Refusal("consent")
            if not can_replay(terms.client_mechanism):
                raise Refusal("task")
            task = self._read(content)
            known = device.stored_reply(task)
            if known is not None:
                return known
            if self._batches() == 0:
                return NOTHING
            reply = device.reply(task, self._update(task), terms.client_mechanism)
            device.add_release(task, reply, len(reply), {"rebuilding": True})
        return reply

    def _read(self, content: bytes) -> wire.Task:
        task = wire.decode_task(content)
        check_task(self.device.terms, task)
        return task

    def _update(self, task: wire.Task) -> Doubles:
        """What the batches of this round teach from the task's ranker on, per batch, as far as it is for all."""
        device, terms = self.device, self.device.terms
        interval, held = interval_of(task.run, terms.run) or 1, self._batches()
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

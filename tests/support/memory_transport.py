"""Transport to nodes in the test's own process, over an unreliable network."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from quorank.errors import require_range
from quorank.protocol.transport import Arrival, Failure

Answer = Callable[[str, bytes], bytes | Failure]
"""Answer of a node: (its name, the content)."""


@dataclass(eq=False)
class MemoryTransport:
    """Nodes in this process behind a network with loss, duplicates and delays, measured in calls of `pull`.

    A message reaches its node when its answer is due, so a node that has left by then never answers it.
    """

    answer: Answer
    names: Sequence[str]
    loss: float = 0.0  # share of messages, and of answers, that never come
    duplicates: float = 0.0  # share of answers that come twice
    delay: Callable[[str], float] | int = 0  # an answer comes after so many pulls: for a node, or up to so many for all
    seed: int = 0
    present: set[str] = field(init=False)
    pushed: int = field(default=0, init=False)  # messages
    sent: int = field(default=0, init=False)  # bytes, to nodes
    came: int = field(default=0, init=False)  # bytes, from nodes
    _due: list[tuple[float, int, str, bytes]] = field(default_factory=list, init=False)
    _now: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        require_range("loss", self.loss, least=0.0, below=1.0)
        require_range("duplicates", self.duplicates, least=0.0, most=1.0)
        self.present = set(self.names)
        self._random = np.random.default_rng(self.seed)

    def leave(self, name: str) -> None:
        """The node is gone; what was on its way to it is lost."""
        self.present.discard(name)
        self._due = [entry for entry in self._due if entry[2] != name]
        heapq.heapify(self._due)

    def come(self, name: str) -> None:
        """The node is back."""
        self.present.add(name)

    def nodes(self) -> Sequence[str]:
        return sorted(self.present)

    def push(self, messages: Sequence[tuple[str, bytes]]) -> list[str]:
        return [self._push(*message) for message in messages]

    def _push(self, node: str, content: bytes) -> str:
        self.pushed += 1
        self.sent += len(content)
        if node in self.present and not self._chance(self.loss):
            heapq.heappush(self._due, (self._now + self._wait(node), self.pushed, node, content))
            if self._chance(self.duplicates):
                late = self._now + self._wait(node) + 1
                heapq.heappush(self._due, (late, self.pushed, node, content))
        return str(self.pushed)

    def pull(self) -> list[Arrival]:
        self._now += 1
        arrived = []
        while self._due and self._due[0][0] < self._now:
            _, number, node, content = heapq.heappop(self._due)
            answer = self.answer(node, content)
            if not self._chance(self.loss):
                self.came += len(answer) if isinstance(answer, bytes) else 0
                arrived.append(Arrival(str(number), node, answer))
        order = self._random.permutation(len(arrived)) if self.delay != 0 else range(len(arrived))
        return [arrived[at] for at in order]

    def forget(self, messages: Sequence[str]) -> None:
        """Nothing to do: what comes all the same is the driver's to refuse."""

    def _wait(self, node: str) -> float:
        if callable(self.delay):
            return self.delay(node)
        return float(self._random.integers(0, self.delay + 1)) if self.delay else 0.0

    def _chance(self, share: float) -> bool:
        return share > 0.0 and bool(self._random.random() < share)

"""A party's secrets of one run: drawn once, and kept until it is done.

Noise is drawn from a secret by what it is for: the document of a sketch, the field of a table, the columns of a question.
The same question is so answered with the same cells, whoever asks and however often, also after a restart; fresh noise
would be averaged away by asking again. In a rehearsal all of it follows from the seed, as in one process
(`quorank.silos.learning.exchange`), and nothing is secret but the seals.
"""

from __future__ import annotations

from collections.abc import Callable

from quorank.silos.learning.exchange import seeded_secret, seeded_sketch_noise
from quorank.silos.learning.shared_statistics import seeded_statistics_noise
from quorank.silos.protocol.discrete_laplace import Stream, SystemStream
from quorank.silos.protocol.keys import Entropy, derive
from quorank.silos.protocol.messages import KEY
from quorank.silos.protocol.owner import ByQuestion, Streams
from quorank.silos.protocol.party import answer_noise
from quorank.silos.protocol.stream_store import SiloStore
from quorank.silos.protocol.terms import SiloTerms

_SECRETS = "secrets"


class Secrets:
    """What a party draws for one run: its part of the agreement, its key for hiding terms, and the source of its noise."""

    def __init__(self, store: SiloStore, terms: SiloTerms, name: str, entropy: Entropy) -> None:
        self.terms, self.name, self.number = terms, name, terms.number(name)
        kept = store.fact(_SECRETS)
        if kept is None:
            kept = b"".join(entropy(KEY) for _ in range(4))
            with store.transaction():
                store.set_fact(_SECRETS, kept)
        self._session, self._obfuscation, self._noise = (kept[: 2 * KEY], kept[2 * KEY : 3 * KEY], kept[3 * KEY :])

    @staticmethod
    def forget(store: SiloStore) -> None:
        """Inside a transaction: the run is done."""
        store.drop_fact(_SECRETS)

    def session(self) -> Entropy:
        """The entropy of the agreement, the same after a restart: one ephemeral key and one contribution."""
        parts = iter((self._session[:KEY], self._session[KEY:]))
        return lambda count: next(parts)

    @property
    def hashing_key(self) -> bytes | None:
        """Of the sketches, in a rehearsal; in earnest the group agrees on it."""
        return None if self.terms.seed is None else seeded_secret(self.terms.seed, "hashing")

    def statistics_key(self, hashing_key: bytes) -> bytes:
        """Of the tables of statistics: one that the whole group has."""
        if self.terms.seed is None:
            return derive(hashing_key, "statistics")
        return seeded_secret(self.terms.seed, "statistics")

    @property
    def obfuscation_key(self) -> bytes:
        """Of the blocks in which this party hides what it asks."""
        if self.terms.seed is None:
            return self._obfuscation
        return seeded_secret(self.terms.seed, f"obfuscation party-{self.number}")

    @property
    def search(self) -> bytes:
        """Of the noise in what searches of others are answered with; it lasts as long as the folder."""
        return derive(self._noise, "search noise")

    @property
    def draws(self) -> int:
        """Addresses the party's other draws: which queries are for what, and which instances a step learns from.

        Whoever knew the latter could take parameters apart that they went into.
        """
        if self.terms.seed is not None:
            return self.terms.seed
        return int.from_bytes(derive(self._noise, "draws")[:8], "little")

    def _stream(self, purpose: str, *context: bytes) -> Stream:
        return SystemStream(derive(self._noise, purpose, *context))

    def of_sketches(self, field: str) -> Callable[[int], Stream]:
        """The noise in a field's sketches, by document."""
        if self.terms.seed is not None:
            return seeded_sketch_noise(self.terms.seed, field, self.number)
        return lambda document: self._stream("sketch noise", field.encode(), document.to_bytes(8, "little"))

    def of_statistics(self, field: int) -> Stream:
        """The noise in a field's tables."""
        if self.terms.seed is not None:
            return seeded_statistics_noise(self.terms.seed, self.number)(field)
        return self._stream("statistics noise", bytes([field]))

    def of_answers(self) -> tuple[Streams, ByQuestion | None]:
        """The noise of lengths and answers, for an `Owner`."""
        if self.terms.seed is not None:
            return answer_noise(self.terms.group(), self.name, self.terms.seed), None
        return (
            lambda asker, number: self._stream("length noise", asker.encode(), number.to_bytes(8, "little")),
            lambda field, columns: self._stream("answer noise", bytes([field]), columns.tobytes()),
        )

"""Secrets of a party in one session.

Noise is derived from a secret of the session by its purpose, so that repeated work after a restart draws the same noise.
In a rehearsal all secrets follow from the seed, as in one process, and nothing is secret but the seals.
"""

from __future__ import annotations

from quorank.silos.count_sketch import Hashing, seeded_secret
from quorank.silos.discrete_laplace import SystemStream
from quorank.silos.envelopes import KEY
from quorank.silos.search.owner import search_hashing, seeded_owner_secret
from quorank.silos.search.settings import FIELD, SearchTerms
from quorank.silos.session.agreement import AgreedKeys, Entropy, derive
from quorank.silos.session.streams import SiloStore
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.statistics import COLUMNS, ROWS, seeded_statistics_noise

SECRETS = "secrets"  # fact, deleted when the session is over


class Secrets:
    """Secrets of one session, drawn once and stored until it is over."""

    def __init__(self, store: SiloStore, terms: SiloTerms, name: str, entropy: Entropy) -> None:
        self.terms, self.name, self.number = terms, name, terms.number(name)
        kept = store.fact(SECRETS)
        if kept is None:
            kept = b"".join(entropy(KEY) for _ in range(4))
            store.set_fact(SECRETS, kept)
        self._session, self._decoys, self._noise = kept[: 2 * KEY], kept[2 * KEY : 3 * KEY], kept[3 * KEY :]

    def session(self) -> Entropy:
        """Return the entropy of the agreement, the same after a restart: an ephemeral key and a contribution."""
        parts = iter((self._session[:KEY], self._session[KEY:]))
        return lambda count: next(parts)

    def statistics_hashing(self, keys: AgreedKeys) -> Hashing:
        """Return the hash functions of the term statistics."""
        seed = self.terms.seed
        key = derive(keys.hashing_key, "statistics") if seed is None else seeded_secret(seed, "statistics")
        return Hashing(key, ROWS, COLUMNS)

    def search_hashing(self, keys: AgreedKeys, settings: SearchTerms) -> Hashing:
        """Return the hash functions of searches."""
        if self.terms.seed is not None:
            return search_hashing(self.terms.seed, settings)
        return Hashing(derive(keys.hashing_key, "field", FIELD.encode()), 1, settings.columns)

    @property
    def decoys(self) -> bytes:
        """Key of the decoys of this party's searches."""
        seed = self.terms.seed
        return self._decoys if seed is None else seeded_secret(seed, f"search decoys {self.name}")

    @property
    def search(self) -> bytes:
        """Secret of the noise in answers to the others' searches; it lasts as long as the folder."""
        seed = self.terms.seed
        return derive(self._noise, "search noise") if seed is None else seeded_owner_secret(seed, self.name)

    @property
    def draws(self) -> int:
        """Seed of the division of this party's queries."""
        seed = self.terms.seed
        return int.from_bytes(derive(self._noise, "draws")[:8], "little") if seed is None else seed

    def statistics_noise(self, field: int) -> SystemStream:
        """Return the noise of a field's term statistics."""
        if self.terms.seed is not None:
            return seeded_statistics_noise(self.terms.seed, self.number, field)
        return SystemStream(derive(self._noise, "statistics noise", bytes([field])))

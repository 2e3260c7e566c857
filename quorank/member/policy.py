"""Owner's policy: limits that a device sets on the terms of every run.

Terms outside the policy are declined before anything is sent. A `Promise` is what terms amount to: what leaves, how often,
who can read it and at which ε.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypedDict

from quorank.errors import BadInput, require, require_range
from quorank.files.codec import decode
from quorank.files.documents import read_toml
from quorank.member.private_store import PrivateStore
from quorank.privacy.mechanisms.integer_sums import secure_sums
from quorank.protocol.terms import Terms

POLICY, PROMISE = "policy", "promise"  # facts: the owner's policy; what the agreed terms amount to
CHANGE = "change the policy to allow it, or do not take part"
Reader = Literal["sums", "noised", "updates"]


@dataclass(frozen=True)
class Promise:
    """What terms amount to for the owner of a device."""

    privacy: str  # kind of the mechanism
    reader: Reader  # what the operator can read: sums of many devices, noised releases, or each update
    epsilon: float | None  # ε of the whole run, reports included; None where none is stated
    delta: float
    cohort: int  # devices whose releases are combined, planned; in secure sums the least number
    releases: int  # of this device in the run, at most
    searches: int  # of one release
    numbers: int  # of one release
    clip: float | None  # L2 norm of a release, at most; None where it is not clipped

    @classmethod
    def of(cls, terms: Terms) -> Promise:
        """Derive the promise of terms; it may take seconds, to account for the noise."""
        privacy, setting = terms.privacy, terms.setting
        epsilon, delta = None, 0.0
        if max(terms.rounds, setting.rounds) <= MOST_ACCOUNTED:
            epsilon, delta = privacy.guarantee(setting)
        if epsilon is not None and terms.reports is not None:
            epsilon += terms.reports["epsilon"]
        if epsilon is not None:
            epsilon = max(epsilon, terms.total_epsilon)
        sums = privacy.hides_single_updates
        return cls(
            privacy.kind,
            "sums" if sums else "noised" if privacy.protects_messages else "updates",
            epsilon,
            delta,
            secure_sums(terms.client_mechanism).signed_by if sums else setting.cohort,
            terms.releases,
            terms.interactions,
            terms.parameters,
            privacy.longest_update,
        )

    def sentences(self) -> list[str]:
        """Return what leaves, how often, who can read it and what ε means, for people."""
        read = {
            "sums": f"The operator can read only sums over at least {self.cohort:,} devices, never this device's part.",
            "noised": "This device adds noise to each release; the operator can read it with that noise.",
            "updates": "The operator can read each release of this device.",
        }
        if self.epsilon is None:
            cost = "No ε is stated: nothing bounds what can be inferred about you from what is sent or published."
        else:
            odds = f"{math.exp(self.epsilon):,.1f}" if self.epsilon < 20 else f"e^{self.epsilon:.3g}"
            cost = (
                f"ε = {self.epsilon:.3g} at δ = {self.delta:.1g} for the whole run: each published result is at most "
                f"{odds} times as likely with you as without you, but for a probability of δ."
            )
        return [
            f"What leaves: {self.numbers:,} numbers, how {self.searches:,} of your searches moved the ranker; no query, "
            "document or click.",
            f"How often: at most {self.releases:,} times in this run.",
            read[self.reader],
            cost,
        ]


MOST_ACCOUNTED = 10**6
"""Rounds beyond which no ε is computed, since it takes too long."""


@dataclass(frozen=True)
class Policy:
    """Limits of a device's owner on the terms of a run. The defaults decline terms with little or no protection.

    Args:
        epsilon: Largest ε of the whole run, reports included.
        delta: Largest δ.
        unstated: Accept runs that state no ε.
        cohort: Least number of devices whose releases are combined in a round, as planned by the terms.
        releases: Largest number of releases of this device.
        searches: Least number of searches of one release.
        clip: Largest L2 norm of a release, where it is clipped.
        privacy: Accepted kinds of mechanisms, such as `gaussian`; empty accepts all.
        known: Least number of other members of each secure sum whose keys the owner has pinned. The operator may have
            enrolled all the others itself, so 0 trusts it not to.

    >>> Policy(cohort=1).check(Promise.of(Terms("run", 0, n_features=2, rounds=10)))
    Traceback (most recent call last):
        ...
    quorank.errors.BadInput: the run states no ε, and the policy of this device allows at most 10; change the policy ...
    """

    epsilon: float = 10.0
    delta: float = 1e-4
    unstated: bool = False
    cohort: int = 10
    releases: int = 10_000
    searches: int = 2
    clip: float = 1000.0
    privacy: tuple[str, ...] = ()
    known: int = 0

    def __post_init__(self) -> None:
        for name in ("epsilon", "clip"):
            require_range(name, getattr(self, name), above=0.0)
        require_range("delta", self.delta, least=0.0, most=1.0)
        for name in ("cohort", "releases", "searches"):
            require_range(name, getattr(self, name), least=1)
        require_range("known", self.known, least=0)

    @classmethod
    def read(cls, path: Path) -> Policy:
        """Read a policy file; keys that are absent have their defaults.

        Raises:
            BadInput: The file is not TOML, or a key is unknown or out of range.
        """
        table = read_toml(path)
        try:
            return decode(cls, table)
        except BadInput as error:
            raise error.at(f"{path}") from None

    def check(self, promise: Promise) -> None:
        """Decline terms outside the policy.

        Raises:
            BadInput: `policy.` and the name of the exceeded limit.
        """
        most, least = "and the policy of this device allows at most", "and the policy of this device asks for at least"
        epsilon, clip = promise.epsilon, promise.clip
        require(
            promise.releases <= self.releases,
            "policy.releases",
            f"the run asks for {promise.releases:,} releases, {most} {self.releases:,}; {CHANGE}",
        )
        require(
            promise.searches >= self.searches,
            "policy.searches",
            f"a release is of {promise.searches} searches, {least} {self.searches}; {CHANGE}",
        )
        require(
            promise.cohort >= self.cohort,
            "policy.cohort",
            f"the cohort of a round is {promise.cohort:,}, {least} {self.cohort:,}; {CHANGE}",
        )
        require(
            not self.privacy or promise.privacy in self.privacy,
            "policy.privacy",
            f"the run uses {promise.privacy}, and this policy allows {', '.join(self.privacy)} only; {CHANGE}",
        )
        require(
            epsilon is not None or self.unstated,
            "policy.unstated",
            f"the run states no ε, {most} {self.epsilon:g}; {CHANGE}",
        )
        require(
            epsilon is None or epsilon <= self.epsilon,
            "policy.epsilon",
            f"the run costs ε = {epsilon or 0.0:.4g}, {most} {self.epsilon:g}; {CHANGE}",
        )
        require(
            promise.delta <= self.delta,
            "policy.delta",
            f"the run has δ = {promise.delta:g}, {most} {self.delta:g}; {CHANGE}",
        )
        require(
            clip is None or clip <= self.clip,
            "policy.clip",
            f"a release is as long as {clip or 0.0:g}, {most} {self.clip:g}; {CHANGE}",
        )


class _Kept(TypedDict):
    """Promise of the agreed terms in the private store, by the digest of the terms."""

    terms: str
    promise: Promise


def policy_of(store: PrivateStore) -> Policy:
    """Return the owner's policy in a private store, by default `Policy()`."""
    found: Policy | None = store.note(POLICY, Policy)
    return found or Policy()


def set_policy(store: PrivateStore, policy: Policy) -> None:
    """Store the owner's policy."""
    store.set_note(POLICY, asdict(policy))


def promise_of(store: PrivateStore, terms: Terms) -> Promise:
    """Return the promise of the agreed terms, computed once."""
    digest = hashlib.sha256(json.dumps(terms.table(), sort_keys=True).encode()).hexdigest()
    kept: _Kept | None = store.note(PROMISE, _Kept)
    if kept is None or kept["terms"] != digest:
        kept = {"terms": digest, "promise": Promise.of(terms)}
        store.set_note(PROMISE, kept | {"promise": asdict(kept["promise"])})
    return kept["promise"]


def check_terms(store: PrivateStore, terms: Terms) -> None:
    """Decline terms outside the policy in the private store.

    Raises:
        BadInput: `policy.` and the name of the exceeded limit.
    """
    policy_of(store).check(promise_of(store, terms))

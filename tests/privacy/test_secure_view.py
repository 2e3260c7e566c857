"""What the server sees of a secure sum is uniform but for the sum; without one of the masks these tests would fail."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats
from secure_rounds import OCCASION, seeded, started

from quorank.privacy.secure_sum import masks
from quorank.privacy.secure_sum.masks import Occasion, pair_mask, self_mask, shared_secret
from quorank.privacy.secure_sum.server import SecureServer

UNLIKELY = 1e-4
LENGTH = 64
ROUNDS = 120
SAME_SUM = [(7, 7, 7), (0, 2**32 - 979, 1000)]


def rebuilt(server: SecureServer, clients, requests) -> dict[int, bytes]:
    """All that the server rebuilds: survivors' seeds and dropped clients' mask keys."""
    for name, request in requests.items():
        server.receive_reply(clients[name].unmask(request))
    secrets = {**server._seeds, **server._mask_keys}
    return {owner: server._rebuilt(owner, shares) for owner, shares in secrets.items()}


def constant(inputs) -> dict[int, np.ndarray]:
    return {c: np.full(LENGTH, x, dtype=np.uint32) for c, x in enumerate(inputs)}


def masked_inputs(inputs) -> np.ndarray:
    """(rounds, clients, length): what clients send."""
    seen = []
    for r in range(ROUNDS):
        _, _, sent, _ = started(constant(inputs), entropy=seeded((inputs, r)))
        seen.append([sent[c].vector for c in range(len(inputs))])
    return np.array(seen)


def without_self_masks(inputs) -> np.ndarray:
    """The server's whole view when nobody leaves: masked inputs minus the self masks, which it removes itself."""
    seen = []
    for r in range(ROUNDS):
        server, clients, sent, requests = started(constant(inputs), entropy=seeded((inputs, r)))
        seeds = rebuilt(server, clients, requests)
        seen.append([sent[c].vector - masks.self_mask(OCCASION, seeds[c], c, LENGTH) for c in range(len(inputs))])
    return np.array(seen)


def late_input(value: int) -> np.ndarray:
    """(rounds, length): the input of a client that came too late, minus its pair masks, which the server rebuilt."""
    seen = []
    for r in range(ROUNDS):
        server, clients, sent, requests = started(constant([value] * 4), leave=[3], entropy=seeded((value, r)))
        private = X25519PrivateKey.from_private_bytes(rebuilt(server, clients, requests)[3])
        open_input = sent[3].vector.copy()
        for other in range(3):
            secret = shared_secret(private, server._keys[other].mask_key, other)
            open_input -= masks.pair_mask(OCCASION, secret, 3, other, LENGTH)
        seen.append(open_input)
    return np.array(seen)


def uniform(words: np.ndarray) -> bool:
    """Chi-square over the bytes of words at each of the four positions, and over pairs of neighbouring nibbles."""
    raw = np.ascontiguousarray(words.ravel(), dtype="<u4").view(np.uint8).reshape(-1, 4)
    p = [stats.chisquare(np.bincount(raw[:, b], minlength=256)).pvalue for b in range(4)]
    nibbles = words.ravel() & 15
    pairs = nibbles[:-1:2] * 16 + nibbles[1::2]
    return min(*p, stats.chisquare(np.bincount(pairs, minlength=256)).pvalue) > UNLIKELY


def jointly_uniform(a: np.ndarray, b: np.ndarray) -> bool:
    """Chi-square over 16 × 16 cells of two clients' words at the same place: uniform and independent."""
    cells = (a & 15).ravel() * 16 + (b & 15).ravel()
    return bool(stats.chisquare(np.bincount(cells, minlength=256)).pvalue > UNLIKELY)


@pytest.mark.parametrize("inputs", SAME_SUM)
def test_masked_inputs_are_uniform_and_independent(inputs) -> None:
    seen = masked_inputs(inputs)
    for c in range(3):
        assert uniform(seen[:, c])
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert jointly_uniform(seen[:, a], seen[:, b])
    sums = seen.sum(axis=1, dtype=np.uint32)
    assert uniform(sums)  # even the sum, before the self masks are removed


def test_all_that_is_left_after_unmasking_is_the_sum() -> None:
    """Of inputs with equal sums: any two of three open inputs are uniform and independent, the three add up alike."""
    views = [without_self_masks(inputs) for inputs in SAME_SUM]
    for seen in views:
        assert np.all(seen.sum(axis=1, dtype=np.uint32) == 21)
        for a, b in ((0, 1), (0, 2), (1, 2)):
            assert uniform(seen[:, a])
            assert jointly_uniform(seen[:, a], seen[:, b])
    table = [np.bincount((view[:, 0] >> 24).ravel(), minlength=256) for view in views]
    assert stats.chi2_contingency(np.array(table)).pvalue > UNLIKELY


def test_an_input_that_came_too_late_stays_hidden() -> None:
    assert uniform(late_input(7))


def test_without_pair_masks_the_view_would_fail(monkeypatch) -> None:
    monkeypatch.setattr(masks, "pair_mask", lambda *args: np.zeros(LENGTH, dtype=np.uint32))
    seen = without_self_masks(SAME_SUM[1])
    assert np.all(seen.sum(axis=1, dtype=np.uint32) == 21)  # the sum alone would not notice
    assert not uniform(seen[:, 0])
    assert not jointly_uniform(seen[:, 0], seen[:, 1])
    assert uniform(masked_inputs(SAME_SUM[1])[:, 0])  # nor would the masked inputs


def test_without_self_masks_the_view_would_fail(monkeypatch) -> None:
    monkeypatch.setattr(masks, "self_mask", lambda *args: np.zeros(LENGTH, dtype=np.uint32))
    assert np.all(late_input(7) == 7)
    assert not uniform(late_input(7))


def test_masks_that_forget_the_pair_would_fail(monkeypatch) -> None:
    """One mask for all pairs of a client, here from a fixed secret, still cancels: only independence tells."""
    one = lambda o, _, a, b, d: pair_mask(o, bytes(32), min(a, b) == a, min(a, b) != a, d)  # noqa: E731
    monkeypatch.setattr(masks, "pair_mask", one)
    seen = without_self_masks(SAME_SUM[0])
    assert np.all(seen.sum(axis=1, dtype=np.uint32) == 21)
    assert not uniform(seen[:, 0])


def test_masks_of_a_pair_cancel_and_depend_on_all_that_they_are_for() -> None:
    secret = bytes(range(32))
    one = pair_mask(OCCASION, secret, 2, 5, LENGTH)
    assert np.all(one + pair_mask(OCCASION, secret, 5, 2, LENGTH) == 0)
    others = [
        pair_mask(Occasion(b"session", 4), secret, 2, 5, LENGTH),
        pair_mask(Occasion(b"sessiom", 3), secret, 2, 5, LENGTH),
        pair_mask(OCCASION, secret, 2, 6, LENGTH),
        pair_mask(OCCASION, bytes(32), 2, 5, LENGTH),
    ]
    assert all(np.mean(one == other) < 0.1 for other in others)
    assert np.array_equal(pair_mask(OCCASION, secret, 2, 5, 10), one[:10])
    same_place = pair_mask(OCCASION, secret, 2, 2, LENGTH)
    assert np.mean(self_mask(OCCASION, secret, 2, LENGTH) == same_place) < 0.1


def test_every_part_of_a_seeds_name_changes_it() -> None:
    """Session, round, purpose, both clients and the secret; nothing runs together."""
    one = Occasion(b"session", 7)
    seeds = [
        one.seed(b"s" * 32, b"purpose", 3, 9),
        one.seed(b"t" * 32, b"purpose", 3, 9),
        one.seed(b"s" * 32, b"porpoise", 3, 9),
        one.seed(b"s" * 32, b"purpose", 9, 3),
        one.seed(b"s" * 32, b"purpose", 3, 10),
        Occasion(b"session", 8).seed(b"s" * 32, b"purpose", 3, 9),
        Occasion(b"another", 7).seed(b"s" * 32, b"purpose", 3, 9),
    ]
    assert len(set(seeds)) == len(seeds) and {len(seed) for seed in seeds} == {32}

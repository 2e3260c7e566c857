"""The group key: the same at all parties, unknown to the coordinator, and refused where the coordinator cheats."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.silos.envelopes import Envelope, Kind, canonical_settings
from quorank.silos.session.agreement import Agreement, PartyIdentity, SealedChannel, commitment, derive

LOW_ORDER = [
    bytes(32),
    bytes([1]) + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]  # points of small order on Curve25519 (RFC 7748 §7 asks to refuse what they give)
NAMES = ("alpha", "beta", "gamma")


def seeded(name: object) -> Callable[[int], bytes]:
    """Repeatable entropy."""
    return random.Random(repr(name)).randbytes


def identity(name: str) -> PartyIdentity:
    """The same identity in every run."""
    return PartyIdentity(name, seeded(("identity", name))(32))


def agreements(names: Sequence[str] = NAMES, session: int = 0, **options) -> dict[str, Agreement]:
    return {n: Agreement(identity(n), names, entropy=seeded((session, n)), **options) for n in names}


def greet(parties: dict[str, Agreement]) -> dict[tuple[str, str], Envelope]:
    """Deliver all hellos; the contributions by sender and receiver."""
    found = {}
    for party in parties.values():
        for hello in party.hellos():
            for each in parties[hello.receiver].receive(hello):
                found[each.sender, each.receiver] = each
    return found


def meet(parties: dict[str, Agreement]) -> dict[tuple[str, str], Envelope]:
    sealed = greet(parties)
    for each in sealed.values():
        parties[each.receiver].receive(each)
    return sealed


def hello_of(party: Agreement, receiver: str, **changes) -> Envelope:
    body = dataclasses.replace(party.hello, **changes).to_bytes()
    return Envelope(Kind.HELLO, party.name, receiver, 0, body)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_all_parties_agree_on_one_key_and_each_pair_on_a_secret(size) -> None:
    parties = agreements([f"party-{i}" for i in range(size)])
    meet(parties)
    results = {name: party.keys for name, party in parties.items()}
    assert len({r.hashing_key for r in results.values()}) == 1
    assert len({r.fingerprint for r in results.values()}) == 1
    secrets = set()
    for name, result in results.items():
        for other, secret in result.pairs.items():
            assert results[other].pairs[name] == secret
            secrets.add(secret)
    assert len(secrets) == size * (size - 1) // 2
    assert results["party-0"].hashing_key not in secrets


def test_contributions_may_arrive_before_hellos() -> None:
    parties = agreements()
    sealed = greet(parties)
    late = agreements()["alpha"]
    late.receive(hello_of(parties["beta"], "alpha"))
    assert late.receive(sealed["beta", "alpha"]) == []
    with pytest.raises(BadInput, match="a replay"):
        late.receive(sealed["beta", "alpha"])
    assert len(late.receive(hello_of(parties["gamma"], "alpha"))) == 2
    late.receive(sealed["gamma", "alpha"])
    for each in sealed.values():
        parties[each.receiver].receive(each)
    assert late.keys.fingerprint == parties["beta"].keys.fingerprint


def test_every_contribution_counts() -> None:
    """The key changes with the contribution of any one party, all else being equal."""

    def key(other: str | None) -> bytes:
        parties = agreements()
        if other is not None:
            changed = parties[other]
            changed._contributions[other] = bytes(32)
            changed.hello = dataclasses.replace(changed.hello, commitment=commitment(other, bytes(32)))
            changed._hellos[other] = changed.hello
        meet(parties)
        return parties["alpha"].keys.hashing_key

    assert len({key(other) for other in (None, *NAMES)}) == 4


def test_the_coordinator_would_need_a_private_key_to_open_a_contribution() -> None:
    """The seal, made again from the documented formula; without one of the four secrets it does not open."""
    parties = agreements()
    sealed = greet(parties)["alpha", "beta"].body
    alpha, beta = parties["alpha"], parties["beta"]
    transcript = alpha._transcript()
    four = [
        key.agree(public, "beta")
        for key in (alpha.identity, alpha._ephemeral)
        for public in (beta.hello.identity, beta.hello.ephemeral)
    ]

    def opened(secrets: list[bytes]) -> bytes:
        pair = derive(b"".join(secrets), "pair secret", canonical_settings(alpha.hello.settings))
        key = derive(pair, "contribution", transcript, b"alpha", b"beta")
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, transcript)

    assert opened(four) == alpha._contributions["alpha"]
    for at in range(4):
        with pytest.raises(InvalidTag):
            opened([bytes(32) if i == at else secret for i, secret in enumerate(four)])


def test_a_pinned_key_is_the_only_one_that_is_taken() -> None:
    pins = {name: identity(name).public for name in NAMES}
    parties = agreements(pins=pins)
    meet(parties)
    alpha = agreements(pins=pins)["alpha"]
    with pytest.raises(BadInput, match="another key than the one pinned"):
        alpha.receive(hello_of(parties["beta"], "alpha", identity=PartyIdentity("beta").public))
    alpha.receive(hello_of(parties["beta"], "alpha"))  # nothing was spoilt


def test_without_pins_a_man_in_the_middle_shows_in_the_fingerprint() -> None:
    pair = ("alpha", "beta")
    real = agreements(pair)
    false = {n: Agreement(PartyIdentity(n), pair, entropy=seeded(("server", n))) for n in pair}
    left = {"alpha": real["alpha"], "beta": false["beta"]}
    right = {"alpha": false["alpha"], "beta": real["beta"]}
    for side in (left, right):
        meet(side)
    assert left["alpha"].keys.fingerprint == left["beta"].keys.fingerprint
    assert left["alpha"].keys.fingerprint != right["beta"].keys.fingerprint
    assert len(left["alpha"].keys.fingerprint.replace(" ", "")) == 12


def test_the_coordinator_cannot_choose_its_contribution_after_the_others() -> None:
    """It could search for equal fingerprints otherwise: a contribution must be the committed one."""
    pair = ("alpha", "beta")
    alpha = agreements(pair)["alpha"]
    server = Agreement(PartyIdentity("beta"), pair, entropy=seeded("server"))
    alpha.receive(hello_of(server, "alpha"))
    server._contributions["beta"] = bytes(32)  # chosen after it has seen alpha's
    (sealed,) = server.receive(hello_of(alpha, "beta"))
    with pytest.raises(BadInput, match="not the one it committed to"):
        alpha.receive(sealed)
    assert not alpha.is_complete


@pytest.mark.parametrize("point", LOW_ORDER)
def test_points_of_low_order_are_refused(point) -> None:
    parties = agreements()
    for place in ("identity", "ephemeral"):
        with pytest.raises(BadInput, match="low order"):
            parties["alpha"].receive(hello_of(parties["beta"], "alpha", **{place: point}))
    with pytest.raises(BadInput, match="low order"):
        PartyIdentity("alpha").agree(point, "beta")


def test_altered_replayed_and_foreign_contributions_are_refused() -> None:
    parties, earlier = agreements(), agreements(session=9)
    fresh, old = greet(parties), meet(earlier)
    alpha, good = parties["alpha"], fresh["beta", "alpha"]

    def from_beta(body: bytes) -> Envelope:
        return dataclasses.replace(good, body=body)

    foreign = (old["beta", "alpha"].body, fresh["gamma", "alpha"].body, fresh["alpha", "beta"].body)
    for body in foreign:
        with pytest.raises(BadInput, match="does not open"):
            alpha.receive(from_beta(body))
    with pytest.raises(BadInput, match="expected 48"):
        alpha.receive(from_beta(good.body[:-1]))
    alpha.receive(good)
    with pytest.raises(BadInput, match="a replay"):
        alpha.receive(good)
    assert not alpha.is_complete
    alpha.receive(fresh["gamma", "alpha"])
    assert alpha.is_complete


@given(st.integers(0, 47), st.integers(1, 255))
def test_any_altered_byte_is_noticed(place, change) -> None:
    parties = agreements()
    good = greet(parties)["beta", "alpha"]
    raw = bytearray(good.body)
    raw[place] ^= change
    with pytest.raises(BadInput, match="does not open"):
        parties["alpha"].receive(dataclasses.replace(good, body=bytes(raw)))


def test_parties_that_were_shown_different_hellos_do_not_open_each_other() -> None:
    """The coordinator swaps gamma's keys towards beta alone: already between alpha and beta nothing opens."""
    parties = agreements()
    other = Agreement(PartyIdentity("gamma"), NAMES, entropy=seeded("server"))
    alpha, beta = parties["alpha"], parties["beta"]
    alpha.receive(hello_of(beta, "alpha"))
    sealed = alpha.receive(hello_of(parties["gamma"], "alpha"))
    beta.receive(hello_of(alpha, "beta"))
    beta.receive(hello_of(other, "beta"))
    with pytest.raises(BadInput, match="does not open"):
        beta.receive(next(each for each in sealed if each.receiver == "beta"))


def test_what_cannot_be_of_the_group_is_refused() -> None:
    alpha = agreements(settings={"text": "stems"})["alpha"]
    for names, settings, words in (
        (("alpha", "beta"), {"text": "stems"}, "parties = alpha beta and this party alpha beta gamma"),
        (("beta", "alpha", "gamma"), {"text": "stems"}, "parties = beta alpha gamma"),
        (NAMES, {"text": "words"}, "tokenises text differently"),
        (NAMES, {}, "tokenises text differently"),
    ):
        with pytest.raises(BadInput, match=words):
            alpha.receive(hello_of(Agreement(identity("beta"), names, settings), "alpha"))
    hello = hello_of(agreements()["beta"], "alpha")
    for change, words in (
        ({"sender": "omega"}, "not of the group"),
        ({"sender": "alpha"}, "came back"),
        ({"receiver": "gamma"}, "not for alpha"),
        ({"number": 1}, "not part of a key agreement"),
        ({"kind": Kind.SEARCH}, "not part of a key agreement"),
    ):
        with pytest.raises(BadInput, match=words):
            alpha.receive(dataclasses.replace(hello, **change))
    with pytest.raises(BadInput, match="not of the group"):
        Agreement(identity("omega"), NAMES)
    with pytest.raises(BadInput, match="not of the group"):
        Agreement(identity("alpha"), NAMES, pins={"omega": bytes(32)})
    with pytest.raises(BadInput, match="31 bytes"):
        Agreement(identity("alpha"), NAMES, pins={"beta": bytes(31)})
    with pytest.raises(BadInput, match="32 bytes"):
        PartyIdentity("alpha", b"short")
    for names in (("alpha",), ("alpha", "alpha"), ("alpha", "no spaces"), ("alpha", "")):
        with pytest.raises(BadInput):
            Agreement(identity("alpha"), names)


def test_a_second_hello_and_borrowed_keys_are_refused() -> None:
    parties = agreements()
    alpha = parties["alpha"]
    alpha.receive(hello_of(parties["beta"], "alpha"))
    with pytest.raises(BadInput, match="said hello already"):
        alpha.receive(hello_of(parties["beta"], "alpha"))
    for copied in (alpha.hello, parties["beta"].hello):
        with pytest.raises(BadInput, match="repeats a public key"):
            alpha.receive(hello_of(parties["gamma"], "alpha", identity=copied.identity))
    with pytest.raises(BadInput, match="not agreed yet"):
        _ = alpha.keys


def test_secrets_are_not_printed_and_identities_last() -> None:
    parties = agreements()
    meet(parties)
    result = parties["alpha"].keys
    printed = repr(result) + repr(parties["alpha"].identity)
    for secret in (result.hashing_key, *result.pairs.values(), parties["alpha"].identity.private):
        assert secret.hex() not in printed and repr(secret) not in printed
    one = PartyIdentity("alpha")
    assert PartyIdentity("alpha", one.private).public == one.public != PartyIdentity("alpha").public


# ---------------------------------------------------------------- sealed channels


def channels() -> tuple[SealedChannel, SealedChannel]:
    return SealedChannel(bytes(32), "alpha", "beta"), SealedChannel(bytes(32), "beta", "alpha")


def test_envelopes_open_in_order_and_once() -> None:
    alpha, beta = channels()
    first, second, third = (alpha.seal(Kind.SEARCH, text) for text in (b"one", b"two", b"two"))
    assert second.body != third.body, "the same text never looks the same"
    assert beta.open(first) == b"one"
    with pytest.raises(BadInput, match="a replay"):
        beta.open(first)
    with pytest.raises(BadInput, match="one was withheld"):
        beta.open(third)
    assert beta.open(second) == b"two"
    again = SealedChannel(bytes(32), "beta", "alpha", beta.sent, beta.received)
    assert again.open(third) == b"two", "continued after a restart"
    with pytest.raises(BadInput, match="not from alpha to beta"):
        beta.open(beta.seal(Kind.FOUND, b"back"))


@given(st.sampled_from(["kind", "number", "body", "sender"]), st.integers(0, 18), st.integers(1, 255))
def test_every_change_of_an_envelope_is_noticed(what, at, by) -> None:
    alpha, beta = channels()
    good = alpha.seal(Kind.SEARCH, b"one")
    body = bytearray(good.body)
    body[at] ^= by
    changed = {
        "kind": dataclasses.replace(good, kind=Kind.FOUND),
        "number": dataclasses.replace(good, number=2),
        "body": dataclasses.replace(good, body=bytes(body)),
        "sender": dataclasses.replace(good, sender="gamma"),
    }[what]
    with pytest.raises(BadInput):
        beta.open(changed)
    assert beta.open(good) == b"one"

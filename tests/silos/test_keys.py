"""The group key: the same at all parties, unknown to the server, and refused where the server plays with it."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from silo_parties import SMALL, group_of, identity, seeded

from quorank.errors import BadInput
from quorank.silos.protocol.group import Field, Group
from quorank.silos.protocol.keys import Agreement, PartyIdentity, agree, checksum, commitment, derive

LOW_ORDER = [
    bytes(32),
    bytes([1]) + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]  # points of small order on Curve25519 (RFC 7748 §7 asks to refuse what they give)
GROUP = group_of(("alpha", "beta", "gamma"))


def agreements(group: Group = GROUP, session: int = 0, **options) -> dict[str, Agreement]:
    return {
        name: Agreement(identity(name), group, entropy=seeded((session, name)), **options) for name in group.parties
    }


def greet(parties: dict[str, Agreement]) -> None:
    for name, party in parties.items():
        for other in parties.values():
            if other is not party:
                other.receive_hello(name, party.hello)


def contribute(parties: dict[str, Agreement]) -> dict[tuple[str, str], bytes]:
    sealed = {(n, other): body for n, party in parties.items() for other, body in party.contributions().items()}
    for (sender, receiver), body in sealed.items():
        parties[receiver].receive_contribution(sender, body)
    return sealed


@pytest.mark.parametrize("size", [2, 3, 7])
def test_all_parties_agree_on_one_key_and_each_pair_on_a_secret(size) -> None:
    parties = agreements(group_of([f"party-{i}" for i in range(size)]))
    greet(parties)
    contribute(parties)
    results = {name: party.result() for name, party in parties.items()}
    assert len({r.hashing_key for r in results.values()}) == 1
    assert len({r.fingerprint for r in results.values()}) == 1
    secrets = set()
    for name, result in results.items():
        for other, secret in result.pairs.items():
            assert results[other].pairs[name] == secret
            secrets.add(secret)
    assert len(secrets) == size * (size - 1) // 2
    assert results["party-0"].hashing_key not in secrets


def test_another_session_gives_other_keys() -> None:
    keys = set()
    for session in range(3):
        parties = agreements(session=session)
        greet(parties)
        contribute(parties)
        result = parties["alpha"].result()
        keys |= {result.hashing_key, result.fingerprint, *result.pairs.values()}
    assert len(keys) == 3 * 4


def test_every_contribution_counts() -> None:
    """The key changes with the contribution of any one party, all else being equal."""

    def key(other: str | None) -> bytes:
        parties = agreements()
        if other is not None:
            changed = parties[other]
            changed._contribution = changed._contributions[other] = bytes(32)
            changed.hello = dataclasses.replace(changed.hello, commitment=commitment(other, bytes(32)))
            changed._hellos[other] = changed.hello
        greet(parties)
        contribute(parties)
        return parties["alpha"].result().hashing_key

    assert len({key(other) for other in (None, *GROUP.parties)}) == 4


def test_the_server_would_need_a_private_key_to_open_a_contribution() -> None:
    """The seal, made again from the documented formula; without one of the four secrets it does not open."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    from quorank.silos.protocol.messages import canonical_settings

    parties = agreements()
    greet(parties)
    alpha, beta = parties["alpha"], parties["beta"]
    sealed = alpha.contributions()["beta"]
    transcript = alpha.transcript()
    lasting, fleeting = alpha.identity._key, alpha._ephemeral
    four = [
        agree(lasting, beta.hello.identity, "beta"),
        agree(lasting, beta.hello.ephemeral, "beta"),
        agree(fleeting, beta.hello.identity, "beta"),
        agree(fleeting, beta.hello.ephemeral, "beta"),
    ]

    def opened(secrets: list[bytes]) -> bytes:
        pair = derive(b"".join(secrets), "pair secret", canonical_settings(alpha.hello.settings))
        key = derive(pair, "contribution", transcript, b"alpha", b"beta")
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, transcript)

    assert opened(four) == alpha._contribution
    for at in range(4):
        with pytest.raises(InvalidTag):
            opened([bytes(32) if i == at else secret for i, secret in enumerate(four)])


def test_a_pinned_key_is_the_only_one_that_is_taken() -> None:
    pins = {name: identity(name).public for name in GROUP.parties}
    parties = agreements(pins=pins)
    greet(parties)
    contribute(parties)
    alpha = agreements(pins=pins)["alpha"]
    swapped = dataclasses.replace(parties["beta"].hello, identity=PartyIdentity("beta").public)
    with pytest.raises(BadInput, match="another key than the one pinned"):
        alpha.receive_hello("beta", swapped)
    alpha.receive_hello("beta", parties["beta"].hello)  # nothing was spoilt


def in_between() -> tuple[dict[str, Agreement], dict[str, Agreement]]:
    """A server that plays beta to alpha and alpha to beta: two groups where the parties think there is one."""
    pair = group_of(("alpha", "beta"))
    real = agreements(pair)
    false = {n: Agreement(PartyIdentity(n), pair, entropy=seeded(("server", n))) for n in pair.parties}
    left = {"alpha": real["alpha"], "beta": false["beta"]}
    right = {"alpha": false["alpha"], "beta": real["beta"]}
    for side in (left, right):
        greet(side)
        contribute(side)
    return left, right


def test_without_pins_a_server_in_between_shows_in_the_fingerprint() -> None:
    left, right = in_between()
    assert left["alpha"].result().fingerprint == left["beta"].result().fingerprint
    assert left["alpha"].result().fingerprint != right["beta"].result().fingerprint
    assert len(left["alpha"].result().fingerprint.replace(" ", "")) == 12


def test_a_server_cannot_wait_for_the_others_before_it_chooses_its_contribution() -> None:
    """It could search for equal fingerprints otherwise: what it contributes must be what it committed to."""
    pair = group_of(("alpha", "beta"))
    alpha = agreements(pair)["alpha"]
    server = Agreement(PartyIdentity("beta"), pair, entropy=seeded("server"))
    alpha.receive_hello("beta", server.hello)
    server.receive_hello("alpha", alpha.hello)
    server._contribution = bytes(32)  # chosen after it has seen alpha's
    with pytest.raises(BadInput, match="not the one it committed to"):
        alpha.receive_contribution("beta", server.contributions()["alpha"])
    assert not alpha.is_complete


@pytest.mark.parametrize("point", LOW_ORDER)
@pytest.mark.parametrize("place", ["identity", "ephemeral"])
def test_points_of_low_order_are_refused(point, place) -> None:
    parties = agreements()
    with pytest.raises(BadInput, match="low order"):
        parties["alpha"].receive_hello("beta", dataclasses.replace(parties["beta"].hello, **{place: point}))
    with pytest.raises(BadInput, match="low order"):
        agree(X25519PrivateKey.generate(), point, "beta")


def test_altered_replayed_and_foreign_contributions_are_refused() -> None:
    parties, earlier = agreements(), agreements(session=9)
    for group in (parties, earlier):
        greet(group)
    old = contribute(earlier)
    alpha = parties["alpha"]
    fresh = parties["beta"].contributions()["alpha"]
    with pytest.raises(BadInput, match="does not open"):
        alpha.receive_contribution("beta", old["beta", "alpha"])
    with pytest.raises(BadInput, match="does not open"):
        alpha.receive_contribution("beta", parties["gamma"].contributions()["alpha"])
    with pytest.raises(BadInput, match="does not open"):
        alpha.receive_contribution("beta", alpha.contributions()["beta"])  # its own, sent back
    with pytest.raises(BadInput, match="expected 48"):
        alpha.receive_contribution("beta", fresh[:-1])
    alpha.receive_contribution("beta", fresh)
    with pytest.raises(BadInput, match="a replay"):
        alpha.receive_contribution("beta", fresh)
    assert not alpha.is_complete
    alpha.receive_contribution("gamma", parties["gamma"].contributions()["alpha"])
    assert alpha.is_complete


@given(st.integers(0, 47), st.integers(1, 255))
def test_any_altered_byte_is_noticed(place, change) -> None:
    parties = agreements()
    greet(parties)
    raw = bytearray(parties["beta"].contributions()["alpha"])
    raw[place] ^= change
    with pytest.raises(BadInput, match="does not open"):
        parties["alpha"].receive_contribution("beta", bytes(raw))


def test_parties_that_were_shown_different_hellos_do_not_open_each_other() -> None:
    """The server swaps gamma's keys towards beta alone: already between alpha and beta nothing opens."""
    parties = agreements()
    other = Agreement(PartyIdentity("gamma"), GROUP, entropy=seeded("server"))
    parties["alpha"].receive_hello("beta", parties["beta"].hello)
    parties["alpha"].receive_hello("gamma", parties["gamma"].hello)
    parties["beta"].receive_hello("alpha", parties["alpha"].hello)
    parties["beta"].receive_hello("gamma", other.hello)
    with pytest.raises(BadInput, match="does not open"):
        parties["beta"].receive_contribution("alpha", parties["alpha"].contributions()["beta"])


def test_another_set_of_parties_or_other_settings_are_refused_by_name() -> None:
    alpha = agreements()["alpha"]
    for group, words in (
        (group_of(("alpha", "beta")), "parties = alpha beta and this party alpha beta gamma"),
        (group_of(("beta", "alpha", "gamma")), "parties = beta alpha gamma"),
        (group_of(GROUP.parties, [dataclasses.replace(SMALL, rows=5)]), "body.rows = 5 and this party 6"),
        (group_of(GROUP.parties, [dataclasses.replace(SMALL, columns=80)]), "body.columns = 80 and this party 40"),
        (group_of(GROUP.parties, [SMALL, Field("title")]), "title.columns = 200 and this party missing"),
    ):
        with pytest.raises(BadInput, match=words):
            alpha.receive_hello("beta", Agreement(identity("beta"), group).hello)
    with pytest.raises(BadInput, match="not of the group"):
        alpha.receive_hello("omega", Agreement(identity("beta"), GROUP).hello)
    with pytest.raises(BadInput, match="came back"):
        alpha.receive_hello("alpha", alpha.hello)


def test_a_second_hello_and_borrowed_keys_are_refused() -> None:
    parties = agreements()
    alpha = parties["alpha"]
    alpha.receive_hello("beta", parties["beta"].hello)
    with pytest.raises(BadInput, match="said hello already"):
        alpha.receive_hello("beta", parties["beta"].hello)
    for copied in (alpha.hello, parties["beta"].hello):
        with pytest.raises(BadInput, match="repeats a public key"):
            alpha.receive_hello("gamma", dataclasses.replace(parties["gamma"].hello, identity=copied.identity))


def test_a_kept_hashing_key_goes_on_and_all_must_have_kept_the_same() -> None:
    kept = seeded("kept")(32)
    parties = agreements(hashing_key=kept)
    greet(parties)
    contribute(parties)
    assert {party.result().hashing_key for party in parties.values()} == {kept}
    for other in (None, seeded("other")(32)):
        stranger = Agreement(identity("beta"), GROUP, hashing_key=other)
        with pytest.raises(BadInput, match="hashing ="):
            agreements(hashing_key=kept)["alpha"].receive_hello("beta", stranger.hello)
    assert kept.hex() not in checksum(kept) and len(checksum(kept)) == 16


def test_nothing_is_sealed_or_concluded_too_early() -> None:
    parties = agreements()
    with pytest.raises(BadInput, match="all hellos"):
        parties["alpha"].contributions()
    with pytest.raises(BadInput, match="all hellos"):
        parties["alpha"].receive_contribution("beta", bytes(48))
    greet(parties)
    with pytest.raises(BadInput, match="all contributions"):
        parties["alpha"].result()


def test_what_cannot_be_an_agreement_is_refused() -> None:
    with pytest.raises(BadInput, match="not of the group"):
        Agreement(identity("omega"), GROUP)
    with pytest.raises(BadInput, match="not of the group"):
        Agreement(identity("alpha"), GROUP, {"omega": bytes(32)})
    with pytest.raises(BadInput, match="31 bytes"):
        Agreement(identity("alpha"), GROUP, {"beta": bytes(31)})
    with pytest.raises(BadInput, match="32 bytes"):
        PartyIdentity("alpha", b"short")
    for names in (("alpha",), ("alpha", "alpha"), ("alpha", "no spaces"), ("alpha", "")):
        with pytest.raises(BadInput):
            Group(names)


def test_secrets_are_not_printed() -> None:
    parties = agreements()
    greet(parties)
    contribute(parties)
    result = parties["alpha"].result()
    printed = repr(result) + repr(parties["alpha"].identity)
    for secret in (result.hashing_key, *result.pairs.values(), parties["alpha"].identity.private):
        assert secret.hex() not in printed and repr(secret) not in printed


def test_an_identity_is_kept_by_its_private_bytes() -> None:
    one = PartyIdentity("alpha")
    assert PartyIdentity("alpha", one.private).public == one.public
    assert PartyIdentity("alpha").public != one.public


def test_parts_of_a_derivation_do_not_run_together() -> None:
    secret = hashlib.sha256(b"secret").digest()
    made = [
        derive(secret, "purpose", b"ab", b"c"),
        derive(secret, "purpose", b"a", b"bc"),
        derive(secret, "purpose", b"abc"),
        derive(secret, "purpose"),
        derive(secret, "porpoise", b"ab", b"c"),
        derive(bytes(32), "purpose", b"ab", b"c"),
    ]
    assert len(set(made)) == len(made) and {len(key) for key in made} == {32}

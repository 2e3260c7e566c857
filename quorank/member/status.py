"""Where a device stands and what it has sent, read from its private file; also while another process plays it."""

from __future__ import annotations

from typing import Any

from quorank.errors import BadInput
from quorank.files.documents import ANYTHING, parse_json
from quorank.member.private_store import PrivateStore
from quorank.protocol.terms import Terms


def agreed_terms(store: PrivateStore) -> Terms:
    """The terms that this device agreed to."""
    found = store.fact("terms")
    if found is None:
        sentence = "this device has not joined a run yet; give an invitation"
        raise BadInput("device.not-joined", sentence, f"{store.folder}")
    return Terms.read(parse_json(found, ANYTHING, "the stored terms"))


def status_of(store: PrivateStore) -> dict[str, Any]:
    """Consent, searches, and what was sent so far."""
    terms, ranker = agreed_terms(store), store.ranker
    member, secret = store.fact("member"), store.fact("identity")
    releases, size = store.file.rows("SELECT count(*), coalesce(sum(bytes), 0) FROM releases")[0]
    leaves = store.fact("leaving") is not None
    figures: dict[str, Any] = {
        "run": terms.run,
        "client": terms.client,
        "state": "leaving" if leaves else "invited" if member is None else "enrolled",
        "consent": store.consent,
        "waiting": store.waiting(),
        "needed": terms.interactions,
        "releases": int(releases),
        "bytes_sent": int(size),
        "last_round": store.last_round(terms.run),
        "rounds": terms.rounds,
        "ranker_round": None if ranker is None else ranker.round,
        "privacy": terms.privacy.kind,
        "reports": terms.reports,
        "identity": None,
    }
    if secret is not None:
        from quorank.protocol.keys import MemberKey

        figures["identity"] = MemberKey(secret).public.hex()
    return figures


def log_of(store: PrivateStore) -> dict[str, list[dict[str, Any]]]:
    """All that ever left the device, with the whole run's privacy, and when consent was given or withdrawn.

    Times are seconds since 1970. To state the privacy may take seconds.
    """
    terms = agreed_terms(store)
    statement = terms.mechanism.statement() or {"kind": terms.privacy.kind, "epsilon": None}
    releases = [
        {
            "at": release.at,
            "run": release.run,
            "round": release.round,
            "interactions": release.interactions,
            "bytes": release.size,
            "privacy": statement | release.privacy,
        }
        for release in store.releases()
    ]
    return {"releases": releases, "consent": [{"at": at, "given": on} for at, on in store.consents()]}

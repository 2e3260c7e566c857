"""A party's lasting identity in its folder, and the key of its requests, which follows from it."""

from __future__ import annotations

import os
from pathlib import Path

from quorank.errors import BadInput, require
from quorank.files.atomic import write_whole
from quorank.protocol.keys import MemberKey
from quorank.silos.protocol.keys import Entropy, PartyIdentity, derive
from quorank.silos.protocol.messages import KEY

IDENTITY = "identity.key"


def kept_identity(folder: Path, name: str, entropy: Entropy = os.urandom) -> PartyIdentity:
    """The lasting identity of a party, made when it is first asked for; for its owner's eyes."""
    path = folder / IDENTITY
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, entropy(KEY), durable=True, private=True)
    try:
        private = path.read_bytes()
    except OSError as error:
        raise BadInput("file.unreadable", f"cannot be read ({error.strerror})", f"{path}") from None
    sentence = "this is no identity; restore it from a copy, or tell the others a new one"
    require(len(private) == KEY, "identity.damaged", sentence, f"{path}")
    return PartyIdentity(name, private)


def member_key(identity: PartyIdentity) -> MemberKey:
    """The key that signs this party's requests: it follows from its identity, so there is one secret to keep."""
    return MemberKey(derive(identity.private, "member key"))

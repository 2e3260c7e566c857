"""Public identities of a group's parties in a file, as their owners have told them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from quorank.errors import BadInput, require
from quorank.files.documents import Each, Text, read_json
from quorank.protocol.certificates import write_private
from quorank.silos.protocol.terms import SiloTerms, read_identities


def told_identities(file: Path, terms: SiloTerms) -> dict[str, bytes]:
    """Those of a file, by party; none where there is no file."""
    if not file.exists():
        return {}
    found = read_json(file, Each(Text()), advice="; restore it from a copy")
    try:
        return read_identities([f"{name}={key}" for name, key in found.items()], terms)
    except BadInput as error:
        raise error.at(f"{file}") from None


def note_identities(file: Path, terms: SiloTerms, told: Mapping[str, bytes]) -> dict[str, bytes]:
    """Keep identities that were told beside those of the file; one that differs from before is refused. All of them."""
    known = told_identities(file, terms)
    for name, key in told.items():
        sentence = (
            f"was told with another identity before; ask its owner which is right, and delete it from {file} if it is a "
            "new one"
        )
        require(known.get(name, key) == key, "identity.conflict", sentence, f"{name}")
    after = known | dict(told)
    if after != known:
        text = json.dumps({name: key.hex() for name, key in sorted(after.items())}, indent=1)
        write_private(file, text.encode())
    return after

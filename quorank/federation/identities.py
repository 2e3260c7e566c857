"""The identities that devices sign their secure sums with, as the coordinator knows them: one file of its folder.

A device's identity comes with its keys in the first exchange of a secure sum, over the line of its own node, whose key
the coordinator has given it; it signs those keys, so it is no copy of another's. It is kept with the node's name. Under
the same node no other identity is taken from then on; a new invitation makes a new node. Devices check what they are
told about each other themselves (`pins`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from quorank.documents import Each, Table, Text, read_json
from quorank.errors import BadInput
from quorank.files import write_whole

FILE = "identities.json"


def _read(folder: Path) -> dict[int, tuple[str, bytes]]:
    path = folder / FILE
    if not path.exists():
        return {}
    found = read_json(path, Each(Table({"node": Text(), "identity": Text()})), advice="; restore it from a copy")
    try:
        return {int(c): (one["node"], bytes.fromhex(one["identity"])) for c, one in found.items()}
    except ValueError as error:
        raise BadInput("file.damaged", f"damaged ({type(error).__name__}); restore it from a copy", f"{path}") from None


def known(folder: Path | None, nodes: Mapping[int, str]) -> dict[int, bytes]:
    """The identities of clients whose nodes are still the same."""
    found = {} if folder is None else _read(folder)
    return {client: key for client, (node, key) in found.items() if nodes.get(client) == node}


def note(folder: Path | None, nodes: Mapping[int, str], identities: Mapping[int, bytes]) -> None:
    """Keep what was learned; it survives a power cut, so that nobody can be someone else afterwards."""
    if folder is None:
        return
    before = _read(folder)
    after = before | {client: (nodes[client], key) for client, key in identities.items() if client in nodes}
    if after != before:
        table = {str(c): {"node": node, "identity": key.hex()} for c, (node, key) in sorted(after.items())}
        write_whole(folder / FILE, json.dumps(table, indent=1), durable=True)

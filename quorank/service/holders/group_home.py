"""Folder of a group's service: that of a coordinator of devices, with the group's terms in place of an experiment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from quorank.errors import BadInput, require
from quorank.files.documents import json_bytes, read_json
from quorank.protocol.certificates import write_private
from quorank.service import members as service_members
from quorank.service.home import SETTINGS, TERMS, Home, Settings
from quorank.service.store.sql_store import Member, SqlStore
from quorank.silos.session.terms import PublicKey, SiloTerms
from quorank.text import FEATURE_NAMES

IDENTITIES = "identities.json"
PAUSE = 5.0
"""Pause before a party that could not answer is asked again, seconds."""


def settings_of(run: str, **chosen: object) -> Settings:
    """Return the service settings of a group."""
    known: dict[str, object] = {"pause": PAUSE, "workers": 1, **chosen}
    return Settings(run, len(FEATURE_NAMES), kind="silo", **known)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SiloHome(Home):
    """Folder of a group's service."""

    @classmethod
    def make(cls, path: Path, terms: SiloTerms, settings: Settings) -> SiloHome:
        """Create the folder; an existing one must be empty."""
        return cls._made(path, settings, {TERMS: json.dumps(terms.table(), indent=1).encode()}, "group's")

    @classmethod
    def open(cls, path: Path) -> SiloHome:
        """Open the folder of an earlier start."""
        home = cls(path.absolute())
        there = (home.path / SETTINGS).is_file() and home.settings.kind == "silo"
        sentence = f"there is no group here; make one with: quorank silo start {path} --parties NAME,NAME"
        require(there, "group.missing", sentence, f"{path}")
        return home

    @cached_property
    def group(self) -> SiloTerms:
        """Terms that the parties agree to."""
        file = self.path / TERMS
        try:
            return SiloTerms.read(self.terms_table)
        except BadInput as error:
            raise error if error.where == f"{file}" else error.at(f"{file}") from None

    def check_change(self, settings: Settings) -> None:
        """Accept any change: none of the settings is part of the terms."""

    @property
    def identities(self) -> dict[str, bytes]:
        """Known public identities of parties."""
        file = self.path / IDENTITIES
        found: dict[str, bytes] = read_json(file, dict[str, PublicKey]) if file.exists() else {}
        unknown = sorted(found.keys() - set(self.group.parties))
        require(not unknown, "file.damaged", f"names {', '.join(unknown)}, not of this group", f"{file}")
        return found

    def _note_identities(self, told: Mapping[str, bytes]) -> dict[str, bytes]:
        """Store identities, refuse one that differs from before, and return all of them."""
        known, file = self.identities, self.path / IDENTITIES
        for name, key in told.items():
            said = (
                f"had another identity before; ask its owner which is right, and delete it from {file} if this one is"
            )
            require(known.get(name, key) == key, "identity.conflict", said, name)
        after = known | dict(told)
        if after != known:
            write_private(file, json_bytes(dict(sorted(after.items()))))
        return after

    def invite(self, store: SqlStore, name: str, out: Path, told: Mapping[str, bytes] | None = None) -> Member:
        """Write a party's invitation: the first one, or a replacement after a revocation."""
        parties = self.group.parties
        sentence = f"is not a party of this group; its parties are {', '.join(parties)}"
        require(name in parties, "party.unknown", sentence, f"{name}")
        known = self._note_identities(told or {})
        others, number = {party: key for party, key in known.items() if party != name}, parties.index(name)
        again = store.member(number) is not None
        return service_members.enlist(self, store, name, out, "party", self.terms_table, number, others, again)

"""Folder of a group's service: as that of a coordinator of devices, with the group's terms in place of an experiment.

The service of a group draws nothing, so it has no seed: what parties draw is their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from quorank.errors import BadInput, require
from quorank.service import members as service_members
from quorank.service.home import SETTINGS, TERMS, Home, Settings
from quorank.service.store.sql_store import Member, SqlStore
from quorank.silos.protocol.terms import SiloTerms
from quorank.silos.protocol.told_identities import note_identities, told_identities
from quorank.text import FEATURE_NAMES

IDENTITIES = "identities.json"
PAUSE = 5.0
"""Seconds before a party that could not answer is asked again."""


def settings_of(run: str, **chosen: object) -> Settings:
    """A service's settings, for a group."""
    known: dict[str, object] = {"pause": PAUSE, "workers": 1, **chosen}
    return Settings(run, len(FEATURE_NAMES), kind="silo", **known)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SiloHome(Home):
    """A group's service's folder."""

    @classmethod
    def make(cls, path: Path, terms: SiloTerms, settings: Settings) -> SiloHome:
        """Make the folder; where it is there already it must be empty."""
        return cls._made(path, settings, {TERMS: json.dumps(terms.table(), indent=1).encode()}, "group's")

    @classmethod
    def open(cls, path: Path) -> SiloHome:
        """The folder that an earlier start made."""
        home = cls(path.absolute())
        there = (home.path / SETTINGS).is_file() and home.settings.kind == "silo"
        sentence = f"there is no group here; make one with: quorank silo start {path} --parties NAME,NAME"
        require(there, "group.missing", sentence, f"{path}")
        return home

    @cached_property
    def group(self) -> SiloTerms:
        """What the parties agree to."""
        file = self.path / TERMS
        try:
            return SiloTerms.read(self.terms_table)
        except BadInput as error:
            raise error if error.where == f"{file}" else error.at(f"{file}") from None

    def check_change(self, settings: Settings) -> None:
        """A later start may change whatever is no part of the terms."""

    @property
    def identities(self) -> dict[str, bytes]:
        """The public identities of parties, where their owners have told them."""
        return told_identities(self.path / IDENTITIES, self.group)

    def invite(self, store: SqlStore, name: str, out: Path, told: Mapping[str, bytes] | None = None) -> Member:
        """Write a party's invitation: its first one, or one in the place of an invitation that was revoked."""
        parties = self.group.parties
        sentence = f"is no party of this group; its parties are {', '.join(parties)}"
        require(name in parties, "party.unknown", sentence, f"{name}")
        known = note_identities(self.path / IDENTITIES, self.group, told or {})
        others, number = {party: key for party, key in known.items() if party != name}, parties.index(name)
        again = store.member(number) is not None
        return service_members.enlist(self, store, name, out, "party", self.terms_table, number, others, again)

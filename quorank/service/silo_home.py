"""Folder of a group's coordinator: as that of a coordinator of devices, with terms in place of an experiment.

It holds no seed: the coordinator of a group draws nothing, and what parties draw is their own. Terms and settings are in
files of other names than `quorank coordinator` looks for, so neither command takes the other's folder for its own.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from quorank.certificates import write_private
from quorank.documents import ANYTHING, Each, Table, Text, read_json, shape_of
from quorank.errors import BadInput, require
from quorank.service import members as service_members
from quorank.service.home import RENEW_DAYS, Home, Settings
from quorank.service.members import InvitedMember
from quorank.silos.protocol.invitation import SiloBundle, read_identities
from quorank.silos.protocol.terms import SiloTerms
from quorank.text import FEATURE_NAMES

FORMAT = 1
SETTINGS, TERMS, IDENTITIES, SERVER = "silo.json", "terms.json", "identities.json", "session"
KEPT = ("address", "host", "port", "inside", "proxy", "pause")
"""The settings of a coordinator that mean something here; a later start may change all of them."""

PAUSE = 5.0
"""Seconds before a party that had nothing to give, or builds its sketches, is asked again."""


_FIELDS = shape_of(Settings)
_SETTINGS = Table({"format": ANYTHING}, _FIELDS.keys | _FIELDS.optional)


def settings_of(run: str, **chosen: object) -> Settings:
    """A coordinator's settings, for a group."""
    known: dict[str, object] = {"pause": PAUSE, **chosen}
    return Settings(run, len(FEATURE_NAMES), **known)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SiloHome(Home):
    """A group's coordinator's folder."""

    @classmethod
    def make(cls, path: Path, terms: SiloTerms, settings: Settings) -> SiloHome:
        """Make the folder; where it is there already it must be empty."""
        files = {TERMS: json.dumps(terms.table(), indent=1).encode()}
        return cls._made(path, settings, files, "group's")

    @classmethod
    def open(cls, path: Path) -> SiloHome:
        """The folder that an earlier start made."""
        home = cls(path.absolute())
        require(
            (home.path / SETTINGS).is_file(),
            "group.missing",
            f"there is no group here; make one with: quorank silo start {path} --parties NAME,NAME",
            f"{path}",
        )
        home.settings  # noqa: B018  refused now if it is damaged
        return home

    @cached_property
    def group(self) -> SiloTerms:
        """What the parties agree to."""
        file = self.path / TERMS
        try:
            return SiloTerms.read(read_json(file, ANYTHING, advice="; restore it from a copy"))
        except BadInput as error:
            raise error if error.where == f"{file}" else error.at(f"{file}") from None

    @cached_property
    def settings(self) -> Settings:
        file = self.path / SETTINGS
        try:
            found = read_json(file, _SETTINGS, advice="; restore it from a copy")
            version = found.pop("format")
            require(
                version == FORMAT,
                "file.version",
                f"of format {version}, and this Quorank reads {FORMAT}; install the newer",
                f"{file}",
            )
            return settings_of(self.group.run, **found)
        except TypeError as error:
            raise BadInput(
                "file.damaged", f"damaged ({type(error).__name__}); restore it from a copy", f"{file}"
            ) from None

    def write_settings(self, settings: Settings) -> None:
        kept = {name: value for name, value in asdict(settings).items() if name in KEPT}
        write_private(self.path / SETTINGS, json.dumps({"format": FORMAT, **kept}, indent=1).encode())

    def change(self, settings: Settings) -> None:
        """Take over what a later start asks for, and renew the certificate where it must be."""
        if settings.address != self.settings.address or self.days_left() < RENEW_DAYS:
            self.issue(settings)
        if settings != self.settings:
            self.write_settings(settings)
            self.__dict__["settings"] = settings

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Held while the coordinator of this folder runs."""
        self.check_stopped()
        with super().running():
            yield

    def check_stopped(self) -> None:
        """Refuse where the coordinator runs."""
        number = self.process()
        require(
            number is None,
            "coordinator.running",
            f"its coordinator runs already (process {number}); stop it with: quorank silo stop {self.path}",
            f"{self.path}",
        )

    @property
    def identities(self) -> dict[str, bytes]:
        """The public identities of parties, where their owners have told them."""
        file = self.path / IDENTITIES
        if not file.exists():
            return {}
        found = read_json(file, Each(Text()), advice="; restore it from a copy")
        try:
            return read_identities([f"{name}={key}" for name, key in found.items()], self.group)
        except ValueError as error:
            raise BadInput(
                "file.damaged", f"damaged ({type(error).__name__}); restore it from a copy", f"{file}"
            ) from None

    def note_identities(self, told: Mapping[str, bytes]) -> dict[str, bytes]:
        """Keep identities that were told, for this and later invitations; one that differs from before is refused."""
        known = self.identities
        for name, key in told.items():
            require(
                known.get(name, key) == key,
                "identity.conflict",
                f"was told with another identity before; ask its owner which is right, and delete it from "
                f"{self.path / IDENTITIES} if it is a new one",
                f"{name}",
            )
        after = known | dict(told)
        if after != known:
            text = json.dumps({name: key.hex() for name, key in sorted(after.items())}, indent=1)
            write_private(self.path / IDENTITIES, text.encode())
        return after

    def invite(self, name: str, out: Path, told: Mapping[str, bytes] | None = None) -> InvitedMember:
        """Give a party its key, and write its invitation, which holds the only copy of that key."""
        parties = self.group.parties
        require(
            name in parties,
            "party.unknown",
            f"is no party of this group; its parties are {', '.join(parties)}",
            f"{name}",
        )
        known = self.note_identities(told or {})
        others = {party: key for party, key in known.items() if party != name}

        def invitation(client: int, key: str) -> SiloBundle:
            address, authority = self.settings.address, self.authority.decode()
            return SiloBundle(name, address, authority, key, self.group, others)

        return service_members.enlist(self, name, out, lambda _: parties.index(name), invitation)

    def revoke(self, name: str) -> InvitedMember:
        """From now on nothing of this party's node is accepted; a new invitation lets the party in again."""
        return service_members.revoke(self, name, "silo")

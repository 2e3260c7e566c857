"""Process that runs a group's session between the service's store and the parties' mailboxes.

`python -m quorank.service.holders.group DIR [--exit-when-done]`. The session and its letters are in `silos.session`; this
module adds the log, the status, and the parties that leave.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from quorank.errors import BadInput, require
from quorank.files.documents import json_bytes, read_json
from quorank.protocol.certificates import write_private
from quorank.protocol.transport import SignedMailboxes
from quorank.rankers.ranker_file import ranker_bytes
from quorank.service.dashboard.status import MemberCounts, MemberStatus, Problem, RoundFigures, State, Status
from quorank.service.enrolment import enlist
from quorank.service.holders.holder_process import Held, main
from quorank.service.home import RANKER, TERMS, Home, Settings
from quorank.service.store.sql_store import Member, SqlStore
from quorank.silos.session.coordinator import PHASES, SiloPost
from quorank.silos.session.streams import SiloStreams
from quorank.silos.session.terms import PublicKey, SiloTerms
from quorank.text import FEATURE_NAMES

IDENTITIES = "identities.json"
PAUSE = 5.0  # pause before a party that could not answer is asked again, seconds
NEXT_SECONDS, OVER_SECONDS = 0.05, 60.0  # polling intervals of parties during the session, and after it, seconds
RESTS = "waits for the others"


def settings_of(run: str, **chosen: object) -> Settings:
    """Return the service settings of a group."""
    known: dict[str, object] = {"pause": PAUSE, "workers": 1, **chosen}
    return Settings(run, len(FEATURE_NAMES), kind="silo", **known)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SiloHome(Home):
    """Folder of a group's service."""

    kind = "silo"
    missing = ("group.missing", "group here; make one with: quorank silo start {} --parties NAME,NAME")

    @classmethod
    def make(cls, path: Path, terms: SiloTerms, settings: Settings) -> SiloHome:
        """Create the folder; an existing one must be empty."""
        return cls._made(path, settings, {TERMS: json.dumps(terms.table(), indent=1).encode()}, "group's")

    @cached_property
    def group(self) -> SiloTerms:
        """Terms that the parties agree to."""
        table = self.terms_table
        try:
            return SiloTerms.read(table)
        except BadInput as error:
            raise error.at(f"{self.path / TERMS}") from None

    @property
    def identities(self) -> dict[str, bytes]:
        """Known public identities of parties."""
        file = self.path / IDENTITIES
        found: dict[str, bytes] = read_json(file, dict[str, PublicKey]) if file.exists() else {}
        unknown = sorted(found.keys() - set(self.group.parties))
        require(not unknown, "file.damaged", f"names {', '.join(unknown)}, not of this group", f"{file}")
        return found

    def invite(self, store: SqlStore, name: str, out: Path, given: Mapping[str, bytes] | None = None) -> Member:
        """Write a party's invitation: the first one, or a replacement after a revocation; store the given identities."""
        parties, known, file = self.group.parties, self.identities, self.path / IDENTITIES
        sentence = f"is not a party of this group; its parties are {', '.join(parties)}"
        require(name in parties, "party.unknown", sentence, f"{name}")
        identities = known | dict(given or {})
        sentence = (
            f"had another identity before; ask its owner which one is right; if this one, delete the other from {file}"
        )
        for party, key in known.items():
            require(identities[party] == key, "identity.conflict", sentence, party)
        if identities != known:
            write_private(file, json_bytes(dict(sorted(identities.items()))))
        others = {party: key for party, key in identities.items() if party != name}
        return enlist(self, store, name, out, parties.index(name), others)


class SessionStreams(SiloStreams):
    """State of a session in a service's store; only its holder writes it."""

    def __init__(self, store: SqlStore) -> None:
        self.rows, self.transaction = store.database.execute, store.holding  # type: ignore[assignment,method-assign]


class SiloService(Held[SiloHome]):
    """Session of one folder, held by this process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        mailboxes = SignedMailboxes(self.store, self.home.key)
        self.post = SiloPost(mailboxes, SessionStreams(self.store), self.home.group, self.home.settings.pause)
        self.server = self.post.server
        self._timed = False  # the first turns of a process are not timed
        self._phase, self._turns = self.server.phase, self.server.turns[0]

    @property
    def done(self) -> bool:
        """True once all have the ranker; a group that searches continues until it is stopped."""
        return self.server.done and not self.server.searches

    @property
    def progress(self) -> tuple[int, int]:
        return self.server.turns

    def begin(self) -> None:
        """Publish that parties poll their mailboxes."""
        if not self.done:
            self.declare("secure", 0, b"", NEXT_SECONDS)

    def look(self) -> bool:
        """Process answers and send due letters."""
        busy = self.post.turn()
        self.release_leavers()
        self._record_turns()
        if self.server.done and not (self.home.path / RANKER).is_file():
            self._write_ranker()
        return busy

    def finish(self) -> None:
        self.declare("over", 0, b"", OVER_SECONDS)
        self._write_ranker()

    def _write_ranker(self) -> None:
        theta = self.server.ranker
        if theta is not None:
            self.write_file(RANKER, ranker_bytes(self.server.terms.saved_ranker(theta)))

    def forget(self, member: int) -> None:
        self.post.leave(member)

    def _record_turns(self) -> None:
        """Log completed turns, changes of the phase and refusals."""
        done, _ = self.server.turns
        if done > self._turns:
            seconds = (self.clock() - self.opened) / (done - self._turns) if self._timed else None
            self.end_round(RoundFigures(done, seconds))
            self._timed, self._turns = True, done
            self.log.write("round_closed", round=done, seconds=seconds)
        if self.server.phase != self._phase:
            self._phase = self.server.phase
            self.record("phase_begun", phase=PHASES.index(self._phase), round=done)
        refused = self.record_refused(self.server.refused)
        if refused:
            self.store.tally(refused)
        self.publish_in_time()

    def status(self, state: State | None = None) -> Status:
        """Return the status of the session, without refusals, which the page adds from the store."""
        server, parties = self.server, self.home.group.parties
        waits = [server.waits(name) for name in parties]
        sentence = (
            f"the session cannot continue without {' and '.join(server.gone)}; start another one with the other parties"
        )
        members = tuple(
            MemberStatus(number, name, "not invited", here, phase=server.phase if here or server.done else RESTS)
            for number, (name, here) in enumerate(zip(parties, waits, strict=True))
        )
        return self.base_status(
            "parties", state, sent_bytes=self.post.sent, received_bytes=self.post.received, phase=server.phase,
            rehearsal=self.home.group.seed is not None, cohort=len(parties), traffic=server.traffic(),
            problems=(Problem("party.left", sentence),) if server.blocked else (),
            counts=MemberCounts(len(parties), waiting=sum(waits)), members=members,
        )  # fmt: skip


if __name__ == "__main__":
    main(SiloHome.open, SiloService)

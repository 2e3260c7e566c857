"""Terms that the parties of a group and their coordinator agree on before anything is sent.

The terms name the parties in their order, the budget of the shared statistics, the parameters of the training and, where
parties search each other's documents, those of the search. Every message carries their digest, so parties with different
terms cannot take part in the same session. With a seed the session is a rehearsal: keys, noise and all other draws follow
from it, and nothing is protected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from quorank.errors import BadInput, require, under
from quorank.files.codec import Length, Range, decode
from quorank.kernels.arrays import Doubles
from quorank.parts import to_table
from quorank.protocol.invitation import check_run_name
from quorank.rankers.ranker_file import Origin, SavedRanker
from quorank.silos.envelopes import KEY, check_names
from quorank.silos.search.settings import SearchTerms
from quorank.silos.training.setting import TRAININGS, SiloSetting

VERSION = 3


@dataclass(frozen=True)
class SiloTerms:
    """Terms of a group's session.

    Args:
        run: Name of the session.
        parties: Names of the parties, in the group's order.
        setting: Parameters of the training.
        statistics_epsilon: ε of one occurrence of a term in the summed term statistics.
        seed: Seed of a rehearsal, in which nothing is secret.
        search: Parameters of searches over all parties' documents; None: no searches.

    Raises:
        BadInput: `run.name`, or a code of `silo-group`, `value` or `option`.

    >>> SiloTerms("spring", ("north", "south")).number("south")
    1
    """

    run: str
    parties: tuple[str, ...]
    setting: SiloSetting = field(default_factory=SiloSetting)
    statistics_epsilon: Annotated[float, Range(0.001, 64.0)] = 8.0  # ε of one occurrence in the summed term statistics
    seed: Annotated[int, Range(0, below=2**64)] | None = None
    search: SearchTerms | None = None

    def __post_init__(self) -> None:
        check_run_name(self.run)
        check_names(self.parties)

    @property
    def settings(self) -> dict[str, str]:
        """Settings stated in every hello: the fingerprint of the tokeniser on this machine."""
        return {"text": self.setting.tokeniser.fingerprint()}

    def saved_ranker(self, theta: Doubles) -> SavedRanker:
        """Return the ranker file of the trained parameters: the same at every party."""
        names, training = self.setting.searched.feature_names, self.setting.training
        origin = Origin("silo", self.digest.hex(), self.seed, training.planned_turns)
        return SavedRanker(training.ranker_part, len(names), theta, feature_names=names, origin=origin)

    @property
    def client(self) -> int:
        """Member number in the terms of all kinds of members: the same terms hold for all parties."""
        return 0

    def number(self, party: str) -> int:
        """Return the position of a party in the group."""
        said = f"{party} is not a party of this session; its parties are {', '.join(self.parties)}"
        require(party in self.parties, "party.unknown", said)
        return self.parties.index(party)

    def table(self) -> dict[str, Any]:
        """Return the terms as they stand in an invitation."""
        return {"version": VERSION, **to_table(self)}

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the terms."""
        text = json.dumps(self.table(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"quorank silo terms " + text.encode()).digest()

    @classmethod
    def read(cls, table: object) -> SiloTerms:
        """Return the terms in an invitation's table."""
        said = "expected a table; ask for a new invitation"
        if not isinstance(table, Mapping):
            raise BadInput("terms.malformed", said, "terms")
        said = f"have version {table.get('version')!r}, and this Quorank reads {VERSION}; install the coordinator's version"
        require(table.get("version") == VERSION, "terms.version", said, "terms")
        content = {key: value for key, value in table.items() if key != "version"}
        with under("terms"):
            setting = decode(dict[str, Any], content.get("setting", {}), "setting")
            training = TRAININGS.read(setting.get("training", "prior"), "setting.training", foreign=True)
            return decode(cls, content | {"setting": setting | {"training": training}})


PublicKey = Annotated[bytes, Length(KEY, KEY)]


def read_identities(texts: list[str], terms: SiloTerms) -> dict[str, bytes]:
    """Return public identities of parties by name, from texts of the form NAME=HEX."""
    found: dict[str, bytes] = {}
    for text in texts:
        name, equals, digits = text.partition("=")
        said = f"expected NAME=HEX with one of the parties {', '.join(terms.parties)}"
        require(equals and name in terms.parties, "identity.malformed", said, f"{text[:80]!r}")
        try:
            key: bytes = decode(PublicKey, digits.lower())
        except BadInput:
            said = f"a public identity has {2 * KEY} hexadecimal digits, as quorank silo join --identity prints it"
            raise BadInput("identity.malformed", said, name) from None
        said = "two different identities were given; ask which is right"
        require(found.get(name, key) == key, "identity.conflict", said, name)
        found[name] = key
    return found

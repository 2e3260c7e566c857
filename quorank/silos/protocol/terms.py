"""What the parties of a group and their coordinator agree on before anything is sent.

The terms name the parties in their order, the protocol between them (sketches, noise, budget of questions), and the
setting: which queries are asked, how instances are made, how the ranker is trained. Every message carries their digest, so
parties with different terms never understand each other. In earnest there is no seed: keys, noise and every other draw
are each party's own. A rehearsal has a seed, from which all of them follow: it protects nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from quorank.errors import BadInput, require, suggest
from quorank.files.codec import decode
from quorank.kernels.arrays import Doubles
from quorank.parts import to_table
from quorank.rankers.ranker_file import Origin, SavedRanker
from quorank.silos.learning.augmentation import Augment
from quorank.silos.learning.comparison import SiloSetting
from quorank.silos.learning.exchange import SiloProtocol
from quorank.silos.learning.instances import LABELS, Lists
from quorank.silos.learning.searched_lists import OwnSearch
from quorank.silos.learning.training import TRAININGS, Descent
from quorank.silos.protocol.group import Group
from quorank.silos.search.settings import SearchTerms
from quorank.silos.sketch.reverse_top_k import Shape
from quorank.text import FEATURE_NAMES, Features, Tokeniser

VERSION = 2
KEY_BYTES = 32
_NUMBERS = ("labelled", "noise", "asked", "tested", "test_share")
PARTS: dict[str, type[Any]] = {
    "searched": OwnSearch,
    "lists": Lists,
    "augment": Augment,
    "features": Features,
    "tokeniser": Tokeniser,
}
"""Parts of a setting of which there is one kind each."""


@dataclass(frozen=True)
class SiloTerms:
    """A run of a group of parties."""

    run: str
    parties: tuple[str, ...]  # in the group's order
    protocol: SiloProtocol
    setting: SiloSetting
    seed: int | None = None  # of a rehearsal
    search: SearchTerms | None = (
        None  # how parties search each other's documents afterwards; none do unless it is given
    )

    def __post_init__(self) -> None:
        sentence = f"a run is named by 1 to 200 letters, got {len(self.run)} of them; rename it"
        require(0 < len(self.run) <= 200, "run.name", sentence)
        self.group()
        sentence = "clicks are simulated in one process; over a network train with round-robin or averaging"
        require(self.setting.training.runs_in_turns, "option.conflict", sentence, "setting.training")
        sentence = (
            f"{self.setting.training.kind} asks the others about terms, and they answer no question; train with prior, or "
            "allow questions by name: protocol.questions, and protocol.perturbation = published for the paper's form"
        )
        require(not self.asks or self.protocol.questions, "option.conflict", sentence, "setting.training")
        sentence = "a reference rank over all parties' documents is known to nobody; take judged"
        require(not self.setting.labels.needs_all_documents, "option.conflict", sentence, "setting.labels")
        sentence = f"must be a whole number from 0 to 2^64 − 1, got {self.seed}"
        require(self.seed is None or 0 <= self.seed < 2**64, "value.out-of-range", sentence, "seed")

    def group(self) -> Group:
        """The parties, their fields, and how this machine makes terms of texts."""
        return replace(self.protocol.group(self.parties), text=self.setting.tokeniser.fingerprint())

    @property
    def asks(self) -> bool:
        """Whether parties ask each other about terms before they train."""
        return not self.setting.training.learns_from_sums

    @property
    def descent(self) -> Descent:
        """How the ranker is trained, where that is in turns on instances."""
        return cast("Descent", self.setting.training)

    @property
    def turns(self) -> int:
        """Turns of one training."""
        return self.setting.from_sums.planned_turns if self.setting.training.learns_from_sums else self.descent.length

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the ranker's features, in their order."""
        return self.setting.searched.feature_names if self.setting.training.learns_from_sums else FEATURE_NAMES

    def saved_ranker(self, theta: Doubles) -> SavedRanker:
        """Return the trained ranker as its file holds it: the same at every party."""
        ranker, names = self.setting.ranker_part, self.feature_names
        origin = Origin("silo", self.digest().hex(), self.seed, self.turns)
        return SavedRanker(ranker, len(names), theta, feature_names=names, origin=origin)

    def number(self, party: str) -> int:
        """The place of a party in the group."""
        sentence = f"{party} is no party of this run; its parties are {', '.join(self.parties)}"
        require(party in self.parties, "party.unknown", sentence)
        return self.parties.index(party)

    def table(self) -> dict[str, Any]:
        """For an invitation, and for a file of tables."""
        seeded = {} if self.seed is None else {"seed": self.seed}
        return {
            "version": VERSION,
            "run": self.run,
            "parties": list(self.parties),
            **seeded,
            "protocol": to_table(self.protocol),
            "setting": to_table(self.setting),  # type: ignore[arg-type]
            **({} if self.search is None else {"search": to_table(self.search)}),
        }

    @cached_property
    def _digest(self) -> bytes:
        text = json.dumps(self.table(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"quorank silo terms " + text.encode()).digest()

    def digest(self) -> bytes:
        """32 bytes that stand for the terms."""
        return self._digest

    @classmethod
    def read(cls, table: object) -> SiloTerms:
        """From such a table; every mistake is a sentence."""
        require(isinstance(table, Mapping), "terms.malformed", "expected a table; ask for a new invitation", "terms")
        assert isinstance(table, Mapping)
        sentence = (
            f"of version {table.get('version')}, and this Quorank reads {VERSION}; install the same version as the "
            "coordinator"
        )
        require(table.get("version") == VERSION, "terms.version", sentence, "terms")
        known = ("version", "run", "parties", "seed", "protocol", "setting", "search")
        for key in table:
            if key not in known:
                sentence = f"unknown key {key!r}{suggest(key, known)}; known: {', '.join(known)}"
                raise BadInput("key.unknown", sentence, f"terms.{key}")
        parties, seed = table.get("parties"), table.get("seed")
        sound = isinstance(table.get("run"), str) and (seed is None or type(seed) is int)
        if not sound or not isinstance(parties, list | tuple) or not all(isinstance(p, str) for p in parties):
            raise BadInput(
                "terms.malformed", "something is missing or of the wrong kind; ask for a new invitation", "terms"
            )
        try:
            return cls(
                table["run"],
                tuple(parties),
                read_protocol(table.get("protocol", {})),
                read_setting(table.get("setting", {})),
                seed,
                read_search(table.get("search")),
            )
        except BadInput as error:
            raise error.at("terms") from None


def read_protocol(table: object, where: str = "protocol") -> SiloProtocol:
    """A protocol from its table."""
    fields = _fields(table, where, SiloProtocol.kind)
    shape = fields.pop("shape", None)
    found = decode(SiloProtocol, fields, where)
    if shape is None:
        return found
    place = f"{where}.shape"
    return replace(found, shape=decode(Shape, _fields(shape, place, Shape.kind), place))


def read_setting(table: object, where: str = "setting") -> SiloSetting:
    """A setting from its table; what is missing is as in `SiloSetting()`."""
    fields = _fields(table, where, None)
    values: dict[str, Any] = {}
    for name, family in (("labels", LABELS), ("training", TRAININGS)):
        if name in fields:
            values[name] = family.read(fields.pop(name), f"{where}.{name}", foreign=True)
    for name, part in PARTS.items():
        if name in fields:
            place = f"{where}.{name}"
            values[name] = decode(part, _fields(fields.pop(name), place, part.kind), place)
    for name in fields:
        if name not in _NUMBERS:
            known = ", ".join((*_NUMBERS, "labels", "training", *PARTS))
            raise BadInput(
                "key.unknown", f"unknown key {name!r}{suggest(name, _NUMBERS)}; known: {known}", f"{where}.{name}"
            )
    return replace(decode(SiloSetting, fields, where), **values)


def read_search(table: object, where: str = "search") -> SearchTerms | None:
    """How parties search each other, from its table; None where there is none."""
    if table is None:
        return None
    found = decode(SearchTerms, _fields(table, where, SearchTerms.kind), where)
    sentence = "the published form answers by the term, and is there for comparison in one process; take strict"
    require(found.perturbation != "published", "option.conflict", sentence, f"{where}.perturbation")
    return found


def _fields(table: object, where: str, kind: str | None) -> dict[str, Any]:
    """The entries of a table, without the word that names its kind."""
    if not isinstance(table, Mapping):
        raise BadInput("value.wrong-type", f"expected a table, got {table!r}", f"{where}")
    fields = dict(table)
    if kind is not None:
        named = fields.pop("kind", kind)
        require(named == kind, "value.wrong-type", f"expected {kind!r}, got {named!r}", f"{where}.kind")
    return fields


def read_identity(text: str, terms: SiloTerms) -> tuple[str, bytes]:
    """A party and its public identity, of NAME=HEX."""
    name, equals, digits = text.partition("=")
    sentence = f"expected NAME=HEX with one of the parties {', '.join(terms.parties)}"
    require(equals and name in terms.parties, "identity.malformed", sentence, f"{text[:80]!r}")
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        key = b""
    sentence = f"a public identity has {2 * KEY_BYTES} hexadecimal digits, as quorank silo join --identity prints it"
    require(len(key) == KEY_BYTES, "identity.malformed", sentence, f"{name}")
    return name, key


def read_identities(texts: list[str], terms: SiloTerms) -> dict[str, bytes]:
    """Several of them; a party that is given two is refused."""
    found: dict[str, bytes] = {}
    for text in texts:
        name, key = read_identity(text, terms)
        sentence = "two different identities were given; ask which is right"
        require(found.get(name, key) == key, "identity.conflict", sentence, f"{name}")
        found[name] = key
    return found

"""The experiment file of a group: who the parties are, how they answer each other, and what is trained.

`[silo]` holds the parties and what each brings, `[text]` the language of their documents, `[ranking]` the lists that are
ranked, `[search]` how parties search each other's documents afterwards, which they do only where the section is there;
`[protocol]`, `[augment]`, `[training]`, `[lists]` and `[features]` are parts as everywhere. What a file does not say is the
default. A `seed` at the top makes a rehearsal: then keys and noise follow from it, and nothing is secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_args

from quorank.errors import BadInput, require, suggest
from quorank.experiments.experiment_file import ExperimentFile
from quorank.files.codec import decode
from quorank.parts import to_table
from quorank.silos.learning.augmentation import Augment
from quorank.silos.learning.comparison import SiloSetting
from quorank.silos.learning.exchange import SiloProtocol
from quorank.silos.learning.instances import LABELS
from quorank.silos.learning.training import TRAININGS
from quorank.silos.protocol.terms import PARTS, SiloTerms, read_protocol, read_search
from quorank.silos.search.settings import SearchTerms
from quorank.text import Tokeniser
from quorank.text.function_words import Language

ONE_KIND = {"searched": "ranking", "lists": "lists", "features": "features", "tokeniser": "text"}
"""Parts of a setting of which there is one kind, and their sections."""
SECTIONS = ("silo", "protocol", "augment", "training", "search", *ONE_KIND.values())
OWN = tuple(
    field.name for field in fields(SiloSetting) if field.name not in ("labels", "augment", "training", *ONE_KIND)
)
"""The keys of `[silo]` beside parties, run and labels: labelled, noise, asked, tested, test_share."""

_AUGMENTS = {"recommended": Augment.recommended, "published": Augment.published}

_PLACES = {"setting.training": "training.kind", "setting.labels": "silo.labels", "seed": "seed"}
"""Which key of a file holds what the terms refuse; everything else is in [silo]."""


def read_group(document: ExperimentFile, run: str) -> SiloTerms:
    """The terms that a file describes; every mistake is a sentence with its place."""
    try:
        return _read(document.tables, run)
    except BadInput as error:
        raise document.located(error) from None


def group_of(parties: tuple[str, ...], run: str, *, search: bool = False) -> SiloTerms:
    """The terms of parties that settle nothing else."""
    return SiloTerms(run, parties, SiloProtocol(), SiloSetting(), None, SearchTerms() if search else None)


def _read(tables: Mapping[str, Any], run: str) -> SiloTerms:
    known = (*SECTIONS, "seed")
    for key in tables:
        if key not in known:
            raise BadInput(
                "key.unknown", f"unknown section {key!r}{suggest(key, known)}; known: {', '.join(known)}", f"{key}"
            )
    silo = dict(_section(tables, "silo"))
    parties = silo.pop("parties", None)
    if not isinstance(parties, list) or not all(isinstance(name, str) for name in parties):
        raise BadInput(
            "value.wrong-type", 'expected the names of the parties, such as ["north", "south"]', "silo.parties"
        )
    name = silo.pop("run", run)
    require(isinstance(name, str), "value.wrong-type", f"expected a text, got {name!r}", "silo.run")
    seed = tables.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise BadInput("value.wrong-type", f"expected a whole number, got {seed!r}", "seed")
    setting = _setting(tables, silo)
    protocol = read_protocol(_section(tables, "protocol"))
    try:
        search = read_search(_section(tables, "search")) if "search" in tables else None
        return SiloTerms(name, tuple(parties), protocol, setting, seed, search)
    except BadInput as error:
        if error.where in _PLACES:
            raise BadInput(error.code, error.sentence, _PLACES[error.where]) from None
        raise error.under("silo") from None


def _setting(tables: Mapping[str, Any], silo: dict[str, Any]) -> SiloSetting:
    """What a party brings and what is trained."""
    labels = LABELS.read(silo.pop("labels", "judged"), "silo.labels")
    for key in silo:
        if key not in OWN:
            allowed = ("parties", "run", "labels", *OWN)
            raise BadInput(
                "key.unknown", f"unknown key {key!r}{suggest(key, allowed)}; known: {', '.join(allowed)}", f"silo.{key}"
            )
    several = {
        key: [value] if key in ("labelled", "noise") and not isinstance(value, list) else value
        for key, value in silo.items()
    }
    plain = decode(SiloSetting, several, "silo")
    return replace(
        plain,
        labels=labels,
        augment=_augment(tables.get("augment", {})),
        training=TRAININGS.read(tables.get("training", "prior"), "training"),
        **{
            name: decode(PARTS[name], _recommended(name, _section(tables, section)), section)
            for name, section in ONE_KIND.items()
        },
    )


def _recommended(name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a section; of a text those that its language settles are the language's unless they are given."""
    table = _without_kind(section)
    if name != "tokeniser":
        return table
    language = table.pop("language", "english")
    known = get_args(Language)
    sentence = f"unknown language {language!r}{suggest(language, known)}; known: {', '.join(known)}"
    require(language in known, "value.not-a-choice", sentence, "text.language")
    return _without_kind(to_table(Tokeniser.for_language(language))) | table


def _augment(spec: object) -> Augment:
    """A word for all of it, or a table with what differs from the recommended."""
    if isinstance(spec, str):
        sentence = f"expected recommended, published or a section [augment], got {spec!r}"
        require(spec in _AUGMENTS, "value.wrong-type", sentence, "augment")
        return _AUGMENTS[spec]()
    require(isinstance(spec, Mapping), "value.wrong-type", f"expected a section [augment], got {spec!r}", "augment")
    assert isinstance(spec, Mapping)
    table = to_table(Augment.recommended()) | dict(spec)
    return decode(Augment, _without_kind(table), "augment")


def _section(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = tables.get(name, {})
    if not isinstance(section, Mapping):
        raise BadInput("value.wrong-type", f"expected a section [{name}], got {section!r}", f"{name}")
    return section


def _without_kind(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "kind"}

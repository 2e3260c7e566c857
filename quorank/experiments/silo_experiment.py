"""Experiment file of a group: its parties, the text of their documents, and the training of the ranker.

`[silo]` names the parties and divides their queries, `[text]` sets the language of their documents, `[ranking]` the lists
that are ranked, `[training]` and `[features]` are parts as everywhere. With a section `[search]` the parties also search
each other's documents. Missing keys have their defaults. A `seed` at the top makes a rehearsal, in which keys and noise
follow from it and nothing is secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from quorank.errors import BadInput, require, suggest, under
from quorank.experiments.experiment_file import ExperimentFile, check_keys, section_of
from quorank.files.codec import decode
from quorank.parts import to_table
from quorank.silos.search.settings import SearchTerms
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.lists import OwnSearch
from quorank.silos.training.setting import TRAININGS, SiloSetting
from quorank.text import Features, Tokeniser
from quorank.text.function_words import Language

# fields of a setting of one kind: section and class
ONE_KIND: dict[str, tuple[str, type[Any]]] = {
    "searched": ("ranking", OwnSearch),
    "features": ("features", Features),
    "tokeniser": ("text", Tokeniser),
}
SECTIONS = ("silo", "training", "search", *(section for section, _ in ONE_KIND.values()))
OWN = ("labelled", "tested", "test_share")  # keys of `[silo]` that belong to the setting
TERMS = ("parties", "run", "statistics_epsilon")  # keys of `[silo]` that belong to the terms


def read_group(document: ExperimentFile, run: str) -> SiloTerms:
    """Return the terms in a file; `run` is the name of the session unless the file has one.

    Raises:
        BadInput: Any mistake, with the place of its key.
    """
    try:
        return _read(document.tables, run)
    except BadInput as error:
        raise document.located(error) from None


def _read(tables: Mapping[str, Any], run: str) -> SiloTerms:
    check_keys(tables, (*SECTIONS, "seed"), code="key.unknown")
    silo = section_of(tables, "silo")
    with under("silo"):
        check_keys(silo, (*TERMS, *OWN), code="key.unknown")
        require("parties" in silo, "value.missing", 'is missing; name them, such as ["north", "south"]', "parties")
        labelled = silo.get("labelled", [])
        own = {key: silo[key] for key in OWN if key in silo}
        own |= {"labelled": labelled if isinstance(labelled, list) else [labelled]}
        decode(SiloSetting, own)
    training = TRAININGS.read(tables.get("training", "prior"), "training")
    parts = {
        name: decode(part, _with_language(name, section_of(tables, section)), section)
        for name, (section, part) in ONE_KIND.items()
    }
    search = decode(SearchTerms, section_of(tables, "search"), "search") if "search" in tables else None
    content = {"run": run} | {key: silo[key] for key in TERMS if key in silo}
    content |= {"setting": decode(SiloSetting, own | {"training": training} | parts), "search": search}
    if "seed" in tables:
        content["seed"] = tables["seed"]
    try:
        return decode(SiloTerms, content)
    except BadInput as error:
        raise error if error.where.split(".")[0] in ("seed", "search") else error.under("silo") from None


def _with_language(name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a section; those of `[text]` have the defaults of its language."""
    table = {key: value for key, value in section.items() if key != "kind"}
    if name != "tokeniser":
        return table
    language = table.pop("language", "english")
    known = get_args(Language)
    said = f"unknown language {language!r}{suggest(language, known)}; known: {', '.join(known)}"
    require(language in known, "value.not-a-choice", said, "text.language")
    return to_table(Tokeniser.for_language(language)) | table

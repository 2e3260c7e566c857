"""A paper's figure as a file: an experiment, the variants that are compared, and what the paper found.

    [figure]        title, paper, claim, measures, repetitions: see `Header`
    [grid]          dotted keys and their values: a column of panels for each combination
    [[collection]]  label, and the settings that go with one collection: a row of panels each
    [[variant]]     label, and the settings that differ: a curve each; the others are compared with the first
    [[check]]       one finding of the paper in a form that can be counted: see `Check`
    [quick]         repetitions, grid and settings of the short version

and the sections of an experiment, which hold for all. Variants go over collections, and those over [quick]
and the sections; collections and variants may have a `quick` table of their own. A part that names its kind
(`learner = { kind = "evolution" }`) replaces the part; other tables are merged. A `centralised` variant has
one client that makes all interactions of a round.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorank.data.source import INTENTS, count_folds, find_files, folder_of
from quorank.errors import BadInput, require
from quorank.experiments.experiment import SECTIONS, Experiment
from quorank.experiments.experiment_file import ExperimentFile, flatten, read_experiment_file, set_key
from quorank.experiments.grid import Cell
from quorank.parts import read_fields, suggest
from quorank.reproduce import figure_parts
from quorank.reproduce.figure_parts import LINES, Check, Choice, Header

TABLES = ("figure", "grid", "collection", "variant", "check", "quick")


@dataclass(frozen=True)
class Figure:
    """A figure file, read for the full or the quick version; every cell has been checked."""

    name: str
    header: Header
    quick: bool
    data: str | None  # the user's own collection instead of the file's
    asked: int | None  # repetitions, where they are not the file's
    collections: tuple[Choice, ...]
    variants: tuple[Choice, ...]
    columns: tuple[Mapping[str, Any], ...]  # a combination of grid values for each column of panels
    checks: tuple[Check, ...]
    cells: list[Cell]  # values: collection, variant, column (its index), repetition (from 1)

    @property
    def title(self) -> str:
        return self.header.title + (" (quick version)" if self.quick else "")

    def column_label(self, index: int) -> str:
        return ", ".join(str(value) for value in self.columns[index].values())


def names() -> list[str]:
    """All figures that are grids of runs, such as "fpdgd/figure3"."""
    return figure_parts.names(studies=False)


def load_figure(
    name: str, *, quick: bool = False, data: str | None = None, repetitions: int | None = None
) -> Figure:
    """The shipped figure of this name."""
    known = names()
    if name not in known:
        known = sorted(known + figure_parts.names(studies=True))
        close = [k for k in known if name and name in k.split("/")]
        hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else suggest(name, known)
        raise BadInput(f"there is no figure {name!r}{hint}; known: {', '.join(known)}")
    path = figure_parts.PAPERS / f"{name}.toml"
    document = replace(read_experiment_file(path), name=f"{name}.toml")
    return read_figure(document, name, quick=quick, data=data, repetitions=repetitions)


def read_figure(
    document: ExperimentFile,
    name: str,
    *,
    quick: bool = False,
    data: str | None = None,
    repetitions: int | None = None,
) -> Figure:
    """A figure from its file; mistakes are sentences that name the file."""
    if data is not None:
        folds_of(data)  # what is wrong with it is no mistake of the file
    try:
        return _read(document, name, quick, data, repetitions)
    except BadInput as error:
        message = str(error)
        raise BadInput(
            message if message.startswith(document.name) else f"{document.name}: {message}"
        ) from None


def _read(
    document: ExperimentFile, name: str, quick: bool, data: str | None, repetitions: int | None
) -> Figure:
    tables = document.tables
    for key in tables:
        known = (*TABLES, *SECTIONS)
        require(key in known, f"unknown section {key!r}{suggest(key, known)}; known: {', '.join(known)}")
    shorter = dict(tables.get("quick", {})) if quick else {}
    header = read_fields(Header, tables.get("figure", {}), "figure")
    count = shorter.pop("repetitions", header.repetitions)
    header = replace(header, repetitions=repetitions or count)
    axes = flatten(tables.get("grid", {})) | flatten(shorter.pop("grid", {}))
    for key, values in axes.items():
        require(isinstance(values, list) and values, f"grid.{key}: expected a list of values, got {values!r}")
    columns = tuple(dict(zip(axes, found, strict=True)) for found in itertools.product(*axes.values()))
    collections = _choices(tables, "collection", quick)
    checks = tuple(read_fields(Check, table, "check") for table in _tables(tables, "check"))
    if data is not None:
        # A collection of one's own stands for the first of the figure's: in its settings and in its findings.
        swap = {collections[0].label: _short(data)}
        checks = tuple(replace(c, only=tuple(swap.get(word, word) for word in c.only)) for c in checks)
        settings = overlaid(collections[0].settings, {"data": {"source": data, "queries": None}})
        collections = (Choice(_short(data), settings),)
    variants = _choices(tables, "variant", quick)
    for check in checks:
        for label in check.variants:
            labels = [v.label for v in variants]
            require(label in labels, f"check {check.claim!r}: no variant {label!r}{suggest(label, labels)}")
        require(
            check.measure in ("", *header.measures), f"check {check.claim!r}: {check.measure} is not shown"
        )
    base = {key: tables[key] for key in SECTIONS if key in tables}
    cells = [
        _cell(document, base, shorter, collection, (index, column), variant, repetition)
        # Repetitions outermost: after an interruption all curves are equally far.
        for repetition in range(1, header.repetitions + 1)
        for collection in collections
        for index, column in enumerate(columns)
        for variant in variants
    ]
    require(
        len({cell.name for cell in cells}) == len(cells), "two cells have the same name; give other labels"
    )
    return Figure(name, header, quick, data, repetitions, collections, variants, columns, checks, cells)


def _cell(
    document: ExperimentFile,
    base: Mapping[str, Any],
    shorter: Mapping[str, Any],
    collection: Choice,
    column: tuple[int, Mapping[str, Any]],
    variant: Choice,
    repetition: int,
) -> Cell:
    index, values = column
    tables = base
    for settings in (shorter, collection.settings, variant.settings):
        tables = overlaid(tables, settings)
    tables = overlaid(tables, {})
    for key, value in values.items():
        set_key(tables, key, value)
    if variant.centralised:
        plan = Experiment.read(ExperimentFile(tables, document.name)).federation
        tables = overlaid(
            tables, {"federation": {"clients": 1, "interactions": plan.clients * plan.interactions}}
        )
    tables["seed"] = repetition
    section = {key: value for key, value in tables.get("data", {}).items() if value is not None}
    folds = folds_of(section.get("source"))
    tables["data"] = section | {"fold": (repetition - 1) % folds + 1 if folds else 0}
    words = (collection.label, *values.values(), variant.label, repetition)
    where = {
        "collection": collection.label,
        "column": index,
        "variant": variant.label,
        "repetition": repetition,
    }
    return Cell(",".join(map(_word, words)), where, Experiment.read(ExperimentFile(tables, document.name)))


def folds_of(source: str | None) -> int:
    """Folds of a collection; generated ones have one, and intents are tested on their training queries, as in the
    thesis (fold 0).
    """
    if source is None or source.startswith("synthetic:"):
        return 1
    if source.startswith(INTENTS):
        folder_of(source.removeprefix(INTENTS))
        return 0
    folder = folder_of(source)
    folds = count_folds(folder)
    for fold in range(1, folds + 1):
        find_files(folder, fold)  # what is missing is said before any run
    return folds


def overlaid(tables: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with these settings on top; a part that names its kind replaces the one below."""
    result = {k: overlaid(v, {}) if isinstance(v, Mapping) else v for k, v in tables.items()}
    for key, value in settings.items():
        below = result.get(key)
        if isinstance(below, str) and isinstance(value, Mapping) and "kind" not in value:
            below = {"kind": below}
        merges = isinstance(value, Mapping) and "kind" not in value
        result[key] = overlaid(below if isinstance(below, Mapping) else {}, value) if merges else value
    return result


def _choices(tables: Mapping[str, Any], key: str, quick: bool) -> tuple[Choice, ...]:
    found = []
    for number, table in enumerate(_tables(tables, key), start=1):
        settings = dict(table)
        label, shorter = settings.pop("label", ""), settings.pop("quick", {})
        colour, line = settings.pop("colour", number), settings.pop("line", "solid")
        centralised = settings.pop("centralised", False)
        require(isinstance(label, str) and label, f"{key} {number}: label is missing")
        require(
            isinstance(colour, int) and colour >= 1,
            f"{key} {label!r}: colour must be 1 or more, got {colour!r}",
        )
        require(line in LINES, f"{key} {label!r}: line must be one of {', '.join(LINES)}, got {line!r}")
        require(isinstance(centralised, bool), f"{key} {label!r}: centralised must be true or false")
        for section in (*settings, *shorter):
            require(
                section in SECTIONS, f"{key} {label!r}: unknown key {section!r}{suggest(section, SECTIONS)}"
            )
        found.append(Choice(label, overlaid(settings, shorter if quick else {}), colour, line, centralised))
    require(found, f"expected at least one [[{key}]]")
    require(len({c.label for c in found}) == len(found), f"two of [[{key}]] have the same label")
    return tuple(found)


def _tables(tables: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    found = tables.get(key, [])
    good = isinstance(found, list) and all(isinstance(table, Mapping) for table in found)
    require(good, f"{key}: expected tables [[{key}]]")
    return list(found)


def _short(source: str) -> str:
    """A name for a collection: where it lies on somebody's machine is nobody else's business."""
    return (
        source.removeprefix("synthetic:") if source.startswith("synthetic:") else Path(source).resolve().name
    )


def _word(value: Any) -> str:
    return re.sub(r"[^A-Za-z0-9_.+=\-]+", "-", str(value)).strip("-.") or "empty"

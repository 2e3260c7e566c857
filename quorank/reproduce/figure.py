"""Figure files: a paper's figure as an experiment, the variants that it compares, and what the paper found.

    [figure]        title, paper, claim, measures, repetitions: see `FigureHeader`
    [grid]          dotted keys and their values: a column of panels for each combination
    [[collection]]  label, and the settings that go with one collection: a row of panels each
    [[variant]]     label, and the settings that differ: a curve each; the others are compared with the first
    [[check]]       one finding of the paper in a form that can be counted: see `Check`
    [[published]]   the paper's own numbers, next to the measured ones: see `Published`
    [quick]         repetitions, grid and settings of the short version

and the sections of an experiment, which hold for all. Settings of variants override those of collections, and these
override [quick] and the sections; collections and variants may have a `quick` table of their own. A part that names its
kind (`learner = { kind = "evolution" }`) replaces the part; other tables are merged. In a `centralised` variant one
client makes all interactions of a round. Files with a [study] instead: `quorank.reproduce.studies`.

The directory of a reproduced figure holds its runs, and figure.json, which says what figure they belong to.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from quorank import __version__
from quorank.data.layout import count_folds, find_files
from quorank.data.library import folder_of
from quorank.data.logs.click_log import is_log
from quorank.data.source import INTENTS
from quorank.errors import BadInput, require, suggest
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import SECTIONS, Experiment
from quorank.experiments.experiment_file import ExperimentFile, flatten, read_experiment_file, set_key
from quorank.experiments.grid import Cell, Grid
from quorank.experiments.run_directory import CURVES
from quorank.files.atomic import make_folder, write_whole
from quorank.files.codec import Length, Range, decode
from quorank.files.documents import json_bytes, read_json

PAPERS = Path(__file__).parent / "papers"
IDENTITY = "figure.json"
MOST_VALUES = 1000  # of one key of a grid
PUBLISHED_MEANS = {"evaluation": {"no_relevant": "published"}}  # as the papers report, unless a file says otherwise
TABLES = ("figure", "grid", "collection", "variant", "check", "published", "quick")


@dataclass(frozen=True)
class FigureHeader:
    """[figure]: what is shown and what the paper says about it."""

    title: str
    about: str  # one line for the list of figures
    paper: str
    claim: str  # what the paper found, in a sentence
    differs: str = ""  # where this experiment is not the paper's
    measures: Annotated[tuple[str, ...], Length(100, 1)] = ("offline_ndcg@10",)  # columns of the history
    x: Literal["interactions", "rounds"] = "interactions"
    # runs of a cell, each with its own seed, and its own fold where there are several
    repetitions: Annotated[int, Range(1, 1000)] = 5

    def __post_init__(self) -> None:
        for measure in self.measures:
            known = suggest(measure, CURVES)
            require(measure in CURVES, "value.unknown", f"unknown measure {measure!r}{known}", "measures")


@dataclass(frozen=True)
class Published:
    """[[published]]: numbers that a table of the paper prints.

    `rows` holds a number for each of `columns`, by label. In a figure whose curves are runs, labels are those of variants
    and columns those of panels, so that each number is next to the measured one; in a study the table is separate.
    """

    where: str  # table and collection of the paper
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]
    collection: str = ""  # of the figure, for these numbers
    measure: str = ""  # default: the first of the figure
    rounds: int = 0  # of the paper's runs, for sums over rounds

    def __post_init__(self) -> None:
        sentence = f"expected {len(self.columns)} numbers, one for each column"
        for label, values in self.rows.items():
            require(len(values) == len(self.columns), "value.wrong-type", sentence, f"rows.{label}")

    def text(self, number: float) -> str:
        """Return a number with as many decimals as the table's longest has."""
        decimals = max(len(repr(value).partition(".")[2]) for values in self.rows.values() for value in values)
        return f"{number:.{decimals}f}"


@dataclass(frozen=True)
class PaperFigure:
    """Figure or table of a paper as a person asked for it: full or quick, on which data, how often repeated."""

    name: str  # such as "fpdgd/figure3"
    header: FigureHeader
    quick: bool
    data: str | None  # the user's own collection instead of the file's
    asked_repetitions: int | None  # None: as many as the file says
    published: tuple[Published, ...]  # the paper's own numbers

    @property
    def title(self) -> str:
        return self.header.title + (" (quick version)" if self.quick else "")

    def identity(self) -> dict[str, Any]:
        """Return name, size, data and version, as figure.json and results.json hold them."""
        return {"figure": self.name, "quick": self.quick, "data": self.data, "version": __version__}

    @property
    def command(self) -> str:
        """Command line that repeats this figure."""
        words = ["quorank reproduce", self.name]
        words += ["--quick"] if self.quick else []
        words += ["--data", shlex.quote(self.data)] if self.data else []
        words += ["--repetitions", str(self.asked_repetitions)] if self.asked_repetitions else []
        return " ".join(words)


@dataclass(frozen=True)
class Check:
    """[[check]]: a finding of the paper as comparisons of variants.

    Each variant of `above` is above each of `below`; or all `similar` ones are alike; or each one that `falls` ends
    below where it was before.
    """

    claim: str
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    similar: tuple[str, ...] = ()
    falls: tuple[str, ...] = ()
    # share of the run at which variants are compared; for `falls`, the earlier point
    at: Annotated[float, Range(above=0.0, most=1.0)] = 1.0
    within: float = 0.01  # a difference that still counts as similar
    to_first: bool = False  # similar ones are compared with the first of them only
    relative: bool = False  # `within` is a share of the second one's mean, for sums that grow with the run
    matched: bool = False  # the first of `above` against the first of `below`, and so on
    measure: str = ""  # default: the first of the figure
    only: tuple[str, ...] = ()  # panels: a collection's label and values of the grid

    def __post_init__(self) -> None:
        forms = (bool(self.above) and bool(self.below), len(self.similar) > 1, bool(self.falls))
        paired = not self.matched or len(self.above) == len(self.below)
        for holds, sentence in (
            (sum(forms) == 1, "needs one of above and below, similar, or falls"),
            (self.similar or not self.to_first, "is not about similar variants, and to_first is for similar ones"),
            (not self.falls or self.at < 1.0, "is about variants that fall and needs an earlier point: at below 1"),
            (paired, "is matched, so above and below must have as many variants"),
        ):
            require(holds, "check.malformed", f"{self.claim!r} {sentence}")

    @property
    def variants(self) -> tuple[str, ...]:
        return (*self.above, *self.below, *self.similar, *self.falls)


@dataclass(frozen=True)
class NamedSettings:
    """[[collection]] or [[variant]]: settings under a label."""

    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    colour: Annotated[int, Range(1)] = 1  # of the palette
    line: Literal["solid", "dashed", "dotted", "dash-dotted", "long"] = "solid"
    centralised: bool = False  # one client makes all interactions of a round


@dataclass(frozen=True)
class Figure(PaperFigure):
    """Figure whose curves are runs of experiments; every cell has been checked."""

    collections: tuple[NamedSettings, ...]
    variants: tuple[NamedSettings, ...]
    columns: tuple[Mapping[str, Any], ...]  # a combination of grid values for each column of panels
    checks: tuple[Check, ...]
    cells: list[Cell]  # values: collection, variant, column (its index), repetition (from 1)

    def column_label(self, index: int, clicks: str = "") -> str:
        """Return the grid values of a column of panels; `clicks` follows the name of a click model."""
        return ", ".join(f"{value}{clicks * (key == 'users.preset')}" for key, value in self.columns[index].items())

    def published_number(
        self, collection: str, measure: str, label: str, column: int
    ) -> tuple[Published, float] | None:
        """Return the paper's number for a variant of a panel, and the table that it stands in; None if it prints none."""
        title = self.column_label(column)
        for table in self.published:
            shown = (table.collection, table.measure or self.header.measures[0]) == (collection, measure)
            if shown and label in table.rows and title in table.columns:
                return table, table.rows[label][table.columns.index(title)]
        return None


def figure_names() -> list[str]:
    """Return the names of all shipped figures and studies, such as "fpdgd/figure3"."""
    return sorted(path.relative_to(PAPERS).with_suffix("").as_posix() for path in PAPERS.rglob("*.toml"))


def read_shipped(name: str) -> ExperimentFile:
    """Read the shipped file of this name; messages about it name it as PAPER/FIGURE.toml."""
    known = figure_names()
    if name not in known:
        close = [k for k in known if name and name in k.split("/")]
        hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else suggest(name, known)
        raise BadInput("figure.unknown", f"there is no figure {name!r}{hint}; known: {', '.join(known)}")
    return replace(read_experiment_file(PAPERS / f"{name}.toml"), name=f"{name}.toml")


def name_of(document: ExperimentFile) -> str:
    """Return the name of the figure in a file: fpdgd/figure3.toml is fpdgd/figure3."""
    return document.name.removesuffix(".toml")


def read_figure(
    document: ExperimentFile, *, quick: bool = False, data: str | None = None, repetitions: int | None = None
) -> Figure:
    """Read a figure and the experiments of all its cells; errors name the file."""
    if data is not None:
        folds_of(data)  # checked first, so that an error in the user's data does not name the figure's file
    tables = dict(document.tables)
    with _errors_at(document.name):
        for key in tables:
            known = (*TABLES, *SECTIONS)
            hint = f"{suggest(key, known)}; known: {', '.join(known)}"
            require(key in known, "key.unknown", f"unknown section {key!r}{hint}")
        collections = _named_settings(tables, "collection", quick)
        if data is not None:
            # The user's collection replaces the figure's first one, in its settings and in its findings.
            own, first = collection_name(data), collections[0]
            collections = (NamedSettings(own, overlaid(first.settings, {"data": {"source": data, "queries": None}})),)
            tables |= {key: _renamed(tables.get(key, []), first.label, own) for key in ("check", "published")}
        shorter = dict(tables.get("quick", {})) if quick else {}
        header = decode(FigureHeader, tables.get("figure", {}), "figure")
        count = shorter.pop("repetitions", header.repetitions)
        header = replace(header, repetitions=repetitions or count)
        axes = flatten(tables.get("grid", {})) | flatten(shorter.pop("grid", {}))
        decode(dict[str, Annotated[list[Any], Length(MOST_VALUES, 1)]], axes, "grid")
        columns = tuple(dict(zip(axes, found, strict=True)) for found in itertools.product(*axes.values()))
        variants = _named_settings(tables, "variant", quick)
        checks = decode(tuple[Check, ...], tables.get("check", []), "check")
        published = decode(tuple[Published, ...], tables.get("published", []), "published")
        labels = [variant.label for variant in variants]
        used = [(label, f"check {check.claim!r}") for check in checks for label in check.variants]
        for label, where in used + [(label, "published") for table in published for label in table.rows]:
            require(label in labels, "value.unknown", f"no variant {label!r}{suggest(label, labels)}", where)
        for check in checks:
            shown = check.measure in ("", *header.measures)
            require(shown, "value.unknown", f"{check.measure} is not shown", f"check {check.claim!r}")
    base = {key: tables[key] for key in SECTIONS if key in tables}
    cells = [
        _cell(document.name, base, (shorter, collection, variant), (index, column), repetition)
        # Repetitions outermost: after an interruption all curves are equally far.
        for repetition in range(1, header.repetitions + 1)
        for collection in collections
        for index, column in enumerate(columns)
        for variant in variants
    ]
    repeated = len({cell.name for cell in cells}) < len(cells)
    require(not repeated, "label.repeated", "two cells have the same name; give other labels", document.name)
    asked = (name_of(document), header, quick, data, repetitions, published)
    return Figure(*asked, collections, variants, columns, checks, cells)


def _renamed(value: Any, label: str, own: str) -> Any:
    """Return a value of a file with a collection's label replaced wherever it stands."""
    if isinstance(value, Mapping):
        return {key: _renamed(item, label, own) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, label, own) for item in value]
    return own if value == label else value


@contextmanager
def _errors_at(name: str) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise error.at(name) from None


def _cell(
    file: str,
    base: Mapping[str, Any],
    chosen: tuple[Mapping[str, Any], NamedSettings, NamedSettings],
    column: tuple[int, Mapping[str, Any]],
    repetition: int,
) -> Cell:
    shorter, collection, variant = chosen
    index, values = column
    tables = overlaid(overlaid(PUBLISHED_MEANS, base), shorter)
    for settings in (collection.settings, variant.settings):
        tables = overlaid(tables, settings)
    with _errors_at(file):
        for key, value in values.items():
            set_key(tables, key, value)
        section = {key: value for key, value in tables.get("data", {}).items() if value is not None}
        section["fold"] = fold_of(repetition, folds_of(section.get("source")))
    if variant.centralised:
        plan = Experiment.read(ExperimentFile(tables, file)).federation
        tables = overlaid(tables, {"federation": {"clients": 1, "interactions": plan.clients * plan.interactions}})
    tables |= {"seed": repetition, "data": section}
    words = (collection.label, *values.values(), variant.label, repetition)
    place = {"collection": collection.label, "column": index, "variant": variant.label, "repetition": repetition}
    return Cell(",".join(map(_file_word, words)), place, Experiment.read(ExperimentFile(tables, file)))


def folds_of(source: str | None) -> int:
    """Return how many folds a collection has: 1 if it is generated, 0 for intents.

    Intents are tested on their training queries, as in the thesis. A missing file of any fold is an error.
    """
    if source is None or source.startswith("synthetic:"):
        return 1
    if source.startswith(INTENTS):
        folder_of(source.removeprefix(INTENTS))
        return 0
    folder = folder_of(source)
    if is_log(folder):
        return 1
    folds = count_folds(folder)
    for fold in range(1, folds + 1):
        find_files(folder, fold)
    return folds


def fold_of(repetition: int, folds: int) -> int:
    """Return the fold of a repetition (from 1): the folds in turn, 0 without folds."""
    return (repetition - 1) % folds + 1 if folds else 0


def collection_name(source: str) -> str:
    """Return a collection's name without the folders above it, which are private to the machine."""
    if source.startswith("synthetic:"):
        return source.removeprefix("synthetic:")
    return Path(source).resolve().name


def overlaid(tables: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the tables with these settings on top; a part that names its kind replaces the one below."""
    result = {k: overlaid(v, {}) if isinstance(v, Mapping) else v for k, v in tables.items()}
    for key, value in settings.items():
        below = result.get(key)
        if isinstance(below, str) and isinstance(value, Mapping) and "kind" not in value:
            below = {"kind": below}
        merges = isinstance(value, Mapping) and "kind" not in value
        result[key] = overlaid(below if isinstance(below, Mapping) else {}, value) if merges else value
    return result


def _named_settings(tables: Mapping[str, Any], key: str, quick: bool) -> tuple[NamedSettings, ...]:
    found = []
    for number, table in enumerate(decode(list[dict[str, Any]], tables.get(key, []), key), start=1):
        own = {k: v for k, v in table.items() if k in ("label", "colour", "line", "centralised")}
        named = decode(NamedSettings, {"colour": number} | own, f"{key} {number}")
        settings = {k: v for k, v in table.items() if k not in (*own, "quick")}
        shorter = table.get("quick", {})
        for section in (*settings, *shorter):
            if section not in SECTIONS:
                sentence = f"unknown key {section!r}{suggest(section, SECTIONS)}"
                raise BadInput("key.unknown", sentence, f"{key} {named.label!r}")
        found.append(replace(named, settings=overlaid(settings, shorter if quick else {})))
    require(found, "value.missing", f"expected at least one [[{key}]]")
    repeated = len({c.label for c in found}) < len(found)
    require(not repeated, "label.repeated", f"two of [[{key}]] have the same label")
    return tuple(found)


def _file_word(value: Any) -> str:
    return re.sub(r"[^A-Za-z0-9_.+=\-]+", "-", str(value)).strip("-.") or "empty"


@dataclass(frozen=True)
class FigureGrid(Grid):
    """Grid of a figure's cells; they are no product of axes, so `quorank run --resume` must not take them for one."""

    command: str = ""

    def toml(self) -> bytes:
        """Return the text of grid.toml: only a comment with the command that goes on with the runs."""
        return f"# The runs of a figure. To go on with them: {self.command}\n".encode()


def figure_grid(figure: Figure, folder: Path) -> FigureGrid:
    """Return the figure's cells for `run_grid` after reserving the directory; runs with other settings are refused."""
    if reserve_folder(figure, folder):
        for cell in figure.cells:
            begun = (folder / cell.name / storage.CONFIG).is_file()
            same = not begun or storage.read_experiment(folder / cell.name) == cell.experiment
            require(same, "folder.taken", f"{cell.name} was run with other settings; choose another --out", f"{folder}")
    return FigureGrid(ExperimentFile({}, figure.name), {}, figure.cells, figure.command)


def reserve_folder(figure: PaperFigure, folder: Path) -> bool:
    """Write figure.json into a new directory and return whether it was there; another figure's directory is refused."""
    identity, file = figure.identity(), folder / IDENTITY
    if file.is_file():
        found = read_json(file)
        other = f"it holds {json.dumps(found)}, not {json.dumps(identity)}; choose another --out"
        require(found == identity, "folder.taken", other, f"{folder}")
        return True
    require(folder.is_dir() or not folder.exists(), "folder.taken", "this is a file; expected a directory", f"{folder}")
    empty = not folder.is_dir() or not any(folder.iterdir())
    require(empty, "folder.taken", "it holds something else than a figure; choose another --out", f"{folder}")
    make_folder(folder)
    write_whole(file, json_bytes(identity))
    return False

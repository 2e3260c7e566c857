"""Reference pages written from the code: every verb and option, every part and field, every key of an experiment file.

Nothing here is typed by hand but headings: meanings are those under `Args` or beside the fields, and
sentences of options are those of `--help`. A field without a meaning is an error, and so is a section of experiment
files that this program does not know.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from quorank.cli.main import application
from quorank.data.partition import PARTITIONS
from quorank.data.source import DataSource
from quorank.experiments.experiment import FEDERATION_KEYS, SECTIONS, EvaluationPlan, Experiment, FederationCounts
from quorank.experiments.experiment_file import SHIPPED
from quorank.experiments.silo_experiment import ONE_KIND, OWN
from quorank.experiments.silo_experiment import SECTIONS as GROUP_SECTIONS
from quorank.federation import AGGREGATIONS, PARTICIPATIONS, PERSONALISATIONS, SERVERS
from quorank.federation.attacks import ATTACKS
from quorank.learning import LEARNERS
from quorank.parts import Family, Numbers
from quorank.privacy import PRIVACIES
from quorank.rankers import RANKERS
from quorank.silos.search.settings import SearchTerms
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.setting import TRAININGS, SiloSetting
from quorank.users import CLICK_MODELS

FAMILIES: dict[str, Family[Any]] = {
    "partition": PARTITIONS,
    "ranker": RANKERS,
    "users": CLICK_MODELS,
    "learner": LEARNERS,
    "federation.participation": PARTICIPATIONS,
    "federation.aggregation": AGGREGATIONS,
    "federation.server": SERVERS,
    "federation.personal": PERSONALISATIONS,
    "attack": ATTACKS,
    "privacy": PRIVACIES,
}
"""Where each family of parts stands in an experiment file."""

PLAIN: dict[str, type[Any]] = {"data": DataSource, "federation": FederationCounts, "evaluation": EvaluationPlan}
"""Sections whose keys are not those of parts."""

ABOUT = {
    "data": "The collection that people search.",
    "partition": "How clients differ in data, preferences, clicks and how much they search; left out, they do not.",
    "ranker": "The scoring function that is learned.",
    "users": "Who searches and clicks.",
    "learner": "How one client turns its interactions into an update.",
    "federation": "How many clients there are, how long the run is, and how updates become one ranker.",
    "federation.participation": "Which clients are in a round.",
    "federation.aggregation": "How the updates of a cohort become one.",
    "federation.server": "What is done with that one update.",
    "federation.personal": "What a client keeps for itself.",
    "attack": "Malicious clients, for measuring defences; left out, there are none.",
    "privacy": "What is done to an update before it leaves its client.",
    "evaluation": "When and how the ranker is judged on the test split.",
}
"""One sentence for each section and each place of a part."""

WROTE = "*This page is written by `python3 tasks.py docs` from the code.*"


def generated_pages() -> dict[str, str]:
    """Return every generated page by its path below docs/."""
    found = {"reference/experiment-file.md": experiment_file_page(), "reference/commands/README.md": commands_page()}
    for name, command in _group(typer.main.get_command(application())).items():
        found[f"reference/commands/{name}.md"] = command_page(name, command)
    found["reference/group-file.md"] = group_file_page()
    found["reference/parts/README.md"] = parts_page()
    for place, family in FAMILIES.items():
        found[f"reference/parts/{_file_of(place)}.md"] = family_page(place, family)
    return found


def experiment_file_page() -> str:
    """Return the page that lists every key of an experiment file with its default and meaning."""
    lines = [
        "# Experiment file: every key",
        "",
        "All that a file for `quorank run` may hold, with defaults and meanings. A file holds only what differs from the",
        "defaults; `run.toml` in a run's folder is complete. Where a part takes fields, a table stands for its word:",
        '`aggregation = { kind = "krum", byzantine = 3 }`. `--set SECTION.KEY=VALUE` changes one key.',
        "",
        WROTE,
        "",
        "## Top of the file",
        "",
        *_table(
            ("key", "type", "default", "meaning"),
            [
                ("`seed`", "a whole number", f"`{Experiment.seed}`", "every random draw of the run follows from it"),
                (
                    "`[grid]`",
                    "lists by dotted key",
                    "none",
                    'every combination of the values is run: `"users.preset" = ["perfect", "informational"]`',
                ),
            ],
        ),
    ]
    for section in _known_sections():
        lines += ["", f"## [{section}]", "", ABOUT[section], ""]
        if section in PLAIN:
            lines += _fields_table(PLAIN[section])
            for place, family in FAMILIES.items():
                if place.startswith(f"{section}."):
                    lines += ["", f"### [{section}] {place.partition('.')[2]}", "", ABOUT[place], ""]
                    lines += _kinds(place, family, level=4)
            for key, hint in get_type_hints(PLAIN[section]).items():
                if (inner := family_of(hint)) is not None:
                    lines += ["", f"### [{section}] {key}", "", *_members(inner, level=4)]
        else:
            lines += _kinds(section, FAMILIES[section], level=3)
    names = sorted(path.stem for path in SHIPPED.glob("*.toml"))
    lines += ["", "## Shipped files", "", "`quorank run NAME` runs one of these; `--set` changes it.", ""]
    for name in names:
        text = (SHIPPED / f"{name}.toml").read_text(encoding="utf-8").strip()
        lines += [f"### {name}", "", "```toml", text, "```", ""]
    return _joined(lines)


def group_file_page() -> str:
    """Return the page that lists every key of a group's file, for organisations."""
    about = {
        "silo": "Parties, and the division of their queries.",
        "training": "Training of the ranker.",
        "search": "Searches over all parties' documents; without this section there are none.",
        "ranking": "Lists that are ranked.",
        "features": "Parameters of the sixteen text features.",
        "text": "Tokenisation of documents and queries.",
    }
    if {*about} != {*GROUP_SECTIONS}:
        raise LookupError("group files have a section that docsite/reference.py does not know")
    setting = SiloSetting()
    plain: dict[str, tuple[type[Any], Any]] = {"search": (SearchTerms, None)}
    plain |= {section: (part, getattr(setting, name)) for name, (section, part) in ONE_KIND.items()}
    head = ("key", "type", "default", "meaning")
    lines = [
        "# Group file: every key",
        "",
        "All that a file for `quorank silo start --experiment` may hold, with defaults and meanings. A file needs the",
        "names of its parties and nothing else.",
        "",
        WROTE,
        "",
        *_table(
            head, [("`seed`", "whole number", "none", "a rehearsal: keys and noise follow from it, nothing is secret")]
        ),
    ]
    for section in GROUP_SECTIONS:
        lines += ["", f"## [{section}]", "", about[section], ""]
        if section == "silo":
            own = [
                ("`parties`", "list of texts", "required", "names of the parties"),
                ("`run`", "text", "the file's name", "name of the run"),
            ]
            lines += [*_table(head, own), *_fields_table(SiloTerms, only=("statistics_epsilon",))[2:]]
            lines += _fields_table(SiloSetting, only=OWN)[2:]
        elif section == "training":
            lines += [f"`kind` is one of {_kinds_of(TRAININGS)}; by default `{setting.training.kind}`.", ""]
            lines += _members(TRAININGS, level=3)
        else:
            lines += _fields_table(*plain[section])
            if section == "text":
                language = '| `language` | a language of Snowball | `"english"` | settles both, unless they are given |'
                lines.append(language)
    return _joined(lines)


def _kinds_of(family: Family[Any]) -> str:
    return ", ".join(f"`{kind}`" for kind in family.ours)


def _known_sections() -> tuple[str, ...]:
    """The sections in their order, all of which must be known here."""
    known = {place.partition(".")[0] for place in (*FAMILIES, *PLAIN)}
    methods = {place.partition(".")[2] for place in FAMILIES if "." in place}
    counts = {field.name for field in dataclasses.fields(FederationCounts)}
    if {*SECTIONS} != known or {*FEDERATION_KEYS} != methods | counts:
        raise LookupError("experiment files have a section or key that docsite/reference.py does not know")
    return SECTIONS


def _kinds(place: str, family: Family[Any], *, level: int) -> Iterator[str]:
    """Every kind of a family with the table of its keys."""
    default = _default_kind(place, family)
    above = f"`kind` is one of {', '.join(f'`{kind}`' for kind in family.ours)}"
    yield f"{above}; by default `{default}`." if default else f"{above}."
    yield f"[Parts: {family.name}](parts/{_file_of(place)}.md) says what each does."
    yield ""
    yield from _members(family, level=level)


def _members(family: Family[Any], *, level: int) -> Iterator[str]:
    for kind in family.ours:
        member = family.members[kind]
        yield f"{'#' * level} {kind}"
        yield ""
        yield _first(member)
        yield ""
        if dataclasses.fields(member):
            yield from _fields_table(member)
            yield ""


def _default_kind(place: str, family: Family[Any]) -> str:
    """The kind that a file without this part has; none for an attack."""
    if place == "attack":
        return ""
    experiment = Experiment()
    section, _, name = place.partition(".")
    holder: Any = experiment.federation if name or section in ("learner", "privacy") else experiment
    return str(getattr(holder, name or section).kind)


def parts_page() -> str:
    """Return the list of all families with their parts."""
    lines = [
        "# Parts",
        "",
        "Every method that an experiment can be made of: a part is a value, named by its `kind` in an experiment file and",
        "by its class in Python. [Contributing](../../contributing.md) says how to add one, also in a package of yours.",
        "",
        WROTE,
        "",
        *_table(
            ("part", "in a file", "kinds"),
            [
                (f"[{family.name}]({_file_of(place)}.md)", _key(place), ", ".join(f"`{kind}`" for kind in family.ours))
                for place, family in FAMILIES.items()
            ],
        ),
    ]
    return _joined(lines)


def family_page(place: str, family: Family[Any]) -> str:
    """Return the page of one family: every part with what it does, where it comes from and its fields."""
    lines = [f"# Parts: {family.name}", "", f"{ABOUT[place]} In an experiment file: {_key(place)}.", "", WROTE]
    for kind in family.ours:
        member = family.members[kind]
        module = inspect.getmodule(member)
        assert module is not None
        lines += ["", f"## {kind}", "", f"`{member.__module__}.{member.__name__}`", ""]
        lines += _description(inspect.getdoc(member))
        above = _paragraphs(module.__doc__)
        if len([part for part in family.members.values() if part.__module__ == member.__module__]) == 1 and above:
            lines += ["*From the module:* " + _escaped(above[0]).strip(), ""]
        if dataclasses.fields(member):
            lines += _fields_table(member)
    return _joined(lines)


def commands_page() -> str:
    """Return the list of all verbs."""
    verbs = _group(typer.main.get_command(application()))
    lines = [
        "# Command line",
        "",
        "Every verb of `quorank` with its arguments and options, as `quorank VERB --help` prints them. Results go to",
        "stdout, messages and progress to stderr. Exit 0 is success, 2 bad input with one sentence on what to do.",
        "",
        WROTE,
        "",
        *_table(
            ("verb", "what it does"),
            [(f"[`{name}`]({name}.md)", _cell(_paragraphs(verb.help)[0])) for name, verb in verbs.items()],
        ),
    ]
    return _joined(lines)


def command_page(name: str, command: Any) -> str:
    """Return the page of a verb and of the verbs below it."""
    return _joined([*_command(("quorank", name), command, 1)])


def _command(path: tuple[str, ...], command: Any, level: int) -> Iterator[str]:
    """Heading, usage, help and tables of a command, then of those below it."""
    yield f"{'#' * level} {' '.join(path)}"
    yield ""
    yield from (_escaped(text) for text in _paragraphs(command.help))
    if level == 1:
        yield WROTE
        yield ""
    inner = _group(command)
    arguments = [p for p in command.params if p.param_type_name == "argument" and not p.hidden]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    if not inner:
        words = [p.metavar or _argument(p) for p in arguments]
        yield "```text"
        yield " ".join([*path, *words, "[OPTIONS]" if options else ""]).strip()
        yield "```"
        yield ""
        rows = [(f"`{p.metavar or _argument(p)}`", _cell(p.help or "")) for p in arguments]
        if rows:
            yield from _table(("argument", "meaning"), rows)
            yield ""
        if options:
            rows4 = [
                (_option_names(p), _option_type(command, p), _option_default(p), _cell(p.help or "")) for p in options
            ]
            yield from _table(("option", "value", "default", "meaning"), rows4)
            yield ""
    for name, below in inner.items():
        yield from _command((*path, name), below, level + 1)


def _group(command: Any) -> dict[str, Any]:
    """Commands below a group that are shown."""
    return {name: below for name, below in getattr(command, "commands", {}).items() if not below.hidden}


def _argument(parameter: Any) -> str:
    name = parameter.name.upper().rstrip("_")
    name = f"{name}..." if parameter.nargs == -1 else name
    return name if parameter.required else f"[{name}]"


def _option_names(parameter: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _option_type(command: Any, parameter: Any) -> str:
    """What an option takes, from the annotation of the verb's function: versions of typer differ in where they keep it."""
    if parameter.is_flag:
        return ""
    again = ", repeatable" if parameter.multiple else ""
    if parameter.metavar:
        return f"`{parameter.metavar}`{again}"
    hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
    kind, *notes = get_args(hints[parameter.name])
    kinds = [found for found in (get_args(kind) or (kind,)) if found is not type(None)]
    if get_origin(kinds[0]) is Literal:
        return _type(kinds[0]) + again
    words = {int: "whole number", float: "number", str: "text", Path: "path", bool: "true or false"}
    bounds = [
        f"{sign} {bound}" for note in notes for sign, bound in (("≥", note.min), ("≤", note.max)) if bound is not None
    ]
    return " ".join([words.get(kinds[0], "text"), ", ".join(bounds)]).strip() + again


def _option_default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "required"
    if parameter.is_flag or default in (None, "", ()) or callable(default):
        return ""
    return f"`{default}`"


def _fields_table(cls: type[Any], given: object = None, only: Iterable[str] | None = None) -> list[str]:
    """A row for each field: key, type, default (that of `given`, where a file begins with it), meaning."""
    hints = get_type_hints(cls)
    rows = [
        (
            f"`{field.name}`",
            _type(hints[field.name]),
            _default(field) if given is None else f"`{_value(getattr(given, field.name))}`",
            _cell(meaning(cls, field.name)),
        )
        for field in dataclasses.fields(cls)
        if only is None or field.name in only
    ]
    return _table(("key", "type", "default", "meaning"), rows)


def meaning(cls: type[Any], name: str) -> str:
    """Return the meaning of a field: its entry under `Args` in the class's docstring, else what stands beside it.

    Beside it is a comment on its line or above it, or a text below it. Base classes count, the nearest first.
    """
    found = next(filter(None, (_arguments(base).get(name) for base in cls.__mro__)), None)
    if found is None:
        owner = next(base for base in cls.__mro__ if name in inspect.get_annotations(base))
        found = _meanings(owner).get(name, "")
    if not re.search(r"\w{3}", found):
        raise LookupError(
            f"{cls.__module__}.{cls.__name__}.{name} has no meaning: write it under Args of the docstring"
        )
    return found


@cache
def _arguments(cls: type[Any]) -> dict[str, str]:
    """Entries under `Args` of a class's own docstring, by field."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "") + "\n"
    section = re.search(r"^Args:\n((?: {4}.*\n)+)", text, re.M)
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {6,}.*)*)", section[1], re.M) if section else []
    return {name: " ".join(words.split()).removesuffix(".") for name, words in entries}


@cache
def _meanings(cls: type[Any]) -> dict[str, str]:
    """Texts beside the fields of a class, by field."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines, found = source.split("\n"), {}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        texts: list[str] = []
        above = node.lineno - 2
        while above >= 0 and lines[above].strip().startswith("#"):
            texts.insert(0, lines[above].strip(" #"))
            above -= 1
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            comment = re.search(r"  # (?!type:|noqa)(.*)$", lines[number])
            texts += [comment[1].strip()] if comment else []
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            texts.append(" ".join(after.value.value.split()))
        found[node.target.id] = " ".join(texts)
    return found


def family_of(hint: object) -> Family[Any] | None:
    """Return the family whose base class a field has for its type, wherever in the package it is."""
    modules = [module for name, module in sys.modules.items() if name.startswith("quorank.")]
    found = (value for module in modules for value in vars(module).values() if isinstance(value, Family))
    return next((family for family in found if family.base is hint and hint is not object), None)


def _type(hint: Any) -> str:
    """A type in words."""
    if (family := family_of(hint)) is not None:
        return " or ".join(f'`"{kind}"`' for kind in family.ours)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        words = [_type(option) for option in get_args(hint) if option is not type(None)]
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return " or ".join(f"`{_value(choice)}`" for choice in get_args(hint))
    if origin is tuple and get_origin(get_args(hint)[0]) is Literal:
        return f"list of {_type(get_args(hint)[0])}"
    if dataclasses.is_dataclass(hint):
        return "table"
    if origin is tuple:
        return {int: "list of whole numbers", float: "list of numbers", str: "list of texts"}[get_args(hint)[0]]
    plain = {int: "whole number", float: "number", str: "text", bool: "`true` or `false`", Numbers: "table of numbers"}
    return plain[hint]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "required" if field.default_factory is dataclasses.MISSING else f"`{_value(field.default_factory())}`"
    return "none" if field.default is None else f"`{_value(field.default)}`"


def _value(value: object) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if dataclasses.is_dataclass(value):
        return f'"{value.kind}"'  # type: ignore[union-attr]
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def _first(cls: type[Any]) -> str:
    """The first paragraph of a part's docstring."""
    return _escaped(_paragraphs(inspect.getdoc(cls))[0]).strip()


def _paragraphs(text: str | None) -> list[str]:
    """Paragraphs of a docstring on one line each, an empty line after each; indented ones stay as they are."""
    found = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
        shown = paragraph if paragraph.startswith(("    ", "| ")) else " ".join(paragraph.split())
        found.append(f"{shown}\n")
    return found


def _description(text: str | None) -> list[str]:
    """Paragraphs of a part's docstring for its page: without `Args`, which its table shows; examples as code."""
    found = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
        if paragraph.startswith(">>>"):
            found.append(f"```pycon\n{paragraph}\n```\n")
        elif not paragraph.startswith("Args:"):
            found += [_escaped(words.replace("Raises: BadInput:", "Refused:")) for words in _paragraphs(paragraph)]
    return found


def _escaped(text: str) -> str:
    """Text whose stars, brackets and angles are no Markdown; code between backticks stays."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_\[\]<>|])", r"\\\1", p) for p in pieces)


def _cell(text: str) -> str:
    """Text for a cell of a table."""
    return _escaped(" ".join(text.split())).strip()


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _key(place: str) -> str:
    section, _, name = place.partition(".")
    return f"`[{section}] {name}`" if name else f"`[{section}]`"


def _file_of(place: str) -> str:
    return place.rpartition(".")[2]


def _joined(lines: Iterable[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"

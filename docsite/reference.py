"""Reference pages generated from the code: verbs and options, parts and fields, keys of experiment files, Python API.

Meanings of fields are the entries under `Args` or the comments next to the fields; sentences of options are those of
`--help`. A field without a meaning is an error, and so is an unknown section of experiment files.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from docsite.descriptions import FAMILIES, arguments_of, cell, escaped, file_of, joined, meanings_beside, table
from docsite.python_reference import code, parse, python_pages, with_imports
from quorank.cli.main import application
from quorank.data.source import DataSource
from quorank.experiments.experiment import FEDERATION_KEYS, SECTIONS, EvaluationPlan, Experiment, FederationCounts
from quorank.experiments.experiment_file import SHIPPED
from quorank.experiments.silo_experiment import ONE_KIND, OWN
from quorank.experiments.silo_experiment import SECTIONS as GROUP_SECTIONS
from quorank.parts import Family, Numbers
from quorank.silos.search.settings import SearchTerms
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.setting import TRAININGS, SiloSetting

PLAIN: dict[str, type[Any]] = {"data": DataSource, "federation": FederationCounts, "evaluation": EvaluationPlan}
"""Sections whose keys are not those of parts."""

ABOUT = {
    "data": "Collection that clients search.",
    "partition": "Differences between clients: data, preferences, clicks, number of searches. Default: none.",
    "ranker": "Scoring function that is learned.",
    "users": "Click model of the users.",
    "learner": "Method by which a client turns its interactions into an update.",
    "federation": "Number of clients, length of the run, and the parts that combine updates into one ranker.",
    "federation.participation": "Rule that forms the cohort of a round.",
    "federation.aggregation": "Rule that combines the updates of a cohort.",
    "federation.server": "Optimiser that applies the combined update.",
    "federation.personal": "Parameters that a client keeps for itself.",
    "attack": "Malicious clients, to measure defences. Default: none.",
    "privacy": "Protection of an update before it leaves its client.",
    "evaluation": "Schedule and measures of the evaluation on the test split.",
}
"""One sentence for each section and each place of a part."""

WROTE = "*This page is generated from the code.*"


def generated_pages() -> dict[str, str]:
    """Return every generated page by its path below docs/."""
    found = {"reference/experiment-file.md": experiment_file_page(), "reference/commands/README.md": commands_page()}
    for name, command in _group(typer.main.get_command(application())).items():
        found[f"reference/commands/{name}.md"] = command_page(name, command)
    found["reference/group-file.md"] = group_file_page()
    found["reference/parts/README.md"] = parts_page()
    for place, family in FAMILIES.items():
        found[f"reference/parts/{file_of(place)}.md"] = family_page(place, family)
    return found | python_pages()


def experiment_file_page() -> str:
    """Return the page that lists every key of an experiment file with its default and meaning."""
    lines = [
        "# Experiment file",
        "",
        "All keys of a file for `quorank run`, with types, defaults and meanings. A file needs only the keys that differ",
        "from the defaults; `run.toml` in a run's directory is complete. A part with fields is written as a table:",
        '`aggregation = { kind = "krum", byzantine = 3 }`. `--set SECTION.KEY=VALUE` changes one key.',
        "",
        WROTE,
        "",
        "## Top of the file",
        "",
        *table(
            ("key", "type", "default", "meaning"),
            [
                ("`seed`", "integer", f"`{Experiment.seed}`", "seed of all random draws of the run"),
                (
                    "`[grid]`",
                    "lists by dotted key",
                    "none",
                    'runs every combination of the values: `"users.preset" = ["perfect", "informational"]`',
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
    return joined(lines)


def group_file_page() -> str:
    """Return the page that lists every key of a group's file, for organisations."""
    about = {
        "silo": "Parties, and the division of their queries.",
        "training": "Training of the ranker.",
        "search": "Searches over all parties' documents. Default: no searches.",
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
        "# Group file",
        "",
        "All keys of a file for `quorank silo start --experiment`, with types, defaults and meanings. Only `parties` is",
        "required.",
        "",
        WROTE,
        "",
        *table(
            head, [("`seed`", "integer", "none", "seed of keys and noise, for a rehearsal: nothing is secret then")]
        ),
    ]
    for section in GROUP_SECTIONS:
        lines += ["", f"## [{section}]", "", about[section], ""]
        if section == "silo":
            own = [
                ("`parties`", "list of strings", "required", "names of the parties"),
                ("`run`", "string", "the file's name", "name of the run"),
            ]
            lines += [*table(head, own), *_fields_table(SiloTerms, only=("statistics_epsilon",))[2:]]
            lines += _fields_table(SiloSetting, only=OWN)[2:]
        elif section == "training":
            lines += [f"`kind` is one of {_kinds_of(TRAININGS)}; by default `{setting.training.kind}`.", ""]
            lines += _members(TRAININGS, level=3)
        else:
            lines += _fields_table(*plain[section])
            if section == "text":
                language = '| `language` | a language of Snowball | `"english"` | default of the other two keys |'
                lines.append(language)
    return joined(lines)


def _kinds_of(family: Family[Any]) -> str:
    return ", ".join(f"`{kind}`" for kind in family.ours)


def _known_sections() -> tuple[str, ...]:
    """Return the sections in their order; raise LookupError for one that is not documented here."""
    known = {place.partition(".")[0] for place in (*FAMILIES, *PLAIN)}
    methods = {place.partition(".")[2] for place in FAMILIES if "." in place}
    counts = {field.name for field in dataclasses.fields(FederationCounts)}
    if {*SECTIONS} != known or {*FEDERATION_KEYS} != methods | counts:
        raise LookupError("experiment files have a section or key that docsite/reference.py does not know")
    return SECTIONS


def _kinds(place: str, family: Family[Any], *, level: int) -> Iterator[str]:
    """Yield every kind of a family with the table of its keys."""
    default = _default_kind(place, family)
    above = f"`kind` is one of {', '.join(f'`{kind}`' for kind in family.ours)}"
    yield f"{above}; by default `{default}`." if default else f"{above}."
    yield f"[Parts: {family.name}](parts/{file_of(place)}.md) describes them."
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
    """Return the kind of a part that a file leaves out; empty for an attack."""
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
        "Methods of which an experiment consists. A part is named by its `kind` in an experiment file and by its class in",
        "Python. [Contributing](../../contributing.md) describes how to add one, also in another package.",
        "",
        WROTE,
        "",
        *table(
            ("part", "in a file", "kinds"),
            [
                (f"[{family.name}]({file_of(place)}.md)", _key(place), ", ".join(f"`{kind}`" for kind in family.ours))
                for place, family in FAMILIES.items()
            ],
        ),
    ]
    return joined(lines)


def family_page(place: str, family: Family[Any]) -> str:
    """Return the page of one family: every part with what it does, where it comes from and its fields."""
    lines = [f"# Parts: {family.name}", "", f"{ABOUT[place]} In an experiment file: {_key(place)}.", "", WROTE]
    for kind in family.ours:
        member = family.members[kind]
        module = inspect.getmodule(member)
        assert module is not None
        doc = parse(inspect.getdoc(member))
        lines += ["", f"## {kind}", "", *doc.body]
        if not doc.examples:
            lines += code(f"from {_home(member)} import {member.__name__}")
        above = _paragraphs(module.__doc__)
        if len([part for part in family.members.values() if part.__module__ == member.__module__]) == 1 and above:
            lines += ["*From the module:* " + escaped(above[0]).strip(), ""]
        if dataclasses.fields(member):
            lines += [*_fields_table(member), ""]
        refusals = doc.entries("Raises")
        lines += [f"Raises `{name}`: {escaped(words)}" for name, words in refusals]
        for example in doc.examples:
            lines += ["", *code(with_imports(example, member), "pycon")]
    return joined(lines)


def _home(part: type[Any]) -> str:
    """Return the shortest package that exports a part, else its module."""
    packages = (
        "quorank.learning",
        "quorank.federation",
        "quorank.privacy",
        "quorank.rankers",
        "quorank.users",
        "quorank.data.partition",
        "quorank.federation.attacks",
    )
    return next((name for name in packages if part.__name__ in import_module(name).__all__), part.__module__)


def commands_page() -> str:
    """Return the list of all verbs."""
    verbs = _group(typer.main.get_command(application()))
    lines = [
        "# Command line",
        "",
        "All verbs of `quorank` with their arguments and options, as `quorank VERB --help` prints them. Results go to",
        "stdout, messages and progress to stderr. Exit code 0 is success, 2 is invalid input with one sentence about it.",
        "",
        WROTE,
        "",
        *table(
            ("verb", "purpose"),
            [(f"[`{name}`]({name}.md)", _help(_paragraphs(verb.help)[0]).strip()) for name, verb in verbs.items()],
        ),
    ]
    return joined(lines)


def command_page(name: str, command: Any) -> str:
    """Return the page of a verb and of the verbs below it."""
    return joined([*_command(("quorank", name), command, 1)])


def _command(path: tuple[str, ...], command: Any, level: int) -> Iterator[str]:
    """Yield heading, usage, help and tables of a command, then of the commands below it."""
    yield f"{'#' * level} {' '.join(path)}"
    yield ""
    yield from (_help(text) for text in _paragraphs(command.help))
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
        rows = [(f"`{p.metavar or _argument(p)}`", _help(p.help or "")) for p in arguments]
        if rows:
            yield from table(("argument", "meaning"), rows)
            yield ""
        if options:
            rows4 = [
                (_option_names(p), _option_type(command, p), _option_default(p), _help(p.help or "")) for p in options
            ]
            yield from table(("option", "value", "default", "meaning"), rows4)
            yield ""
    for name, below in inner.items():
        yield from _command((*path, name), below, level + 1)


def _help(text: str) -> str:
    """Return a sentence of `--help` as Markdown, with options as code."""
    text = text if text.endswith("\n") else " ".join(text.split())
    return escaped(re.sub(r"(?<![\w`-])--[a-z][\w-]*(?![\w`-])", lambda option: f"`{option[0]}`", text))


def _group(command: Any) -> dict[str, Any]:
    """Return the visible commands of a group."""
    return {name: below for name, below in getattr(command, "commands", {}).items() if not below.hidden}


def _argument(parameter: Any) -> str:
    name = parameter.name.upper().rstrip("_")
    name = f"{name}..." if parameter.nargs == -1 else name
    return name if parameter.required else f"[{name}]"


def _option_names(parameter: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _option_type(command: Any, parameter: Any) -> str:
    """Return the type of an option, from the annotation of the verb's function: typer's own record varies by version."""
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
    words = {int: "integer", float: "number", str: "string", Path: "path", bool: "true or false"}
    bounds = [
        f"{sign} {bound}" for note in notes for sign, bound in (("≥", note.min), ("≤", note.max)) if bound is not None
    ]
    return " ".join([words.get(kinds[0], "string"), ", ".join(bounds)]).strip() + again


def _option_default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "required"
    if parameter.is_flag or default in (None, "", ()) or callable(default):
        return ""
    return f"`{default}`"


def _fields_table(cls: type[Any], given: object = None, only: Iterable[str] | None = None) -> list[str]:
    """Return a row for each field: key, type, default (that of `given`, if any), meaning."""
    hints = get_type_hints(cls)
    rows = [
        (
            f"`{field.name}`",
            _type(hints[field.name]),
            _default(field) if given is None else f"`{_value(getattr(given, field.name))}`",
            cell(meaning(cls, field.name)),
        )
        for field in dataclasses.fields(cls)
        if only is None or field.name in only
    ]
    return table(("key", "type", "default", "meaning"), rows)


def meaning(cls: type[Any], name: str) -> str:
    """Return the meaning of a field: its entry under `Args`, else the comment on its line or above, or the string below.

    Base classes are searched too, the nearest first.
    """
    found = next(filter(None, (arguments_of(base).get(name) for base in cls.__mro__)), None)
    if found is None:
        owner = next(base for base in cls.__mro__ if name in inspect.get_annotations(base))
        found = meanings_beside(owner).get(name, "")
    if not re.search(r"\w{3}", found):
        raise LookupError(
            f"{cls.__module__}.{cls.__name__}.{name} has no meaning: write it under Args of the docstring"
        )
    return found


def family_of(hint: object) -> Family[Any] | None:
    """Return the family whose base class a field has for its type, wherever in the package it is."""
    modules = [module for name, module in sys.modules.items() if name.startswith("quorank.")]
    found = (value for module in modules for value in vars(module).values() if isinstance(value, Family))
    return next((family for family in found if family.base is hint and hint is not object), None)


def _type(hint: Any) -> str:
    """Return a type in words."""
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
        return {int: "list of integers", float: "list of numbers", str: "list of strings"}[get_args(hint)[0]]
    plain = {int: "integer", float: "number", str: "string", bool: "`true` or `false`", Numbers: "table of numbers"}
    return plain[hint]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "required" if field.default_factory is dataclasses.MISSING else f"`{_value(field.default_factory())}`"
    return "none" if field.default is None else f"`{_value(field.default)}`"


def _value(value: object) -> str:
    """Return a value in TOML."""
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
    """Return the first paragraph of a part's docstring."""
    return escaped(_paragraphs(inspect.getdoc(cls))[0]).strip()


def _paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a docstring on one line each, an empty line after each; indented ones are unchanged."""
    found = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
        shown = paragraph if paragraph.startswith(("    ", "| ")) else " ".join(paragraph.split())
        found.append(f"{shown}\n")
    return found


def _key(place: str) -> str:
    section, _, name = place.partition(".")
    return f"`[{section}] {name}`" if name else f"`[{section}]`"

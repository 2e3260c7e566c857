"""Python API pages, written from signatures and docstrings: `reference/python/`.

Docstrings follow Google's convention: a summary, paragraphs, `Args`, `Attributes`, `Returns`, `Raises`, and examples in
`>>>` lines, which `tests/test_docstrings.py` runs.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import doctest
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, get_overloads

from docsite.descriptions import FAMILIES, escaped, file_of, joined, meanings_beside, table
from docsite.markdown import slug_of

FOLDER = "reference/python/"
MODULES = {
    "quorank": "Runs as objects, an estimator with scikit-learn's methods, data, and the base class of learners.",
    "quorank.member": "Applications on a person's device: a ranker, or the weights of a heuristic.",
    "quorank.metrics": "Metrics of ranked lists, evaluation of rankers, significance, TREC files.",
    "quorank.data": "Ranking data and collections, LETOR files.",
    "quorank.rankers": "Scoring functions and their base class.",
    "quorank.users": "Click models and their base class.",
    "quorank.learning": "Learning algorithms, their base class, and a learner that runs interaction by interaction.",
    "quorank.federation": "Rounds and their parts: participation, aggregation, server optimisers, personal parameters.",
    "quorank.privacy": "Privacy parts, their base classes, and the setting that accounting needs.",
    "quorank.data.partition": "Divisions of a collection among clients, and their base class.",
    "quorank.tuning.heuristics": "Hand-written scoring functions with named weights, for `member.Tuner`.",
    "quorank.federation.attacks": "Attacks by malicious clients, and their base class.",
}
"""Documented modules with what each is for."""

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields")
GENERATED = "*This page is generated from the docstrings. [All modules](README.md).*"
WIDTH = 100  # columns of a signature


@dataclass
class Docstring:
    """Parsed docstring: Markdown paragraphs and code in order, and the entries of each section."""

    body: list[str] = field(default_factory=list)
    sections: dict[str, str] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def entries(self, section: str) -> list[tuple[str, str]]:
        """Return (name, description) of the entries of a section."""
        text = self.sections.get(section, "")
        found = re.findall(r"^(\S[^:\n]*): (.*(?:\n[ \t]+.*|\n(?=\n[ \t]))*)", text, re.M)
        return [(name, " ".join(words.split())) for name, words in found]


def python_pages() -> dict[str, str]:
    """Return the pages of the Python API by path below docs/."""
    return {f"{FOLDER}README.md": overview_page()} | {page_of(name): module_page(name) for name in MODULES}


def page_of(module: str) -> str:
    """Return the path of a module's page below docs/."""
    return f"{FOLDER}{module}.md"


def public_names(module: str) -> dict[str, Any]:
    """Return the public classes and functions of a module by name; no constants."""
    found = import_module(module)
    values = {name: getattr(found, name) for name in sorted(found.__all__, key=str.casefold)}
    return {name: value for name, value in values.items() if callable(value)}


def overview_page() -> str:
    """Return the page that lists all public names."""
    lines = [
        "# Python API",
        "",
        "Public names of the package, with signatures, arguments, errors and examples, generated from the docstrings.",
        "[From Python](../../python.md) is the guide.",
        "",
        "Import a name from the module of its heading: `from quorank.member import Client`. `import quorank as qr` loads a",
        "module when one of its names is first used. Invalid input raises [`BadInput`](quorank.md#badinput), which has a",
        "stable `code`.",
        "",
        "In signatures, `Doubles`, `Floats`, `Integers`, `Int8s` and `Booleans` are NumPy arrays of float64, float32,",
        "int64, int8 and bool, and `(rows,)` is a shape. `Named` is the name of a shipped experiment, the path of a file,",
        "its tables, or an `Experiment`.",
    ]
    for module, purpose in MODULES.items():
        lines += ["", f"## {module}", "", purpose, "", *_links(module, public_names(module), "name")]
    return joined(lines)


def module_page(module: str) -> str:
    """Return the page of a module: every public name; parts are listed with links to their own pages."""
    names = public_names(module)
    parts = {name: value for name, value in names.items() if part_page(value)}
    lines = [
        f"# {module}",
        "",
        MODULES[module],
        "",
        "*This page is generated from the docstrings. [All modules](README.md).*",
        "",
    ]
    for name, value in names.items():
        if name not in parts:
            lines += [*(_class(module, name, value) if inspect.isclass(value) else _function(name, value, level=2)), ""]
    if parts:
        lines += ["## Parts", "", "Frozen dataclasses; the links lead to their fields and examples.", ""]
        lines += _links(module, parts, "class")
    return joined(lines)


def _links(module: str, names: dict[str, Any], head: str) -> list[str]:
    rows = [(f"[`{name}`]({_place(module, name, value)})", _summary(value)) for name, value in names.items()]
    return table((head, "purpose"), rows)


def part_page(value: Any) -> str:
    """Return the path and anchor of a part, relative to the folder of this reference; empty for other values."""
    for place, family in FAMILIES.items():
        if any(family.members[kind] is value for kind in family.ours):
            return f"../parts/{file_of(place)}.md#{slug_of(value.kind)}"
    return ""


def _place(module: str, name: str, value: Any) -> str:
    return part_page(value) or f"{module}.md#{slug_of(name)}"


def _summary(value: Any) -> str:
    return escaped(" ".join(inspect.cleandoc(value.__doc__ or "").split("\n\n")[0].split()))


# ------------------------------------------------------------ classes and functions


def _class(module: str, name: str, cls: type[Any]) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    yield from code(_signature(f"class {name}", cls, _constructor(cls)))
    doc = parse(vars(cls).get("__doc__"))
    yield from doc.body
    yield from _arguments(doc, cls)
    yield from _listed("Attributes", doc.entries("Attributes"))
    yield from _declarations(cls)
    yield from _listed("Raises", doc.entries("Raises"))
    yield from _examples(doc, cls)
    for method, value in _members(cls):
        yield ""
        yield from _member(f"{name}.{method}", method, value, cls)


def _function(name: str, function: Callable[..., Any], level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    yield ""
    yield from code(_signature(f"{name}", function, function))
    yield from _described(parse(inspect.getdoc(function)), function)


def _member(title: str, name: str, value: Any, cls: type[Any]) -> Iterator[str]:
    """Method or property below its class; a docstring is inherited where it is missing."""
    yield f"### {title}"
    yield ""
    doc = parse(inspect.getdoc(getattr(cls, name)))
    if isinstance(value, property) or not callable(getattr(value, "__func__", value)):
        function = value.fget if isinstance(value, property) else value.func
        result = _annotation(function.__annotations__.get("return", ""))
        yield from code(f"{name}: {result}" if result else name)
    else:
        function = getattr(value, "__func__", value)
        kind = {classmethod: "classmethod ", staticmethod: "staticmethod "}.get(type(value), "")
        yield from code(_signature(f"{kind}{title if kind else name}", function, getattr(cls, name), method=not kind))
    yield from _described(doc, function)


def _described(doc: Docstring, function: Callable[..., Any]) -> Iterator[str]:
    yield from doc.body
    yield from _arguments(doc, function)
    returns = doc.sections.get("Returns") or doc.sections.get("Yields")
    if returns:
        yield "**Returns**"
        yield ""
        yield from _text(returns)
    yield from _listed("Raises", doc.entries("Raises"))
    yield from _examples(doc, function)


def _arguments(doc: Docstring, value: Any) -> Iterator[str]:
    """List of arguments; fields of a dataclass without an entry are described by their comments."""
    entries = doc.entries("Args")
    if inspect.isclass(value) and (dataclasses.is_dataclass(value) or hasattr(value, "_fields")):
        beside, described = meanings_beside(value), {name for name, _ in entries}
        names = (
            [f.name for f in dataclasses.fields(value) if f.init] if dataclasses.is_dataclass(value) else value._fields
        )
        entries += [(name, beside.get(name, "")) for name in names if name not in described]
    yield from _listed("Arguments", entries)


def _declarations(cls: type[Any]) -> Iterator[str]:
    """Table of the class attributes by which a base class of parts declares what a part needs and provides."""
    own = inspect.get_annotations(cls)
    beside = meanings_beside(cls)
    rows = [
        (f"`{name}`", f"`{getattr(cls, name)!r}`" if hasattr(cls, name) else "required", escaped(beside.get(name, "")))
        for name, hint in own.items()
        if "ClassVar" in str(hint) and name.islower() and (beside.get(name) or name == "kind")
    ]
    rows = [(name, value, words or "word that names the part in experiment files") for name, value, words in rows]
    if rows:
        yield "**Class attributes**"
        yield ""
        yield from table(("name", "default", "meaning"), rows)
        yield ""


def _listed(title: str, entries: list[tuple[str, str]]) -> Iterator[str]:
    if entries:
        yield f"**{title}**"
        yield ""
        for name, words in entries:
            yield f"- `{name}`: {escaped(words)}" if words else f"- `{name}`"
        yield ""


def _examples(doc: Docstring, value: Any) -> Iterator[str]:
    for number, example in enumerate(doc.examples):
        if number == 0:
            yield "**Example**"
            yield ""
        yield from code(with_imports(example, value), "pycon")


def with_imports(example: str, value: Any) -> str:
    """Return an example with the imports of names that its module has, so that it runs elsewhere."""
    module = sys.modules[inspect.unwrap(value).__module__]
    tree = ast.parse("".join(one.source for one in doctest.DocTestParser().get_examples(example)))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {*vars(builtins)}
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    free = {node.id for node in names} - bound
    imports: dict[str, set[str]] = {}  # module → names; "" for modules themselves
    for name in free & {*vars(module)}:
        home, _, imported = _import(name, vars(module)[name], module.__name__).rpartition(" import ")
        imports.setdefault(home.removeprefix("from "), set()).add(imported)
    lines = [f">>> {statement}" for statement in sorted(imports.pop("", ()))]
    lines += [f">>> from {home} import {', '.join(sorted(names))}" for home, names in sorted(imports.items())]
    return "\n".join([*lines, example])


def _import(name: str, value: Any, module: str) -> str:
    """Return the statement that imports a name: from the package that documents it, else from its own module."""
    if inspect.ismodule(value):
        return f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}"
    for package in MODULES:
        if public_names(package).get(name) is value:
            return f"from {package} import {name}"
    home = getattr(value, "__module__", module)
    return f"from {home if home.partition('.')[0] == 'quorank' or name in dir(sys.modules[home]) else module} import {name}"


def code(text: str, language: str = "python") -> list[str]:
    """Return a fenced block."""
    return [f"```{language}", text, "```", ""]


def _members(cls: type[Any]) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class with those that it inherits within the package, in their order."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("quorank"):
            continue
        for name, value in vars(base).items():
            plain = getattr(value, "__func__", value)
            documented = inspect.isfunction(plain) or isinstance(value, property) or hasattr(value, "func")
            if documented and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, value


# ------------------------------------------------------------ signatures


def _constructor(cls: type[Any]) -> Any:
    """Return the callable whose signature is shown; None for classes that are not called directly."""
    return None if inspect.isabstract(cls) or isinstance(vars(cls).get("open"), classmethod) else cls


def _signature(title: str, source: Any, function: Any, *, method: bool = False) -> str:
    """Return the signature as code, one parameter per line where it is long; of an overloaded function, all of them."""
    if function is None:
        return title
    if variants := get_overloads(source) if inspect.isfunction(source) else ():
        return "\n".join(_signature(title, None, variant, method=method) for variant in variants)
    signature = inspect.signature(function)
    parameters = [*signature.parameters.values()]
    parameters = parameters[1:] if method and parameters and parameters[0].name == "self" else parameters
    shown: list[str] = []
    for number, parameter in enumerate(parameters):
        only = parameter.kind is parameter.KEYWORD_ONLY
        if only and not any(p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for p in parameters[:number]):
            shown.append("*")
        shown.append(_parameter(parameter))
    result = "" if inspect.isclass(function) else _annotation(signature.return_annotation)
    end = f") -> {result}" if result else ")"
    line = f"{title}({', '.join(shown)}{end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{title}(", *(f"    {each}," for each in shown), end])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    hint = _annotation(parameter.annotation)
    shown = f"{stars}{parameter.name}: {hint}" if hint else f"{stars}{parameter.name}"
    if parameter.default is parameter.empty:
        return shown
    value = _default(parameter.default)
    return f"{shown} = {value}" if hint else f"{shown}={value}"


def _default(value: Any) -> str:
    return "…" if re.search(r" object at |<factory>|^<", text := repr(value)) or len(text) > 60 else text


def _annotation(hint: Any) -> str:
    """Return an annotation as the source has it, without the names of typing modules."""
    if hint in (inspect.Parameter.empty, ""):
        return ""
    text = hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
    text = re.sub(r"\bnpt\.|\bcollections\.abc\.|\btyping\.", "", text)
    text = text.replace("SavedRanker", "Ranker")  # its public name
    return re.sub(r"NDArray\[(?:np\.)?(?:floating\[Any\]|Any)\]", "ndarray", text)


# ------------------------------------------------------------ docstrings


def parse(text: str | None) -> Docstring:
    """Parse a docstring.

    >>> parse("Add.\\n\\nArgs:\\n    a: First.\\n\\n>>> 1 + 1\\n2").entries("Args")
    [('a', 'First.')]
    """
    found, lines = Docstring(), inspect.cleandoc(text or "").split("\n")
    block: list[str] = []

    def close() -> None:
        if block:
            found.body.extend(_text("\n".join(block)))
        block.clear()

    at = 0
    while at < len(lines):
        line = lines[at]
        if (name := line.removesuffix(":")) in SECTIONS and line.endswith(":"):
            close()
            end = at + 1
            while end < len(lines) and (not lines[end] or lines[end].startswith(" ")):
                end += 1
            found.sections[name] = inspect.cleandoc("\n".join(["", *lines[at + 1 : end]]))
            at = end
        elif line.startswith(">>>"):
            close()
            end = next((n for n in range(at, len(lines)) if not lines[n]), len(lines))
            found.examples.append("\n".join(lines[at:end]))
            at = end
        else:
            block.append(line)
            at += 1
    close()
    return found


def _text(text: str) -> list[str]:
    """Return paragraphs and lists as Markdown; indented paragraphs are code."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if paragraph.startswith("    "):
            found += code(inspect.cleandoc("\n" + paragraph), "text")
        elif paragraph.startswith("- "):
            found += [f"- {escaped(' '.join(item.split()))}" for item in re.split(r"(?m)^- ", paragraph)[1:]]
            found.append("")
        elif paragraph.strip():
            found += [escaped(" ".join(paragraph.split())), ""]
    return found


def names_without_example() -> list[str]:
    """Return the public names whose docstring has no example."""
    return [
        f"{module}.{name}"
        for module in MODULES
        for name, value in public_names(module).items()
        if ">>>" not in (inspect.unwrap(value).__doc__ or "")
    ]

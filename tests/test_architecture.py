"""Rules of docs/architecture.md, checked on the source: imports, cycles, names, parts, errors."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path

import quorank
from quorank.service.dashboard.event_log import plain_code

PACKAGE = Path(quorank.__file__).parent
LAYERS = [
    "kernels", "files", "data", "text", "rankers", "users", "metrics", "learning", "privacy", "federation", "protocol",
    "silos", "tuning", "engines", "experiments", "reports", "reproduce", "service", "member", "search",
    "export", "api", "cli",
]  # fmt: skip
CODE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def module_of(file: str) -> str:
    """`learning/pdgd.py` is quorank.learning.pdgd."""
    parts = ("quorank", *Path(file).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


@cache
def tree_of(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"))


@cache
def nodes_of(file: str) -> list[ast.AST]:
    return list(ast.walk(tree_of(file)))


def imported(nodes: Iterable[ast.AST], package: list[str]) -> set[str]:
    """Every module of Quorank that a file imports, also inside functions."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                below = f"{module}.{alias.name}"
                found.add(below if below in MODULES else module)
    return {name for name in found if name in MODULES}


@cache
def imports_of(file: str) -> set[str]:
    module = module_of(file)
    package = module.split(".") if file.endswith("__init__.py") else module.split(".")[:-1]
    return imported(nodes_of(file), package)


def layer_of(module: str) -> str | None:
    """Return the layer of `quorank.layer.module`; None for modules of the root."""
    name = module.split(".")[1] if "." in module else ""
    return name if (PACKAGE / name).is_dir() and name else None


def test_imports_are_seen_also_inside_functions() -> None:
    source = "def f():\n    from quorank.learning import pdgd\n    import quorank.errors\n"
    assert imported(ast.walk(ast.parse(source)), ["quorank"]) == {"quorank.learning.pdgd", "quorank.errors"}
    assert layer_of("quorank.learning.pdgd") == "learning"
    assert layer_of("quorank.errors") is None


def test_every_folder_is_a_layer() -> None:
    assert {file.split("/")[0] for file in FILES if "/" in file} <= set(LAYERS)


def test_imports_point_upwards() -> None:
    """`__init__.py` is exempt: it loads the public names of all layers on first use. Parts stand on the codec of files."""
    bad = []
    for file in FILES:
        if file == "__init__.py":
            continue
        layer = layer_of(module_of(file))
        allowed = (
            {"files"} if file == "parts.py" else set() if layer is None else set(LAYERS[: LAYERS.index(layer) + 1])
        )
        used = {found for module in imports_of(file) if (found := layer_of(module)) is not None}
        bad += [f"{file} uses {other}" for other in used - allowed]
    assert bad == []


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or not (Tarjan 1972)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in edges[module]:
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in edges:
        if module not in number:
            visit(module)
    return found


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]


def test_no_modules_import_each_other() -> None:
    edges = defaultdict(set, {module: imports_of(file) - {module} for module, file in MODULES.items()})
    edges["quorank"] = set()  # it names what the rooms have for type checkers, and imports none of it
    assert cycles(edges) == []


@cache
def own_names(file: str) -> frozenset[str]:
    """The underscored names that a module defines: attributes of self, functions, classes, variables and fields."""
    found = set()
    for node in nodes_of(file):
        if isinstance(node, ast.Attribute) and is_self(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(name for name in found if name.startswith("_") and not name.endswith("__"))


def test_no_underscored_name_of_another_module() -> None:
    """Neither imported, nor reached through an object."""
    known = Counter(name for file in FILES for name in own_names(file))
    bad = []
    for file in FILES:
        others = known.keys() - own_names(file) - {"_fields", "_replace", "_asdict"}  # of named tuples: public
        for node in nodes_of(file):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("quorank"):
                names = [a.name for a in node.names if a.name.startswith("_") and not a.name.endswith("__")]
                bad += [f"{file} imports {name}" for name in names]
            elif isinstance(node, ast.Attribute) and node.attr in others and not is_self(node.value):
                bad.append(f"{file}: {ast.unparse(node)}")
    assert bad == []


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_a_class_name_occurs_once() -> None:
    places = defaultdict(list)
    for file in FILES:
        for node in nodes_of(file):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@cache
def parts() -> dict[str, str]:
    """The classes with a `kind` of their own, which are parts and mechanisms of parts, and the folder of each."""
    found = {}
    for file in FILES:
        for node in tree_of(file).body:
            if isinstance(node, ast.ClassDef) and any(is_kind(line) for line in node.body):
                found[node.name] = str(Path(file).parent)
    return found


def is_kind(line: ast.stmt) -> bool:
    return (
        isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and line.target.id == "kind"
        and line.value is not None
    )


def test_parts_are_found() -> None:
    assert parts()["PDGD"] == "learning"
    assert parts()["Krum"] == "federation/rules"


def test_nobody_asks_for_the_type_of_a_part() -> None:
    """Outside the folder that defines a family, code asks a part what it needs and gives."""
    bad = []
    for file in FILES:
        foreign = {name for name, folder in parts().items() if folder != str(Path(file).parent)}
        for node in nodes_of(file):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass", "type"):
                named = {name.id for arg in node.args for name in ast.walk(arg) if isinstance(name, ast.Name)}
                bad += [f"{file}:{node.lineno} asks for {name}" for name in named & foreign]
    assert bad == []


ERRORS = ("BadInput", "require")


def test_every_error_has_a_code() -> None:
    """`thing.what-is-wrong`, or the code of another error that is passed on."""
    bad = []
    for file in FILES:
        for node in nodes_of(file):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
                given = node.args[ERRORS.index(node.func.id) :]
                code = re.sub(r"{.*?}", "x", ast.unparse(given[0]).removeprefix("f").strip("\"'"))
                if len(given) < 2 or not (CODE.fullmatch(code) or isinstance(given[0], ast.Name | ast.Attribute)):
                    bad.append(f"{file}:{node.lineno}: {ast.unparse(node)[:80]}")
    assert bad == []


def codes_of(files: Iterable[str]) -> list[ast.expr]:
    """The codes of all errors that are raised in these files, as they stand there."""
    calls = [n for f in files for n in nodes_of(f) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    raised = [call.args[:1] for call in calls if call.func.id == "BadInput" and len(call.args) > 1]
    required = [call.args[1:2] for call in calls if call.func.id == "require" and len(call.args) > 2]
    return [code for codes in raised + required for code in codes]


def test_codes_of_errors_are_literals_that_the_log_takes() -> None:
    literals = {code.value for code in codes_of(FILES) if isinstance(code, ast.Constant)}
    assert "reply.norm" in literals and {plain_code(code) for code in literals} == literals
    told = ("engines/", "service/", "member/", "protocol/", "federation/coordinator.py")
    here = codes_of(file for file in FILES if file.startswith(told))
    names = {ast.unparse(code) for code in here if not isinstance(code, ast.Constant)}
    others = {name for name in names if not name.isupper()}  # constants of modules
    ours = {"code"}  # of `CohortSum.dropped` and `SecureRounds.liars`, which hold codes of secure sums
    assert others <= {"error.code", "verdict.code", "report.code", "outcome.code"} | ours, (
        "nothing of a message is part of a code"
    )


def test_nobody_looks_inside_a_sentence() -> None:
    """No test of what an error says: `str(error).startswith`, `"…" in str(error)`, `error.sentence == …`."""
    bad = []
    for file in FILES:
        for node in nodes_of(file):
            if not isinstance(node, ast.Compare | ast.Call):
                continue
            text = ast.unparse(node)
            compared = isinstance(node, ast.Compare) and ("str(error)" in text or ".sentence" in text)
            called = text.startswith(("str(error).", "error.sentence.")) and not text.startswith("str(error).encode")
            bad += [f"{file}:{node.lineno}: {text}"] if compared or called else []
    assert bad == []


def test_everything_begins_with_a_sentence() -> None:
    """Every module and every public class and function has a docstring."""
    bad = []
    for file in FILES:
        tree = tree_of(file)
        if tree.body and not ast.get_docstring(tree):
            bad.append(file)
        for node in tree.body:
            named = isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
            if named and not ast.get_docstring(node) and "overload" not in map(ast.unparse, node.decorator_list):
                bad.append(f"{file}: {node.name}")
    assert bad == []


GATE = ("files/archives.py", "files/arrow.py", "files/documents.py", "files/npz.py", "files/untrusted.py")
"""The modules that files of ours, and of others, are parsed in."""
PARSERS = ("json.load", "json.loads", "json_.loads", "np.load", "numpy.load", "pq.read_table", "pq.ParquetFile",
           "tomllib.load", "tomllib.loads", "zipfile.ZipFile", "pickle.load", "pickle.loads")  # fmt: skip
NOT_OF_OURS = {
    # messages and heads of formats with their own checks
    "federation/reply.py", "silos/envelopes.py",
    "protocol/leaving.py",
    # what a process of ours was told by another one of ours a moment ago
    "experiments/cluster.py",
    # models that were written again and are equal byte by byte
    "export/plugin.py", "export/solr.py", "export/xgboost.py",
}  # fmt: skip


def test_files_of_ours_are_parsed_at_the_gate() -> None:
    """JSON, TOML, arrays and Parquet are parsed by the modules of `files` alone."""
    bad = []
    for file in FILES:
        if file in GATE or file in NOT_OF_OURS:
            continue
        for node in nodes_of(file):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in PARSERS:
                bad.append(f"{file}:{node.lineno} calls {ast.unparse(node.func)}")
    assert bad == []


def test_the_threat_model_names_tests_that_exist() -> None:
    """Each line of docs/threat-model.md names its tests, or says that it is not protected."""
    root = PACKAGE.parent
    text = (root / "docs/threat-model.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:[a-z_]+/)*test_[a-z_]+\.py(?:::test_[a-z0-9_]+)?)`", text):
        file, _, test = name.partition("::")
        path = root / "tests" / file
        assert path.is_file(), name
        assert not test or f"def {test}(" in path.read_text(encoding="utf-8"), name
    rows = [line for line in text.splitlines() if line.startswith("|") and line.count("|") == 4]
    claims = [row for row in rows if not re.match(r"\| (role|attack|file|event) \||\|---", row)]
    trusted = text.split("\n## ")[0]
    assert [row for row in claims if "test_" not in row and "not protected" not in row and row not in trusted] == []


FIXED = {  # first versions without a known advisory, and the last one that they fix
    "cryptography": (50,),  # CVE-2026-69247
    "jinja2": (3, 1, 6),  # CVE-2025-27516
    "onnx": (1, 21),  # CVE-2026-27489
    "pypdf": (6, 16, 1),  # CVE-2026-84310
    "starlette": (1, 3, 1),  # GHSA-82w8-qh3p-5jfq
}


def test_no_version_with_a_known_hole_is_accepted() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    bounds = [re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", line) for line in wanted]
    found = [(bound[1].lower(), tuple(map(int, bound[2].split(".")))) for bound in bounds if bound]
    assert {name for name, _ in found} >= {*FIXED}
    assert [(name, least) for name, least in found if least < FIXED.get(name, ())] == []

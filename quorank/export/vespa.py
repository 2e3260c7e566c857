"""Vespa: a rank profile of ranking expressions for linear rankers and trees.

Ranking expressions are computed in double. An attribute without a value is NaN, which the profile replaces. Trees go left
where x < t, with t the next float32 up: the form that Vespa's own optimiser of tree ensembles recognises.

The checker reads the part of the language that these profiles use: numbers, `+ - * /`, comparisons, `if (c, a, b)`,
`isNan(x)`, `attribute(name)` and functions without arguments, each defined before use and computed once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.export.contents import next_float32, text_of
from quorank.export.exported_ranker import ExportedRanker, ExportTarget, Scorer
from quorank.export.trees import NodeTree
from quorank.kernels.arrays import Doubles, Floats

PROFILE, FIELDS, NAME = "quorank.profile", "fields.sd", "quorank"
MOST_TOKENS, DEEPEST = 4_000_000, 130
_TOKEN = re.compile(r"\s+|(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|[A-Za-z_][A-Za-z0-9_]*|[<>=]=|[-+*/<>(),])")
_FUNCTION = re.compile(r"function ([A-Za-z_][A-Za-z0-9_]*)\(\) \{")
_BINDING = {"==": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "+": 2, "-": 2, "*": 3, "/": 3}
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
}  # fmt: skip


def _write(exported: ExportedRanker) -> dict[str, bytes]:
    fields = [f"field {name} type float {{\n    indexing: attribute\n}}\n" for name in exported.names]
    profile = "\n".join([f"rank-profile {NAME} {{", *_expression_lines(exported), "}", ""])
    return {PROFILE: profile.encode(), FIELDS: "".join(fields).encode()}


def _expression_lines(exported: ExportedRanker) -> list[str]:
    missing, lines = repr(exported.missing), []
    for name in exported.names:
        lines += _block(f"function x_{name}()", [f"if (isNan(attribute({name})) == 1, {missing}, attribute({name}))"])
    trees = [_nested(tree, exported.names) for tree in exported.trees] if exported.family == "trees" else None
    terms = _products(exported) if trees is None else trees
    return lines + _block("first-phase", [*terms[:1], *(f"+ {term}" for term in terms[1:])])


def _block(head: str, expression: list[str]) -> list[str]:
    if len(expression) == 1:
        return [f"    {head} {{", f"        expression: {expression[0]}", "    }"]
    body = [f"            {line}" for line in expression]
    return [f"    {head} {{", "        expression {", *body, "        }", "    }"]


def _products(exported: ExportedRanker) -> list[str]:
    """Product for each feature: weight · (x − low) / (high − low)."""
    products = []
    columns = (exported.weights.astype(np.float64).tolist(), exported.low.tolist(), exported.span.tolist())
    for name, weight, low, span in zip(exported.names, *columns, strict=True):
        x = f"x_{name}"
        if exported.normalisation.low:
            x = f"(x_{name} - ({low!r})) / {span!r}" if span > 0.0 else "0.0"
        products.append(f"({weight!r}) * {x}")
    return products


def _nested(tree: NodeTree, names: tuple[str, ...]) -> str:
    above = next_float32(tree.threshold).astype(np.float64).tolist()

    def of_split(node: int, left: str, right: str) -> str:
        return f"if (x_{names[tree.feature[node]]} < {above[node]!r}, {left}, {right})"

    expression = tree.fold(lambda leaf: repr(tree.threshold[leaf]), of_split)
    return str(expression if tree.splits else f"({expression})")


# ------------------------------------------------------------ checker


def _load(files: Mapping[str, bytes], columns: Sequence[str]) -> Scorer:
    bodies = _read_bodies(text_of(files, PROFILE))
    phase = bodies.pop("first-phase")
    expressions = {name: _tokens(body) for name, body in (*bodies.items(), ("first-phase", phase))}

    def score(features: Floats) -> Doubles:
        attributes = dict(zip(columns, features.astype(np.float64).T, strict=True))
        values: dict[str, Any] = {}
        with np.errstate(all="ignore"):
            for name, tokens in expressions.items():
                values[name] = _Evaluator(tokens, attributes, values).evaluate()
        return np.broadcast_to(np.asarray(values["first-phase"], dtype=np.float64), (len(features),)).copy()

    score(np.zeros((0, len(columns)), dtype=np.float32))  # raises for a damaged expression
    return score


def _read_bodies(text: str) -> dict[str, str]:
    """Return the expressions of a profile's functions and of "first-phase", in their order."""
    bodies: dict[str, str] = {}
    lines = text.splitlines()
    require(lines[:1] and lines[0].startswith("rank-profile "), "export.damaged", "is no rank profile", PROFILE)
    name: str | None = None
    body: list[str] | None = None
    for line in map(str.strip, lines[1:]):
        head = _FUNCTION.fullmatch(line)
        if head or line == "first-phase {":
            name, body = head.group(1) if head else "first-phase", None
            require(name not in bodies, "export.damaged", f"defines {name[:60]} twice", PROFILE)
        elif name is not None and line.startswith("expression: "):
            bodies[name] = line.removeprefix("expression: ")
        elif name is not None and line == "expression {":
            body = []
        elif line == "}":
            if body is not None and name is not None:
                bodies[name], body = "\n".join(body), None
            else:
                name = None
        elif body is not None:
            body.append(line)
    require("first-phase" in bodies, "export.damaged", "has no first phase", PROFILE)
    return bodies


class _Evaluator:
    """Precedence climbing over the tokens of one expression, which computes (rows,) values as it reads."""

    def __init__(self, tokens: list[str], attributes: Mapping[str, Doubles], functions: Mapping[str, Any]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0
        self.attributes, self.functions = attributes, functions

    def evaluate(self) -> Any:
        """Evaluate the expression up to its end."""
        value = self._expression(1)
        _check(self.at == len(self.tokens), "holds something behind an expression")
        return value

    def _next(self, expected: str = "") -> str:
        _check(self.at < len(self.tokens), "holds an expression that ends too early")
        token = self.tokens[self.at]
        _check(expected in ("", token), f"expected {expected!r} in an expression, got {token[:40]!r}")
        self.at += 1
        return token

    def _expression(self, least: int) -> Any:
        value = self._atom()
        while self.at < len(self.tokens) and _BINDING.get(self.tokens[self.at], 0) >= least:
            operator = self._next()
            # the right operand binds closer: a − b − c is (a − b) − c
            value = _OPERATIONS[operator](value, self._expression(_BINDING[operator] + 1)) * 1.0
        return value

    def _arguments(self, count: int) -> list[Any]:
        arguments = []
        for number in range(count):
            self._next("," if number else "(")
            arguments.append(self._expression(1))
        self._next(")")
        return arguments

    def _atom(self) -> Any:
        token = self._next()
        self.depth += 1
        _check(self.depth <= DEEPEST, "holds an expression that is nested too deep")
        if token[0].isdigit():
            value: Any = float(token)
            _check(math.isfinite(value), "holds a number that is too large")
        elif token == "-":
            value = 0.0 - self._atom()
        elif token == "(":
            value = self._expression(1)
            self._next(")")
        elif token == "if":
            condition, yes, no = self._arguments(3)
            value = np.where(np.asarray(condition) != 0.0, yes, no)
        elif token == "isNan":
            value = np.isnan(self._arguments(1)[0]) * 1.0
        elif token == "attribute":
            self._next("(")
            name = self._next()
            self._next(")")
            _check(name in self.attributes, "reads an attribute that is no feature of the export")
            value = self.attributes[name]
        else:
            _check(token in self.functions, f"calls {token[:40]!r}, which is not defined before")
            value = self.functions[token]
        self.depth -= 1
        return value


def _check(condition: object, sentence: str) -> None:
    require(condition, "export.damaged", sentence, PROFILE)


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    for match in _TOKEN.finditer(text):
        _check(match.start() == at, f"holds {text[at]!r}, which is no part of an expression")
        at = match.end()
        if match.group(1):
            tokens.append(match.group(1))
            _check(len(tokens) <= MOST_TOKENS, "holds an expression that is too long")
    _check(at == len(text), "holds something that is no part of an expression")
    return tokens


def _instructions(exported: ExportedRanker) -> str:
    return f"""\
`{FIELDS}` has a field for each feature, to be put into the document of your schema; where a feature is computed by
Vespa (`bm25(title)`), **edit a copy** of the profile and put it in place of `attribute(…)`. `{PROFILE}` lies beside
the schema. A field without a value is a missing feature.

```
mkdir -p APPLICATION/schemas/SCHEMA
cp {PROFILE} APPLICATION/schemas/SCHEMA/
vespa deploy APPLICATION
vespa query 'yql=select * from SCHEMA where userQuery()' 'query=words of the query' 'ranking={NAME}'
```

Rank profiles: https://docs.vespa.ai/en/basics/ranking.html
"""


VESPA = ExportTarget("vespa", "Vespa", ("linear", "trees"), _write, _load, _instructions, deepest=100)

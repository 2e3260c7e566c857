"""Vespa's rank profile: its ranking expressions, computed in double as documented, or the ONNX model that it names.

Read is the part of the language that our profiles use: numbers, `+ - * /`, comparisons, `if (c, a, b)`, `isNan(x)`,
`attribute(name)` (NaN where a document has none) and functions without arguments, each defined before it is used and
computed once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.export.evaluators.contents import damaged, text_of
from quorank.export.evaluators.onnx import load_onnx
from quorank.export.target import Scorer
from quorank.kernels.arrays import Doubles, Floats, Integers

MOST_TOKENS, DEEPEST = 4_000_000, 130
_TOKEN = re.compile(r"\s+|(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|[A-Za-z_][A-Za-z0-9_]*|[<>=]=|[-+*/<>(),])")
_FUNCTION = re.compile(r"function ([A-Za-z_][A-Za-z0-9_]*)\(\) \{")
_TENSOR = re.compile(r"tensor<float>\(d0\[1\],d1\[(\d{1,9})\]\):\[\[([^\[\]]*)\]\]")
_CELL = re.compile(r"attribute\(([A-Za-z_][A-Za-z0-9_]*)\)")
_BINDING = {"==": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "+": 2, "-": 2, "*": 3, "/": 3}
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}
Expression = tuple[Any, ...]
"""("number", x), ("attribute", column), ("function", name), ("isNan", e), ("if", c, a, b), ("sum", e, ((sign, e), …))."""


def load_vespa(files: Mapping[str, bytes], profile_file: str, onnx_file: str, columns: Sequence[str]) -> Scorer:
    """Return the model of a rank profile; columns are the attributes that are given."""
    text = text_of(files, profile_file)
    places = {name: at for at, name in enumerate(columns)}
    bodies = _bodies(text, profile_file)
    phase = bodies.pop("first-phase", "")
    if phase.startswith("sum(onnx("):
        return _of_network(files, onnx_file, bodies.get("ranker_features", ""), profile_file, places)
    functions: dict[str, Expression] = {}
    for name, body in bodies.items():
        functions[name] = _Parser(body, places, functions, profile_file).whole()
    expression = _Parser(phase, places, functions, profile_file).whole()

    def score(features: Floats, offsets: Integers) -> Doubles:
        values: dict[str, Any] = {}
        given = features.astype(np.float64)
        with np.errstate(all="ignore"):
            for name, function in functions.items():
                values[name] = _value(function, given, values)
            found = _value(expression, given, values)
        return np.broadcast_to(np.asarray(found, dtype=np.float64), (len(features),)).copy()

    return score


def _of_network(
    files: Mapping[str, bytes], onnx_file: str, tensor: str, profile_file: str, places: dict[str, int]
) -> Scorer:
    """The ONNX model, fed with the attributes in the order of the profile's tensor."""
    found = _TENSOR.fullmatch(tensor.strip())
    cells = [_CELL.fullmatch(cell.strip()) for cell in found.group(2).split(",")] if found else []
    names = [cell.group(1) for cell in cells if cell]
    known = (
        found is not None and len(names) == len(cells) == int(found.group(1)) and all(name in places for name in names)
    )
    require(known, "export.damaged", "expected ranker_features to be a tensor of attributes", profile_file)
    inner = load_onnx(files, onnx_file, len(names))
    order = [places[name] for name in names]
    return lambda features, offsets: inner(features[:, order], offsets)


def _bodies(text: str, file: str) -> dict[str, str]:
    """Expressions of a profile by the function, and of "first-phase", in their order."""
    found: dict[str, str] = {}
    lines = text.splitlines()
    require(lines[:1] and lines[0].startswith("rank-profile "), "export.damaged", "is no rank profile", file)
    name: str | None = None
    body: list[str] | None = None
    for line in map(str.strip, lines[1:]):
        head = _FUNCTION.fullmatch(line)
        if head or line == "first-phase {":
            name, body = head.group(1) if head else "first-phase", None
            require(name not in found, "export.damaged", f"defines {name[:60]} twice", file)
        elif name is not None and line.startswith("expression: "):
            found[name] = line.removeprefix("expression: ")
        elif name is not None and line == "expression {":
            body = []
        elif line == "}":
            if body is not None and name is not None:
                found[name], body = "\n".join(body), None
            else:
                name = None
        elif body is not None:
            body.append(line)
    require("first-phase" in found, "export.damaged", "has no first phase", file)
    return found


class _Parser:
    """Precedence climbing over the tokens of one expression."""

    def __init__(self, text: str, places: dict[str, int], functions: Mapping[str, Expression], file: str) -> None:
        self.tokens, self.at, self.deep = _tokens(text, file), 0, 0
        self.places, self.functions, self.file = places, functions, file

    def whole(self) -> Expression:
        """The expression, up to its end."""
        found = self.expression(1)
        self.require(self.at == len(self.tokens), "holds something behind an expression")
        return found

    def require(self, condition: object, sentence: str) -> None:
        require(condition, "export.damaged", sentence, self.file)

    def next(self, expected: str = "") -> str:
        self.require(self.at < len(self.tokens), "holds an expression that ends too early")
        token = self.tokens[self.at]
        self.require(not expected or token == expected, f"expected {expected!r} in an expression, found {token[:40]!r}")
        self.at += 1
        return token

    def expression(self, least: int) -> Expression:
        first = self.atom()
        rest: list[tuple[str, Expression]] = []
        while self.at < len(self.tokens) and _BINDING.get(self.tokens[self.at], 0) >= least:
            operator = self.next()
            # what stands behind an operator binds closer: a − b − c is (a − b) − c
            rest.append((operator, self.expression(_BINDING[operator] + 1)))
        return ("sum", first, tuple(rest)) if rest else first

    def atom(self) -> Expression:
        self.deep += 1
        self.require(self.deep <= DEEPEST, "holds an expression that is nested too deep")
        found = self._atom()
        self.deep -= 1
        return found

    def _atom(self) -> Expression:
        token = self.next()
        if token[0].isdigit():
            value = float(token)
            self.require(math.isfinite(value), "holds a number that is too large")
            return ("number", value)
        if token == "-":
            return ("sum", ("number", 0.0), (("-", self.atom()),))
        if token == "(":
            found = self.expression(1)
            self.next(")")
            return found
        if token in ("if", "isNan"):
            return self._call(token, 3 if token == "if" else 1)
        if token == "attribute":
            self.next("(")
            name = self.next()
            self.next(")")
            self.require(name in self.places, "reads an attribute that is no feature of the export")
            return ("attribute", self.places[name])
        self.require(token in self.functions, f"calls {token[:40]!r}, which is not defined before")
        return ("function", token)

    def _call(self, name: str, count: int) -> Expression:
        self.next("(")
        arguments = [self.expression(1)]
        while len(arguments) < count:
            self.next(",")
            arguments.append(self.expression(1))
        self.next(")")
        return (name, *arguments)


def _tokens(text: str, file: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise damaged(file, f"holds {text[at]!r}, which is no part of an expression")
        at = match.end()
        if match.group(1):
            found.append(match.group(1))
            require(len(found) <= MOST_TOKENS, "export.damaged", "holds an expression that is too long", file)
    return found


def _value(expression: Expression, features: Doubles, values: Mapping[str, Any]) -> Any:
    """What an expression is of (rows, n) features."""
    kind = expression[0]
    if kind == "number":
        return expression[1]
    if kind == "attribute":
        return features[:, expression[1]]
    if kind == "function":
        return values[expression[1]]
    if kind == "isNan":
        return np.isnan(_value(expression[1], features, values)) * 1.0
    if kind == "if":
        condition, yes, no = (_value(each, features, values) for each in expression[1:])
        return np.where(np.asarray(condition) != 0.0, yes, no)
    total = _value(expression[1], features, values)
    for operator, operand in expression[2]:
        total = _OPERATIONS[operator](total, _value(operand, features, values)) * 1.0
    return total

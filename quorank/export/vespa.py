"""Vespa: a rank profile of ranking expressions for linear rankers and trees.

Ranking expressions are computed in double. An attribute without a value is NaN, which the profile replaces. Trees go left
where x < t, with t the next float32 up: the form that Vespa's own optimiser of tree ensembles recognises.

The checker reads the part of the language that these profiles use: numbers, `+ - * /`, comparisons, `if (c, a, b)`,
`isNan(x)`, `attribute(name)` and functions without arguments, each defined before use and computed once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorank.export.exported_ranker import ExportedRanker, ExportTarget, Scorer
from quorank.export.trees import NodeTree
from quorank.kernels.arrays import Doubles, Floats

PROFILE, FIELDS, NAME = "quorank.profile", "fields.sd", "quorank"
_TOKEN = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|[A-Za-z_]\w*|[<>=]=|[-+*/<>(),]")
_BODY = re.compile(r"(?:function (\w+)\(\)|first-phase) \{\s+expression(?:: (.*)| \{([^}]*)\})")
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
    above = tree.next_above.astype(np.float64).tolist()

    def of_split(node: int, left: str, right: str) -> str:
        return f"if (x_{names[tree.feature[node]]} < {above[node]!r}, {left}, {right})"

    expression = tree.fold(lambda leaf: repr(tree.threshold[leaf]), of_split)
    return str(expression if tree.splits else f"({expression})")


# ------------------------------------------------------------ checker


def _load(files: Mapping[str, bytes], columns: Sequence[str]) -> Scorer:
    found = _BODY.finditer(files[PROFILE].decode())
    expressions = {match[1] or "first-phase": _TOKEN.findall(match[2] or match[3]) for match in found}

    def score(features: Floats) -> Doubles:
        attributes = dict(zip(columns, features.astype(np.float64).T, strict=True))
        values: dict[str, Any] = {}
        with np.errstate(all="ignore"):
            for name, tokens in expressions.items():
                values[name] = _Evaluator(tokens, attributes, values).expression()
        return np.broadcast_to(np.asarray(values["first-phase"], dtype=np.float64), (len(features),)).copy()

    return score


class _Evaluator:
    """Precedence climbing over the tokens of one expression, which computes (rows,) values as it reads."""

    def __init__(self, tokens: list[str], attributes: Mapping[str, Doubles], functions: Mapping[str, Any]) -> None:
        self.tokens = tokens[::-1]  # the next one last
        self.attributes, self.functions = attributes, functions

    def expression(self, least: int = 1) -> Any:
        """Evaluate operators that bind at least so closely."""
        value = self._atom()
        while self.tokens and _BINDING.get(self.tokens[-1], 0) >= least:
            operator = self.tokens.pop()
            # the right operand binds closer: a − b − c is (a − b) − c
            value = _OPERATIONS[operator](value, self.expression(_BINDING[operator] + 1)) * 1.0
        return value

    def _arguments(self, count: int) -> list[Any]:
        """Evaluate the arguments of a call, each behind a parenthesis or a comma."""
        arguments = []
        for _ in range(count):
            self.tokens.pop()
            arguments.append(self.expression())
        self.tokens.pop()
        return arguments

    def _atom(self) -> Any:
        token = self.tokens.pop()
        if token[0].isdigit():
            return float(token)
        if token == "-":
            return 0.0 - self._atom()
        if token == "(":
            value = self.expression()
            self.tokens.pop()
            return value
        if token == "if":
            condition, yes, no = self._arguments(3)
            return np.where(np.asarray(condition) != 0.0, yes, no)
        if token == "isNan":
            return np.isnan(self._arguments(1)[0]) * 1.0
        if token == "attribute":
            _, name, _ = (self.tokens.pop() for _ in range(3))
            return self.attributes[name]
        return self.functions[token]


def _instructions(exported: ExportedRanker) -> str:
    return f"""\
`{FIELDS}` has a field for each feature: copy the fields into the document of your schema. Where Vespa computes a feature
(`bm25(title)`), **edit a copy** of the profile, and write that in place of `attribute(…)`. Copy `{PROFILE}` into
the folder of the schema. A field without a value is a missing feature.

```
mkdir -p APPLICATION/schemas/SCHEMA
cp {PROFILE} APPLICATION/schemas/SCHEMA/
vespa deploy APPLICATION
vespa query 'yql=select * from SCHEMA where userQuery()' 'query=words of the query' 'ranking={NAME}'
```

Rank profiles: https://docs.vespa.ai/en/basics/ranking.html
"""


VESPA = ExportTarget(
    "vespa", "Vespa", ("linear", "trees"), (PROFILE, FIELDS), _write, _load, _instructions, deepest=100
)

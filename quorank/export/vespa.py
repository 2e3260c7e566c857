"""Vespa: a rank profile of ranking expressions for linear rankers and trees, or with the ONNX model of a network.

Ranking expressions are computed in double. An attribute without a value is NaN, which the profile replaces. Trees go
left where x < t, with t the next float32 up: the form that Vespa's own optimiser of tree ensembles knows.
"""

from __future__ import annotations

import numpy as np

from quorank.export.evaluators.vespa import load_vespa
from quorank.export.exported_ranker import ExportedRanker
from quorank.export.onnx import FILE as ONNX_FILE
from quorank.export.onnx import INPUT, OUTPUT, onnx_model
from quorank.export.target import ExportTarget
from quorank.export.tree_nodes import TreeNodes

PROFILE, FIELDS, NAME = "quorank.profile", "fields.sd", "quorank"


def _files(exported: ExportedRanker) -> dict[str, bytes]:
    fields = [f"field {name} type float {{\n    indexing: attribute\n}}\n" for name in exported.names]
    files = {PROFILE: _profile(exported).encode(), FIELDS: "".join(fields).encode()}
    return files | {ONNX_FILE: onnx_model(exported)} if exported.kind == "network" else files


def _profile(exported: ExportedRanker) -> str:
    if exported.kind == "network":
        return _network_profile(exported)
    missing = repr(float(exported.missing))
    lines = [f"rank-profile {NAME} {{"]
    for name in exported.names:
        lines += _block(f"function x_{name}()", [f"if (isNan(attribute({name})) == 1, {missing}, attribute({name}))"])
    terms = [_nested(tree, exported.names) for tree in exported.trees] if exported.kind == "trees" else _terms(exported)
    return "\n".join([*lines, *_block("first-phase", [*terms[:1], *(f"+ {term}" for term in terms[1:])]), "}", ""])


def _block(head: str, expression: list[str]) -> list[str]:
    if len(expression) == 1:
        return [f"    {head} {{", f"        expression: {expression[0]}", "    }"]
    return [
        f"    {head} {{",
        "        expression {",
        *(f"            {line}" for line in expression),
        "        }",
        "    }",
    ]


def _terms(exported: ExportedRanker) -> list[str]:
    """A product a feature: weight · (x − low) / (high − low)."""
    found = []
    for name, weight, low, span in zip(
        exported.names,
        exported.weights.astype(np.float64).tolist(),
        exported.low.tolist(),
        exported.span.tolist(),
        strict=True,
    ):
        x = f"x_{name}"
        if exported.rowwise.low:
            x = f"(x_{name} - ({low!r})) / {span!r}" if span > 0.0 else "0.0"
        found.append(f"({weight!r}) * {x}")
    return found


def _nested(tree: TreeNodes, names: tuple[str, ...]) -> str:
    """A tree as one expression, made from its last node up."""
    above = np.nextafter(np.array(tree.threshold, dtype=np.float32), np.float32(np.inf)).astype(np.float64).tolist()
    made = {-leaf - 1: repr(value) for leaf, value in enumerate(tree.value)}
    for node in range(len(tree.feature) - 1, -1, -1):
        x, left, right = f"x_{names[tree.feature[node]]}", made[tree.left[node]], made[tree.right[node]]
        made[node] = f"if ({x} < {above[node]!r}, {left}, {right})"
    return made[0] if tree.feature else f"({made[-1]})"


def _network_profile(exported: ExportedRanker) -> str:
    cells = ", ".join(f"attribute({name})" for name in exported.names)
    tensor = f"tensor<float>(d0[1],d1[{len(exported.names)}]):[[{cells}]]"
    model = [
        f"    onnx-model {NAME} {{",
        f"        file: files/{ONNX_FILE}",
        f"        input {INPUT}: ranker_features",
        f"        output {OUTPUT}: {OUTPUT}",
        "    }",
    ]
    return "\n".join(
        [
            f"rank-profile {NAME} {{",
            *model,
            *_block("function ranker_features()", [tensor]),
            *_block("first-phase", [f"sum(onnx({NAME}).{OUTPUT})"]),
            "}",
            "",
        ]
    )


def _calls(exported: ExportedRanker) -> str:
    network = f"\ncp {ONNX_FILE} APPLICATION/files/" if exported.kind == "network" else ""
    return f"""\
`{FIELDS}` has a field for each feature, to be put into the document of your schema; where a feature is computed by
Vespa (`bm25(title)`), **edit a copy** of the profile and put it in place of `attribute(…)`. `{PROFILE}` lies beside
the schema. A field without a value is a missing feature.

```
mkdir -p APPLICATION/schemas/SCHEMA APPLICATION/files
cp {PROFILE} APPLICATION/schemas/SCHEMA/{network}
vespa deploy APPLICATION
vespa query 'yql=select * from SCHEMA where userQuery()' 'query=words of the query' 'ranking={NAME}'
```

Rank profiles: https://docs.vespa.ai/en/basics/ranking.html
"""


VESPA = ExportTarget(
    "vespa",
    "Vespa",
    ("linear", "network", "trees"),
    write=_files,
    load=lambda files, names: load_vespa(files, PROFILE, ONNX_FILE, names),
    calls=_calls,
    deepest=100,
)

"""Evaluators of formats against what each format's description says, on models that are written by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quorank.data.normalisation import FixedRange
from quorank.export import target_of
from quorank.export.exported_ranker import ExportedRanker
from quorank.export.solr import written_thresholds
from quorank.rankers import Trees
from quorank.rankers.ranker_file import SavedRanker
from quorank.rankers.trees import TreeArrays, tree_parameters

NAN = float("nan")
FLOATS = st.floats(-(2.0**127), 2.0**127, width=32)


def score(target: str, files: dict[str, object], names: tuple[str, ...], rows: list[list[float]]) -> list[float]:
    content = {name: given if isinstance(given, bytes) else _bytes(given) for name, given in files.items()}
    features = np.array(rows, dtype=np.float32)
    return target_of(target).load(content, names)(features).tolist()


def _bytes(given: object) -> bytes:
    return given.encode() if isinstance(given, str) else json.dumps(given).encode()


SOLR_FEATURES = [
    {"name": "title", "class": "x", "params": {"defaultValue": 7.0}},
    {"name": "score", "class": "x", "params": {"field": "score"}},
]


def solr(kind: str, params: dict, norms: tuple[dict | None, ...] = (None, None)) -> dict[str, object]:
    listed = [
        {"name": name} | ({"norm": norm} if norm else {}) for name, norm in zip(("title", "score"), norms, strict=True)
    ]
    model = {"class": f"org.apache.solr.ltr.model.{kind}", "name": "m", "features": listed, "params": params}
    return {"features.json": SOLR_FEATURES, "model.json": model}


def test_solr_trees_of_the_reference_guide() -> None:
    """Left where x ≤ threshold + 1e-6; a tree has a weight; a missing field has its default."""
    root = {
        "feature": "title",
        "threshold": "0.5",
        "left": {"value": "-100"},
        "right": {"feature": "score", "threshold": "10.0", "left": {"value": "50"}, "right": {"value": "75"}},
    }
    trees = [{"weight": "1", "root": root}, {"weight": "2", "root": {"value": "-10"}}]
    rows = [[0.5, 99.0], [0.5000005, 0.0], [0.6, 10.0], [0.6, 10.1], [NAN, NAN]]
    found = score("solr", solr("MultipleAdditiveTreesModel", {"trees": trees}), ("title", "score"), rows)
    assert found == [-100 - 20, -100 - 20, 50 - 20, 75 - 20, 50 - 20]


def test_solr_linear_models_with_normalisers() -> None:
    kind = "org.apache.solr.ltr.norm.MinMaxNormalizer"
    norms = tuple({"class": kind, "params": {"min": low, "max": high}} for low, high in (("0", "50"), ("100", "110")))
    weights = {"weights": {"title": 2.0, "score": 0.5}}
    rows = [[25.0, 110.0], [NAN, 100.0]]
    found = score("solr", solr("LinearModel", weights, norms), ("title", "score"), rows)
    assert found == pytest.approx([2 * 0.5 + 0.5 * 1, 2 * 7 / 50])


@given(st.lists(FLOATS | st.floats(-1.0, 1.0, width=32), min_size=1, max_size=50))
@example([-0.5, -1.0, 1e-6, 9.2e-41, 0.0])
def test_what_solr_adds_to_a_threshold_gives_the_threshold(values: list[float]) -> None:
    thresholds = np.array(values, dtype=np.float32)
    seen = written_thresholds(thresholds) + np.float32(1e-6)
    near_zero = np.abs(thresholds) < 1e-6
    assert ((seen >= thresholds) & (seen - thresholds < 1.2e-13))[near_zero].all()
    step = np.nextafter(thresholds, np.float32(np.inf))
    assert ((seen == thresholds) | ((seen == step) & (thresholds < 0.0)))[~near_zero].all()


def plugin(kind: str, definition: object, **more: object) -> dict[str, object]:
    features = [
        {"name": name, "params": [], "template": {}} for name in ("b", "a")
    ]  # in another order than the columns
    model = {"type": kind, "definition": json.dumps(definition), **more}
    return {
        "featureset.json": {"featureset": {"name": "s", "features": features}},
        "model.json": {"model": {"name": "m", "model": model}},
    }


def test_the_plug_ins_linear_model_and_normalisers() -> None:
    rows = [[1.0, 3.0], [NAN, 2.0]]
    assert score("opensearch", plugin("model/linear", {"a": 0.5, "b": 2}), ("a", "b"), rows) == [6.5, 4.0]
    norms = {
        "a": {"standard": {"mean": 1.0, "standard_deviation": 4.0}},
        "b": {"standard": {"mean": 1.0, "standard_deviation": 4.0}},
    }
    files = plugin("model/linear", {"a": 8.0, "b": 2.0}, feature_normalizers=norms)
    assert score("elasticsearch", files, ("a", "b"), rows) == [0 + 2 * 2 / 4, 8 * -1 / 4 + 2 * 1 / 4]


def test_the_plug_ins_trees_go_left_below_a_condition() -> None:
    leaves = [{"nodeid": 1, "leaf": 0.5}, {"nodeid": 2, "leaf": -1.5}]
    split = {"nodeid": 0, "depth": 0, "split": "a", "split_condition": 0.25, "yes": 1, "no": 2, "missing": 2}
    files = plugin("model/xgboost+json", [split | {"children": leaves}, {"nodeid": 0, "leaf": 4.0}])
    rows = [[0.25, 0.0], [0.2499, 0.0], [NAN, 0.0]]  # a missing feature is 0, whatever "missing" says
    assert score("elasticsearch", files, ("a", "b"), rows) == [2.5, 4.5, 4.5]


def test_ranklibs_models() -> None:
    names, rows = ("x", "y"), [[1.0, 3.0], [NAN, 2.0]]
    assert score("ranklib", {"model.txt": "## Linear Regression\n0:-1.0 1:0.5 2:2.0\n"}, names, rows) == [5.5, 3.0]
    trees = """## LambdaMART
## No. of trees = 2

<ensemble>
	<tree id="1" weight="0.1">
		<split>
			<feature> 2 </feature>
			<threshold> 2.5 </threshold>
			<split pos="left">
				<output> -2.0 </output>
			</split>
			<split pos="right">
				<feature> 1 </feature>
				<threshold> 1.0 </threshold>
				<split pos="left">
					<output> 3.0 </output>
				</split>
				<split pos="right">
					<output> 5.0 </output>
				</split>
			</split>
		</split>
	</tree>
	<tree id="2" weight="1.0">
		<split>
			<output> 7.0 </output>
		</split>
	</tree>
</ensemble>
"""
    rows = [[1.0, 3.0], [1.1, 3.0], [9.0, 2.5], [9.0, NAN]]
    assert score("ranklib", {"model.txt": trees}, names, rows) == pytest.approx([7.3, 7.5, 6.8, 6.8])


def vespa(expression: str, functions: str = "") -> dict[str, object]:
    phase = f"    first-phase {{\n        expression: {expression}\n    }}\n"
    return {"quorank.profile": f"rank-profile q {{\n{functions}{phase}}}\n"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2 * 3 - 4 / 2 - 1", 4.0),
        ("2 - 3 - 4", -5.0),
        ("8 / 4 / 2", 1.0),
        ("-2 * (3 + -1)", -4.0),
        ("1 + 1 < 3", 1.0),
        ("if (attribute(a) >= 0.5, 1e1, 2.5E-1)", 10.0),
        ("if (isNan(attribute(b)) == 1, 3, attribute(b))", 3.0),
        ("attribute(a) * attribute(a)", 0.25),
    ],
)
def test_ranking_expressions(expression: str, expected: float) -> None:
    assert score("vespa", vespa(expression), ("a", "b"), [[0.5, NAN]]) == [expected]


def test_a_function_is_used_behind_its_definition() -> None:
    twice = "    function twice() {\n        expression: attribute(a) + attribute(a)\n    }\n"
    assert score("vespa", vespa("twice * twice", twice), ("a",), [[3.0]]) == [36.0]


# ------------------------------------------------------------ trees without their normalisation


@given(
    st.floats(-1e6, 1e6), st.floats(1e-6, 1e9), FLOATS, st.lists(st.floats(-(2.0**31), 2.0**31, width=32), max_size=5)
)
def test_a_threshold_of_raw_features_is_exact(low: float, width: float, threshold: float, values: list[float]) -> None:
    """x' ≤ t where x ≤ u, at u, beside it and anywhere else: rounding included."""
    normal = FixedRange((low,), (low + width,))
    arrays = TreeArrays(
        np.zeros((1, 1), dtype=np.int32),
        np.array([[threshold]], dtype=np.float32),
        np.zeros((1, 1), dtype=np.int32),
        np.full((1, 1), -1, dtype=np.int32),
        np.array([[1.0, 2.0]]),
    )
    saved = SavedRanker(Trees(2, 1), 1, tree_parameters(arrays), normal)
    (tree,) = ExportedRanker(saved).trees
    around = []
    if tree.splits:
        u = np.float32(tree.threshold[0])
        around = [u, np.nextafter(u, np.float32(np.inf)), np.nextafter(u, np.float32(-np.inf))]
    for x in np.array([*values, *around], dtype=np.float32):
        with np.errstate(all="ignore"):
            scaled = np.float32((np.float64(x) - low) / ((low + width) - low))
        value = 1.0 if scaled <= np.float32(threshold) else 2.0
        leaf = 0 if not tree.splits else tree.left[0] if x <= np.float32(tree.threshold[0]) else tree.right[0]
        assert tree.threshold[leaf] == value

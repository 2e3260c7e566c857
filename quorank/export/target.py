"""Export targets: one format each, with the rankers it can hold, its writer and its checker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from quorank.errors import require
from quorank.export.exported_ranker import ExportedRanker
from quorank.kernels.arrays import Doubles, Floats, Integers

_FAMILIES = {"linear": "a linear ranker", "network": "a network", "trees": "trees"}
_ALTERNATIVES = {
    "network": "choose onnx, solr or vespa",
    "linear": "choose onnx, elasticsearch, opensearch, solr, vespa or ranklib",
    "trees": "choose another format",
}


class Scorer(Protocol):
    """A model that was read from exported files."""

    def __call__(self, features: Floats, offsets: Integers) -> Doubles:
        """Return (rows,) scores of raw (rows, n) features, NaN where one is missing; list i is offsets[i]:offsets[i+1]."""
        ...


@dataclass(frozen=True)
class ExportTarget:
    """Format that rankers are written in.

    `load` reads a model by the format's published description alone, so that it checks what `write` wrote.
    """

    name: str
    system: str  # the system that reads the files
    families: tuple[Literal["linear", "network", "trees"], ...]  # rankers that the format can hold
    write: Callable[[ExportedRanker], dict[str, bytes]]  # content by file name
    load: Callable[[Mapping[str, bytes], Sequence[str]], Scorer]  # from the files and the names of the columns
    instructions: Callable[[ExportedRanker], str]  # installation of the files, in Markdown
    any_missing: bool = True  # a missing feature may have a value other than 0
    per_list: bool = False  # the system itself normalises within a list
    deepest: int | None = None  # splits on a path of a tree

    def check(self, exported: ExportedRanker, where: str) -> None:
        """Raise BadInput if the format cannot hold a ranker."""
        family, saved = exported.family, exported.saved
        known = " and ".join(_FAMILIES[each] for each in self.families)
        sentence = f"{self.system} holds {known}, and this is {_FAMILIES[family]}; {_ALTERNATIVES[family]}"
        require(family in self.families, "export.wrong-ranker", sentence, where)
        sentence = "transforms features before it scores, which no format can hold; export a ranker without that"
        require(not saved.ranker.transforms, "export.wrong-ranker", sentence, where)
        sentence = (
            f"its features are normalised within each list, which {self.system} cannot do; train with "
            'normalize = "fixed", or normalise the features yourself and say --normalised'
        )
        require(self.per_list or not exported.per_list, "export.per-list", sentence, where)
        sentence = (
            f"a missing feature counts as {exported.missing:g} here and as 0 in {self.system}; train with missing = 0, or "
            "choose onnx, solr or vespa"
        )
        require(self.any_missing or exported.missing == 0.0, "export.missing-values", sentence, where)
        if family == "trees" and self.deepest is not None:
            depth = max(tree.depth for tree in exported.trees)
            sentence = f"a tree of {depth} levels is deeper than {self.system} reads ({self.deepest}); choose onnx"
            require(depth <= self.deepest, "export.too-deep", sentence, where)

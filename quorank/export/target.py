"""What a target of `quorank export` is: a format, the rankers that it holds, what writes its files and reads them back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from quorank.errors import require
from quorank.export.exported_ranker import ExportedRanker
from quorank.kernels.arrays import Doubles, Floats, Integers

TELL = {"linear": "a linear ranker", "network": "a network", "trees": "trees"}


class Scorer(Protocol):
    """A model that was read from exported files."""

    def __call__(self, features: Floats, offsets: Integers) -> Doubles:
        """Return (rows,) scores of raw (rows, n) features, NaN where one is missing; lists begin at the offsets."""
        ...


@dataclass(frozen=True)
class ExportTarget:
    """One format that rankers are written in."""

    name: str
    system: str  # what reads the files
    kinds: tuple[Literal["linear", "network", "trees"], ...]  # rankers that it holds
    write: Callable[[ExportedRanker], dict[str, bytes]]  # content by file name
    load: Callable[[Mapping[str, bytes], Sequence[str]], Scorer]  # from the files, and the names of the columns
    calls: Callable[[ExportedRanker], str]  # how the files are installed, in Markdown
    any_missing: bool = True  # a missing feature may count as other than 0
    per_list: bool = False  # it normalises within a list itself
    deepest: int | None = None  # nodes on a way through a tree, at most

    def check(self, exported: ExportedRanker, where: str) -> None:
        """Refuse a ranker that the format cannot hold."""
        kind, saved = exported.kind, exported.saved
        known = " and ".join(TELL[each] for each in self.kinds)
        sentence = f"{self.system} holds {known}, and this is {TELL[kind]}; {_others(kind)}"
        require(kind in self.kinds, "export.wrong-ranker", sentence, where)
        sentence = "computes features of its own before it scores, which no format holds; export a ranker without that"
        require(not saved.ranker.transforms, "export.wrong-ranker", sentence, where)
        sentence = (
            f"its features are normalised within each list, which {self.system} cannot do; train with "
            'normalize = "fixed", or normalise in front of it and say --normalised'
        )
        require(self.per_list or not exported.per_list, "export.per-list", sentence, where)
        sentence = (
            f"a missing feature counts as {exported.missing:g} here and as 0 in {self.system}; train with missing = 0, or "
            "choose onnx, solr or vespa"
        )
        require(self.any_missing or exported.missing == 0.0, "export.missing-values", sentence, where)
        depth = max((tree.depth for tree in exported.trees), default=0) if kind == "trees" and self.deepest else 0
        sentence = f"a tree of {depth} levels is deeper than {self.system} reads ({self.deepest}); choose onnx"
        require(depth <= (self.deepest or depth), "export.too-deep", sentence, where)


def _others(kind: str) -> str:
    return {
        "network": "choose onnx, solr or vespa",
        "linear": "choose onnx, elasticsearch, opensearch, solr, vespa or ranklib",
        "trees": "choose another format",
    }[kind]

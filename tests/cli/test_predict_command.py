"""`quorank predict`: the scores that `evaluate` ranks by, bit for bit, from every format; TREC files of both agree."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Quorank

from quorank.data import DataSource, RankingData, load, write_letor
from quorank.data.normalisation import FixedRange, RawFeatures, WithinQuery
from quorank.metrics.evaluator import Evaluator
from quorank.rankers import MLP, Linear
from quorank.rankers.ranker_file import SavedRanker

N, NAMES = 5, ("BM25", "length, in words", "f3", "clicks", "age")
FIXED = FixedRange((0.0, -2.0, 0.0, 1.0, 3.0), (2e6, 5.0, 1e-3, 1.0, 4.0))


def collection(folder: Path) -> RankingData:
    """A folder of raw features, some of them in millions; the test split."""
    random = np.random.default_rng(3)
    folder.mkdir()
    offsets = np.cumsum([0, *random.integers(1, 20, size=25)])
    rows = int(offsets[-1])
    features = random.lognormal(size=(rows, N)) * [1e6, 1.0, 1e-3, 1.0, 10.0]
    features[random.random(features.shape) < 0.2] = 0.0
    labels = random.integers(0, 3, size=rows)
    ids = [f"q{i}" for i in range(25)]
    data = RankingData.from_arrays(features, labels, offsets, ids, [f"doc-{row}" for row in range(rows)])
    for split in ("train", "test"):
        write_letor(data, folder / f"{split}.txt")
    return data


def saved(ranker, normalisation) -> SavedRanker:
    theta = np.random.default_rng(4).normal(size=ranker.size(N))
    return SavedRanker(ranker, N, theta, normalisation, NAMES)


def table(data: RankingData, *, shuffled: bool = True) -> dict[str, list]:
    columns: dict[str, list] = {name: data.features[:, j].astype(float).tolist() for j, name in enumerate(NAMES)}
    columns["qid"] = [data.query_ids[q] for q in data.query_of_rows().tolist()]
    columns["docid"] = [*data.document_ids]
    return {name: columns[name] for name in sorted(columns)} if shuffled else columns


def written(columns: dict[str, list], path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
        return path
    head = ",".join(f'"{name}"' if "," in name else name for name in columns)
    rows = zip(*columns.values(), strict=True)
    text = "\n".join([head, *(",".join("" if v is None else str(v) for v in row) for row in rows)]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("normalisation", [WithinQuery(), RawFeatures(), FIXED])
@pytest.mark.parametrize("ranker", [Linear(), MLP(3, activation="sigmoid")])
def test_scores_are_those_that_evaluate_ranks_by(quorank: Quorank, ranker, normalisation) -> None:
    data = collection(Path("raw"))
    kept = saved(ranker, normalisation)
    kept.save("r.json")
    split = load(DataSource("raw", normalize=normalisation)).test
    expected = Evaluator(split, ranker).scores(kept.theta).astype(np.float64).tolist()
    files = [Path("raw/test.txt"), *(written(table(data), Path(f"t{end}")) for end in (".csv", ".csv.gz", ".parquet"))]
    for file in files:
        outcome = quorank("predict", "r.json", file)
        assert outcome.code == 0 and [float(line) for line in outcome.out.splitlines()] == expected, file
    assert quorank("predict", "r.json", files[0], "--out", "s.txt", "-q").out == ""
    assert [float(line) for line in Path("s.txt").read_text().splitlines()] == expected
    quorank("evaluate", "r.json", "--data", "raw", "--trec-run", "e.run", "--qrels", "e.qrels")
    quorank("predict", "r.json", files[-1], "--trec-run", "p.run", "--tag", "quorank")
    assert Path("e.run").read_bytes() == Path("p.run").read_bytes()


@pytest.mark.parametrize(("number", "line"), [("1e39", 3), ("-3.5e38", 3)])
def test_a_number_beyond_float32_is_refused_with_its_line_and_column(quorank: Quorank, number: str, line: int) -> None:
    saved(Linear(), RawFeatures()).save(Path("ranker.json"))
    rows = [["1.0"] * N, ["1.0", number, *["3.4028234e38"] * (N - 2)]]
    Path("rows.csv").write_text("\n".join(",".join(f'"{word}"' for word in row) for row in [NAMES, *rows]) + "\n")
    told = quorank("predict", "ranker.json", "rows.csv").refused()
    assert told.startswith(f"rows.csv: line {line}: column {NAMES[1]!r}: {float(number):g} is beyond float32")


def test_trec_files_give_the_figures_of_evaluate(quorank: Quorank) -> None:
    import ir_measures
    from ir_measures import nDCG

    collection(Path("raw"))
    saved(Linear(), WithinQuery()).save("r.json")
    flags = ("--trec-run", "r", "--qrels", "q", "--no-relevant", "zero", "--json")
    told = json.loads(quorank("evaluate", "r.json", "--data", "raw", *flags).out)
    gains = {0: 0, 1: 1, 2: 3}
    run, qrels = ir_measures.read_trec_run("r"), ir_measures.read_trec_qrels("q")
    found = ir_measures.calc_aggregate([nDCG(gains=gains) @ 10], qrels, run)
    assert next(iter(found.values())) == pytest.approx(told["ndcg@10"]["mean"], abs=1e-9)


def test_an_empty_field_is_a_missing_feature(quorank: Quorank) -> None:
    SavedRanker(Linear(), 2, np.array([1.0, 10.0]), RawFeatures(), ("a", "b"), missing=-3.0).save("r.json")
    written({"b": [1.0, None], "a": [None, 2.5]}, Path("t.csv"))
    written({"b": [1.0, None], "a": [None, 2.5]}, Path("t.parquet"))
    for file in ("t.csv", "t.parquet"):
        assert quorank("predict", "r.json", file).out.split() == ["7.0", "-27.5"]
    Path("t.txt").write_text("0 qid:1 1:2\n")
    assert "t.txt" in quorank("predict", "r.json", "t.txt").refused()


def test_an_empty_table_with_a_column_that_the_library_cannot_make_is_refused(quorank: Quorank) -> None:
    SavedRanker(Linear(), 2, np.ones(2), RawFeatures(), ("a", "b")).save("r.json")
    columns = [("a", pa.float64()), ("b", pa.float64()), ("qid", pa.list_(pa.uuid()))]
    with pq.ParquetWriter("t.parquet", pa.schema(columns)):
        pass
    assert quorank("predict", "r.json", "t.parquet").refused().startswith("t.parquet: is not readable as parquet")


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_tables_that_do_not_fit_are_refused_by_name(quorank: Quorank, ending: str) -> None:
    SavedRanker(Linear(), 2, np.ones(2), WithinQuery(), ("a", "b")).save("r.json")
    for columns, words in (
        ({"qid": [1], "a": [1.0]}, ("'b'",)),
        ({"qid": [1], "a": [1.0], "b": [1.0], "c": [1.0], "d": [2]}, ("'c', 'd'",)),
        ({"a": [1.0], "b": [1.0]}, ("qid",)),
        ({"qid": [1, 2], "a": [1.0, 2.0], "b": ["x", "y"]}, ("numbers",)),
        (
            {"qid": [1, 2], "a": [1.0, 2.0], "b": [1.0, 1e300]},
            ("row 2" if ending == ".parquet" else "line 3", "column 'b': 1e+300 is beyond float32"),
        ),
        ({"qid": ["1", ""], "a": [1.0, 2.0], "b": [1.0, 2.0]}, ("qid", "row 2")),
    ):
        sentence = quorank("predict", "r.json", written(columns, Path(f"t{ending}")), "--out", "s").refused()
        assert all(word in sentence for word in words) and not Path("s").exists(), sentence

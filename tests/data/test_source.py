"""Where data comes from: layouts of folders, folds, names, and the sentences when something is missing."""

import pytest

from quorank.data import DataSource, load
from quorank.data.importing import import_collection
from quorank.errors import BadInput


def text(queries, width=2):
    return "".join(f"{r} qid:{q} 1:{r + 1} {width}:{q}\n" for q in queries for r in range(2))


def put(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    return folder


def ids(data):
    return list(data.query_ids)


@pytest.mark.parametrize("vali", ["vali_txt", "valid_txt", "validation_txt", None])
def test_train_vali_test(tmp_path, vali):
    files = {"train_txt": text([1, 2]), "test_txt": text([4])} | ({vali: text([3])} if vali else {})
    found = load(DataSource(str(put(tmp_path / "c", **files)), normalize="none"))
    assert ids(found.train) == ["1", "2"] and ids(found.test) == ["4"]
    assert (found.validation and ids(found.validation)) == (["3"] if vali else None)
    assert found.train.features.tolist() == [[1, 1], [2, 1], [1, 2], [2, 2]]
    by_default = load(DataSource(str(tmp_path / "c"))).train
    assert by_default.features.tolist() == [[0, 0], [1, 0], [0, 0], [1, 0]], "normalised within queries"


def test_splits_of_sparse_files_get_one_width(tmp_path):
    folder = put(tmp_path / "c", train_txt=text([1], 9), test_txt=text([4], 3), vali_txt=text([5], 20))
    found = load(DataSource(str(folder), normalize="none"))
    assert found.train.n_features == found.test.n_features == found.validation.n_features == 20
    assert found.test.features[1].tolist() == [2, 0, 4] + [0] * 17
    assert found.train.padded.shape[1] == found.test.padded.shape[1] == 24


@pytest.mark.parametrize("name", ["Fold{}", "fold{}"])
def test_five_fold_folders(tmp_path, name):
    for i in range(1, 6):
        put(tmp_path / "c" / name.format(i), train_txt=text([i]), test_txt=text([10 + i]))
    found = load(DataSource(str(tmp_path / "c"), fold=4))
    assert ids(found.train) == ["4"] and ids(found.test) == ["14"]


@pytest.mark.parametrize(
    ("name", "fold", "train", "validation", "test"),
    [("S{}.txt", 1, "123", "4", "5"), ("s{}.txt", 3, "345", "1", "2"), ("fold{}.txt", 5, "512", "3", "4")],
)
def test_five_parts(tmp_path, name, fold, train, validation, test):
    folder = put(tmp_path / "c", **{name.format(i): text([i], width=i + 1) for i in range(1, 6)})
    found = load(DataSource(str(folder), fold=fold, normalize="none"))
    assert "".join(found.train.query_ids) == train
    assert ids(found.validation) == [validation] and ids(found.test) == [test]
    assert found.train.offsets.tolist() == [0, 2, 4, 6]
    assert found.train.n_features == 6
    for place, query in enumerate(train):
        assert found.train.features[2 * place + 1, int(query)] == int(query)


def test_yahoo_has_two_sets(tmp_path):
    sets = {f"set{i}_{s}_txt": text([f"{i}{s}"]).replace(f"2:{i}{s}", "2:1") for i in (1, 2) for s in ("train", "test")}
    folder = put(tmp_path / "c", **sets)
    assert ids(load(DataSource(str(folder), fold=2)).test) == ["2test"]
    with pytest.raises(BadInput, match="has 2 folds, got fold = 3"):
        load(DataSource(str(folder), fold=3))


def refused(source):
    with pytest.raises(BadInput) as refusal:
        load(source)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_sentences(tmp_path):
    folder = put(tmp_path / "c", readme_md="", train_csv="")
    assert "holds no collection: expected train.txt" in refused(DataSource(str(folder)))
    assert "found readme.md, train.csv" in refused(DataSource(str(folder)))
    put(folder, train_txt=text([1]))
    assert "has no test.txt or test.txt.gz; it holds readme.md, train.csv, train.txt" in refused(
        DataSource(str(folder))
    )
    put(folder, test_txt=text([2]))
    assert "has one fold, got fold = 2" in refused(DataSource(str(folder), fold=2))
    assert "is a file" in refused(DataSource(str(folder / "train.txt")))
    assert "queries = 5 is for generated data" in refused(DataSource(str(folder), queries=5))
    put(folder, test_txt="1 qid:1 x\n")
    assert "test.txt:1: found 'x', expected a feature" in refused(DataSource(str(folder)))
    parts = put(tmp_path / "parts", **{f"S{i}_txt": text([1]) for i in range(1, 6) if i != 3})
    assert "has no S3.txt or S3.txt.gz" in refused(DataSource(str(parts)))
    put(parts, S3_txt=text([1]))
    assert "query 1 stands in two of the parts" in refused(DataSource(str(parts)))
    put(tmp_path / "folds" / "Fold1", train_txt=text([1]), test_txt=text([2]))
    assert "has no Fold2; it has Fold1" in refused(DataSource(str(tmp_path / "folds"), fold=2))


def test_unknown_names(tmp_path):
    import_collection(put(tmp_path / "c", train_txt=text([1]), test_txt=text([2])), "my-shop")
    assert "'synthetic:mq2008' (did you mean 'mq2007'?)" in refused(DataSource("synthetic:mq2008"))
    assert "did you mean 'my-shop'?" in refused(DataSource("myshop"))
    assert "run `quorank data fetch mslr-web10k`" in refused(DataSource("MSLR-WEB10K"))
    assert "imported: my-shop" in refused(DataSource("nothing like it"))

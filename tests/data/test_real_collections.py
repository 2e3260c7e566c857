"""The same reader on real files, where they are."""

from quorank.data import DataSource, load


def test_mq2008(real_data):
    queries: set[str] = set()
    rows = 0
    for fold in range(1, 6):
        found = load(DataSource(str(real_data("mq2008")), fold=fold, normalize="none"))
        assert found.train.n_features == 46 and found.grades == 3
        assert not queries & set(found.test.query_ids)
        queries |= set(found.test.query_ids)
        rows += found.test.n_rows
    assert (len(queries), rows) == (784, 15_211)
    assert found.train.document_ids[0].startswith("GX")


def test_mslr_sample(real_data):
    found = load(DataSource(str(real_data("mslr-sample")), normalize="none"))
    assert (found.train.n_queries, found.test.n_queries) == (43, 43)
    assert (found.train.n_rows, found.test.n_rows) == (5_000, 5_000)
    assert found.train.n_features == 136 and found.grades == 5
    assert found.train.features.max() > 1e6

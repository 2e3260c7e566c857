"""Evidence beside BM25: expanded queries, the latent space, embeddings that a party brings, and bodies that hold titles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from quorank.text import Document, Features, Index, IndexedDocuments, Tokeniser
from quorank.text.embeddings import WordVectors, open_embedder
from quorank.text.feedback import Feedback
from quorank.text.index import whole_text
from quorank.text.latent import LatentSpace

PLAIN = Tokeniser(stop_words="none")


def index_of(*texts: str) -> Index:
    return Index.build([Document(str(n), "", text) for n, text in enumerate(texts)], PLAIN)


def drawn_index(documents: int = 60, seed: int = 1) -> Index:
    random = np.random.default_rng(seed)
    topics = random.integers(0, 4, documents)
    words = ([f"w{t}x{n}" for n in random.integers(0, 12, 15)] for t in topics)
    return index_of(*(" ".join([*own, *(f"common{n}" for n in random.integers(0, 20, 10))]) for own in words))


def test_a_whole_text_holds_the_title_once() -> None:
    assert whole_text(Document("1", "Wing flutter", "A study")) == "Wing flutter\nA study"
    assert whole_text(Document("1", "Wing  flutter", "wing\nflutter . a study")) == "wing\nflutter . a study"
    assert whole_text(Document("1", "", "A study")) == "A study"
    assert whole_text(Document("1", "Wing flutter", "wing fluttering")) == "Wing flutter\nwing fluttering"
    built = IndexedDocuments.build([Document("1", "Wing flutter", "A study")], PLAIN, whole=True)
    assert sorted(built.body.vocabulary) == ["a", "flutter", "study", "wing"]
    assert sorted(built.title.vocabulary) == ["flutter", "wing"]


def test_bm25_with_weights_is_the_sum_of_its_terms() -> None:
    index = index_of("a a b", "b c", "c c c d", "e")
    ids = index.term_ids(["a", "c", "zzz"])
    each = [index.bm25(ids[t : t + 1]) for t in range(3)]
    assert index.bm25(ids, Features(), np.array([2.0, 0.5, 1.0])) == pytest.approx(2 * each[0] + 0.5 * each[1])
    assert not each[2].any()
    assert index.holding(ids).tolist() == [0, 1, 2]


def test_feedback_expands_by_the_terms_of_the_first_documents() -> None:
    """p(t) and q(t) by hand: one document of three terms, α = ½."""
    index = index_of("a b b", "c", "d", "e")
    terms = index.term_ids(["a"])
    chosen, weights = Feedback(documents=1, terms=5, share=0.5).expanded(index, terms, index.bm25(terms))
    assert [index.vocabulary[t] for t in chosen] == ["a", "b"]
    assert weights == pytest.approx([0.5 + 0.5 / 3, 0.5 * 2 / 3])  # both terms have the same IDF
    kept, alone = Feedback(documents=1, terms=1, share=0.5).expanded(index, terms, index.bm25(terms))
    assert [index.vocabulary[t] for t in kept] == ["a", "b"] and alone == pytest.approx([0.5, 0.5])
    found = Feedback(documents=1, terms=5, share=0.5).scores(index, terms, index.bm25(terms))
    assert found == pytest.approx(index.bm25(chosen, None, weights))
    nothing, _ = Feedback().expanded(index, index.term_ids(["zzz"]), np.zeros(4))
    assert len(nothing) == 0


def test_the_latent_space_is_that_of_the_singular_vectors() -> None:
    index = drawn_index()
    space = LatentSpace.build(index, dimensions=4, passes=60)
    assert space.basis.T @ space.basis == pytest.approx(np.eye(4), abs=1e-9)
    values = (1 + np.log(index.counts)) * space.idf[index.terms]
    matrix = csr_array((values, index.terms, index.offsets), shape=(index.n_documents, len(index.vocabulary))).toarray()
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    vectors = svds(matrix, k=4)[2]
    documents = matrix @ vectors.T
    for terms in (["w0x1", "w0x2"], ["common3", "w2x5"]):
        ids = index.term_ids(terms)
        query = vectors[:, ids] @ space.idf[ids]
        cosines = documents @ query / np.linalg.norm(documents, axis=1) / np.linalg.norm(query)
        assert space.cosines(ids, np.arange(60)) == pytest.approx(cosines, abs=1e-3)


def test_the_latent_space_finds_what_shares_no_word_and_has_the_same_bits_every_time() -> None:
    index = drawn_index()
    spaces = [LatentSpace.build(index, dimensions=6) for _ in range(2)]
    assert spaces[0].documents.tobytes() == spaces[1].documents.tobytes()
    ids = index.term_ids(["w1x3"])
    topic = np.array([t for t, word in enumerate(index.vocabulary) if word.startswith("w1x")])
    about = index.counts_of(np.arange(60), topic).any(axis=1)
    without, others = about & (index.counts_of(np.arange(60), ids)[:, 0] == 0), ~about
    cosines = spaces[0].cosines(ids, np.arange(60))
    assert without.any() and cosines[without].mean() > cosines[others].mean() + 0.3


def test_word_vectors_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("4 2\nWing 1 0\nflutter 0 1\nplate 0 -1\nunused 5 5\n")
    found = open_embedder(file).embedded(["wing wing", "plate", "nothing known"], ["Wing", "flutter"])
    assert found.cosines(0, np.array([0, 1, 2])) == pytest.approx([1.0, 0.0, 0.0])
    assert found.cosines(1, np.array([0, 1])) == pytest.approx([0.0, -1.0])


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("wing 1 2\nplate 1\n", "word-vectors.malformed"),
        ("wing 1 x\n", "word-vectors.malformed"),
        ("wing 1 inf\n", "word-vectors.malformed"),
        ("other 1 2\n", "word-vectors.none"),
    ],
)
def test_bad_word_vectors_are_refused(tmp_path: Path, content: str, code: str) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(content)
    with refused(code):
        WordVectors(file).embedded(["wing"], ["wing"])


def write_encoder(folder: Path) -> None:
    """An encoder in the form of real ones: token ids in, a state for each token out; here a row of a table."""
    onnx = pytest.importorskip("onnx")
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[PAD]": 0, "[UNK]": 1, "wing": 2, "flutter": 3, "plate": 4}
    table = np.array([[9, 9], [0, 0], [1, 0], [0, 1], [0, -1]], dtype=np.float32)
    kinds = onnx.TensorProto
    inputs = [onnx.helper.make_tensor_value_info(n, kinds.INT64, ["b", "t"]) for n in ("input_ids", "attention_mask")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        "encoder",
        inputs,
        [onnx.helper.make_tensor_value_info("last_hidden_state", kinds.FLOAT, ["b", "t", 2])],
        [onnx.numpy_helper.from_array(table, "table")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def test_an_onnx_encoder_averages_the_states_of_a_texts_own_tokens(tmp_path: Path) -> None:
    """Texts of different lengths in one batch: what fills the shorter ones up is not in their means."""
    pytest.importorskip("onnxruntime")
    write_encoder(tmp_path / "encoder")
    documents = ["wing", "wing flutter flutter flutter", "plate plate", *["flutter"] * 40]
    for path in (tmp_path / "encoder", tmp_path / "encoder" / "model.onnx"):
        found = open_embedder(path).embedded(documents, ["wing", "flutter unknown"])
        assert found.cosines(0, np.array([0, 1, 2])) == pytest.approx([1.0, 1 / np.sqrt(10), 0.0], abs=1e-6)
        assert found.cosines(1, np.array([1, 2, 42])) == pytest.approx([3 / np.sqrt(10), -1.0, 1.0], abs=1e-6)
    (tmp_path / "encoder" / "model.onnx").write_bytes(b"nonsense")
    with refused("encoder.unreadable"):
        open_embedder(tmp_path / "encoder").embedded(["wing"], ["wing"])

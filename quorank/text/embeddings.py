"""Embeddings of a party's texts: static word vectors in a file, or an encoder in the ONNX format.

No embedding leaves a party: it embeds its own documents and queries, and the cosine of a query with a document is one
more evidence. All parties of a group must have agreed on that evidence; each chooses its own vectors or encoder, since
cosines are normalised to [0, 1] within a list.

`WordVectors` reads the common text format (GloVe, word2vec, fastText): a word and its numbers a line, perhaps with a first
line of two numbers. A text is the mean of its words' vectors, each weighted by a / (a + p(word)) with p the word's share of
the party's own text (Arora et al. 2017, "A simple but tough-to-beat baseline for sentence embeddings", without its last
step).

`OnnxEncoder` runs a sentence encoder, `model.onnx` with `tokenizer.json`, in ONNX Runtime: its last hidden states are
averaged over its tokens. Texts are cut to 256 tokens. It needs `pip install 'quorank[encoder]'`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quorank.errors import BadInput, brief, require
from quorank.files.untrusted import numbered_lines
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.text.tokens import normalised_words

MOST_TOKENS = 256
BATCH = 32
_A = 1e-3  # a of the word weights
_MOST_DIMENSIONS = 4096


@dataclass(frozen=True, eq=False)
class EmbeddedTexts:
    """Documents and queries of a party as unit vectors, or 0 for a text without known words."""

    documents: Floats = field(repr=False)  # (documents, d)
    queries: Floats = field(repr=False)  # (queries, d)

    def cosines(self, query: int, rows: Integers) -> Doubles:
        """Compute (rows,) the cosine of a query with some documents."""
        chosen = self.documents[rows].astype(np.float64)
        return np.asarray((chosen * self.queries[query].astype(np.float64)).sum(axis=1))


@dataclass(frozen=True)
class WordVectors:
    """Static word vectors of a file; only those of words that the party's texts hold are kept."""

    file: Path

    def embedded(self, documents: Sequence[str], queries: Sequence[str]) -> EmbeddedTexts:
        """Embed documents and queries by the weighted mean of their words' vectors."""
        words = [[normalised_words(text).decode().split() for text in texts] for texts in (documents, queries)]
        counts = Counter(word for text in words[0] for word in text)
        vectors, size = self._read({word for texts in words for text in texts for word in text})
        total = max(counts.total(), 1)

        def embed(texts: Sequence[Sequence[str]]) -> Floats:
            out = np.zeros((len(texts), size))
            for row, text in zip(out, texts, strict=True):
                for word in text:
                    if word in vectors:
                        row += _A / (_A + counts[word] / total) * vectors[word]
            return _unit(out)

        return EmbeddedTexts(*map(embed, words))

    def _read(self, wanted: set[str]) -> tuple[dict[str, Floats], int]:
        """Read the vectors of some words, and their size; words of the file are taken in small letters."""
        found: dict[str, Floats] = {}
        size, where = 0, f"{self.file}"
        expected = "expected a word and its numbers a line, as GloVe, word2vec and fastText write them"
        for number, line in numbered_lines(self.file, where):
            word, *rest = line.decode(errors="replace").split() or [""]
            if number == 1 and len(rest) == 1 and word.isdigit() and rest[0].isdigit():
                continue  # how many words and numbers follow
            if not word and not rest:
                continue
            size = size or len(rest)
            sentence = f"{expected}; got {len(rest)} numbers behind {brief(word)} where {size} stood before"
            valid = 2 <= len(rest) <= _MOST_DIMENSIONS and len(rest) == size
            require(valid, "word-vectors.malformed", sentence, f"{where}, line {number}")
            key = word.casefold()
            if key in wanted and key not in found:
                try:
                    found[key] = np.array(rest, dtype=np.float32)
                except ValueError:
                    raise BadInput("word-vectors.malformed", expected, f"{where}, line {number}") from None
                finite = bool(np.isfinite(found[key]).all())
                require(finite, "word-vectors.malformed", expected, f"{where}, line {number}")
        sentence = "none of the words of this party's texts is in it; is it another language?"
        require(found, "word-vectors.none", sentence, where)
        return found, size


@dataclass(frozen=True)
class OnnxEncoder:
    """Sentence encoder in a folder with `model.onnx` and `tokenizer.json`."""

    folder: Path
    model: str = "model.onnx"

    def embedded(self, documents: Sequence[str], queries: Sequence[str]) -> EmbeddedTexts:
        """Embed documents and queries by the mean of the encoder's last hidden states."""
        session, tokenizer = self._opened()
        return EmbeddedTexts(*(_unit(self._encode(session, tokenizer, texts)) for texts in (documents, queries)))

    def _opened(self) -> tuple[Any, Any]:
        try:
            import onnxruntime
            import tokenizers
        except ImportError:
            sentence = "an encoder needs ONNX Runtime and tokenizers; pip install 'quorank[encoder]'"
            raise BadInput("package.missing", sentence, f"{self.folder}") from None
        for name in (self.model, "tokenizer.json"):
            sentence = f"there is no {name} here; expected the folder of an encoder with model.onnx and tokenizer.json"
            require((self.folder / name).is_file(), "encoder.missing", sentence, f"{self.folder}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # sums in one order: the same bits on the same machine
        try:
            session = onnxruntime.InferenceSession(
                str(self.folder / self.model), options, providers=["CPUExecutionProvider"]
            )
            tokenizer = tokenizers.Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        except Exception as error:  # the libraries' own kinds, some of them without a base class
            raise BadInput("encoder.unreadable", f"cannot be read ({brief(str(error))})", f"{self.folder}") from None
        tokenizer.enable_truncation(MOST_TOKENS)
        tokenizer.enable_padding()
        return session, tokenizer

    def _encode(self, session: Any, tokenizer: Any, texts: Sequence[str]) -> Doubles:
        names = {wanted.name for wanted in session.get_inputs()}
        parts: list[Doubles] = []
        for first in range(0, len(texts), BATCH):
            encoded = tokenizer.encode_batch(list(texts[first : first + BATCH]))
            mask = np.array([one.attention_mask for one in encoded], dtype=np.int64)
            inputs = {
                "input_ids": np.array([one.ids for one in encoded], dtype=np.int64),
                "attention_mask": mask,
                "token_type_ids": np.array([one.type_ids for one in encoded], dtype=np.int64),
            }
            try:
                states = session.run(None, {name: value for name, value in inputs.items() if name in names})[0]
            except Exception as error:  # the library's own kinds
                expected = "expected an encoder that takes input_ids and attention_mask"
                sentence = f"does not run ({brief(str(error))}); {expected}"
                raise BadInput("encoder.unreadable", sentence, f"{self.folder}") from None
            sentence = f"gives numbers of the shape {np.shape(states)}; expected (texts, tokens, dimensions)"
            require(np.ndim(states) == 3, "encoder.other-output", sentence, f"{self.folder}")
            shares = mask[:, :, None] / np.maximum(mask.sum(axis=1), 1)[:, None, None]
            parts.append((np.asarray(states, dtype=np.float64) * shares).sum(axis=1))
        return np.concatenate(parts) if parts else np.zeros((0, 1))


def _unit(rows: Doubles) -> Floats:
    """Return rows of length 1; a row of zeros stays one."""
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.asarray(rows / np.where(lengths > 0.0, lengths, 1.0), dtype=np.float32)


Embedder = WordVectors | OnnxEncoder  # embedder of a party's texts


def open_embedder(path: Path) -> Embedder:
    """Return the embedder of a path: an encoder for a folder with model.onnx or such a file, else word vectors."""
    if path.is_dir() or path.suffix == ".onnx":
        return OnnxEncoder(path if path.is_dir() else path.parent, path.name if path.is_file() else "model.onnx")
    return WordVectors(path)

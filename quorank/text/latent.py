"""Latent semantic analysis of a party's own documents: documents on the topic of a query.

Deerwester et al. 1990. A document is the vector of (1 + ln c(t, d))·(1 + ln(N / df)) over its terms, of length 1. Documents
and queries are compared by the cosine of their projections onto the k directions of term space in which the documents
vary most. That cosine depends on the space that the directions span and not on the directions, so no singular vectors are
needed: subspace iteration (Halko, Martinsson and Tropp 2011, algorithm 4.4) from addressed draws comes near enough to the
space, in one fixed order of sums, to the same bits with any number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, uniforms
from quorank.text.index import UNSEEN, Index

LATENT = 6  # in the addresses of draws: where the search for the space begins


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """Space of one index, with all documents in it."""

    idf: Doubles = field(repr=False)  # (vocabulary,)
    basis: Doubles = field(repr=False)  # (vocabulary, k), orthonormal columns
    documents: Doubles = field(repr=False)  # (documents, k), of length 1, or 0 where nothing is left of a document

    @classmethod
    def build(cls, index: Index, dimensions: int = 64, passes: int = 8) -> LatentSpace:
        """Find the space of an index by some passes over its documents; k is `dimensions`, or all documents or terms."""
        from scipy.sparse import csr_array

        documents, terms = index.n_documents, len(index.vocabulary)
        k = max(1, min(dimensions, documents, terms))
        idf = 1.0 + np.log(max(documents, 1) / np.maximum(index.document_frequency, 1))
        values = (1.0 + np.log(index.counts)) * idf[index.terms]
        owner = np.repeat(np.arange(documents), np.diff(index.offsets))
        values /= np.sqrt(np.bincount(owner, values**2, minlength=documents))[owner]
        by_document = csr_array((values, index.terms, index.offsets), shape=(documents, terms))
        by_term = by_document.T.tocsr()
        basis = 2.0 * uniforms(1, Purpose.DOCUMENTS, k * terms, round_=LATENT).reshape(terms, k) - 1.0
        for _ in range(passes):
            basis = np.asarray(by_term @ (by_document @ basis))
            _orthonormalise(basis)
        return cls(idf, basis, _unit_rows(np.asarray(by_document @ basis)))

    def cosines(self, terms: Int32s, rows: Integers) -> Doubles:
        """Compute (rows,) the cosine of some documents with a query of different terms; 0 for a query of unseen terms."""
        known = terms[terms != UNSEEN]
        query = _unit_rows((self.idf[known, None] * self.basis[known]).sum(axis=0, keepdims=True))
        return np.asarray((self.documents[rows] * query).sum(axis=1))


@kernel
def _orthonormalise(block: Doubles) -> None:
    """Make the columns of a tall (n, k) block orthonormal; one that depends on those before it becomes 0.

    Cholesky of the Gram matrix, twice: the second time takes off what rounding left in the first (Yamamoto et al. 2015,
    "Roundoff error analysis of the CholeskyQR2 algorithm").
    """
    n, k = block.shape
    row = np.empty(k)
    for _ in range(2):
        gram = np.zeros((k, k))
        for r in range(n):
            for i in range(k):
                for j in range(i, k):
                    gram[i, j] += block[r, i] * block[r, j]
        for i in range(k):  # gram becomes the upper factor: gram = Uᵀ·U
            largest = gram[i, i]
            for h in range(i):
                gram[i, i] -= gram[h, i] * gram[h, i]
            gram[i, i] = math.sqrt(gram[i, i]) if gram[i, i] > 1e-14 * largest else 0.0
            for j in range(i + 1, k):
                for h in range(i):
                    gram[i, j] -= gram[h, i] * gram[h, j]
                gram[i, j] = gram[i, j] / gram[i, i] if gram[i, i] > 0.0 else 0.0
        for r in range(n):  # each row is divided by U
            for j in range(k):
                row[j] = block[r, j]
            for i in range(k):
                share = row[i] / gram[i, i] if gram[i, i] > 0.0 else 0.0
                block[r, i] = share
                for j in range(i + 1, k):
                    row[j] -= share * gram[i, j]


def _unit_rows(rows: Doubles) -> Doubles:
    """Return rows of length 1; a row of nearly zeros becomes 0."""
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 1e-12))

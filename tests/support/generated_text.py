"""Texts made in a moment: words with the frequencies of language, documents of different lengths."""

from __future__ import annotations

import numpy as np

from quorank.text import Document


def make_documents(count: int = 60, words: int = 200, seed: int = 1) -> list[Document]:
    """Documents of 5 to 80 words drawn by Zipf's law; the title repeats some of them."""
    random = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, words + 1)
    documents = []
    for number in range(count):
        drawn = random.choice(words, size=random.integers(5, 80), p=share / share.sum())
        text = [f"word{word}" for word in drawn]
        documents.append(Document(f"d{number}", " ".join(text[:4]).title(), " ".join(text) + "."))
    return documents

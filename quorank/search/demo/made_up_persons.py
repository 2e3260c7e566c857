"""Simulated persons: notes of different ages, and queries with graded answers.

Persons mostly search recent notes, as people do in their own files (Dumais et al., SIGIR 2003, "Stuff I've Seen"): the
relevance of a note is the share of the query's topic in it, and 0 for one that was not changed for 30 days.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorank.kernels.draws import Purpose, uniforms
from quorank.silos.generated import Generator, TermCounts

NAMES = ("ann", "ben", "cleo", "dan", "eve", "finn")
WORD_ORDER = 30  # round in the addresses of draws
SENTENCE, PARAGRAPH = 9, 60  # length of a generated sentence and paragraph, words
OLDEST, RECENT = 730 * 86400.0, 30 * 86400.0  # bounds on the age of a note, and of a relevant one, seconds
AGE_EXPONENT = 3.0  # exponent of ages OLDEST·u³, u uniform: half of the notes are from the last three months


class Note(NamedTuple):
    """Note of a person."""

    name: str  # of its file
    text: str  # Markdown, with the title as its heading
    age: float  # since its last change, seconds


@dataclass(frozen=True)
class MadeUpPerson:
    """Simulated person with notes and queries."""

    number: int
    notes: tuple[Note, ...] = field(repr=False)
    queries: tuple[str, ...] = field(repr=False)
    grades: tuple[Mapping[str, int], ...] = field(repr=False)  # of each query: name of a note → 1 or 2

    @property
    def name(self) -> str:
        """First name."""
        return NAMES[self.number]

    def write_notes(self, folder: Path, now: float) -> None:
        """Write the notes as files with their times."""
        folder.mkdir(parents=True)
        for note in self.notes:
            (folder / note.name).write_text(note.text, encoding="utf-8")
            os.utime(folder / note.name, (now - note.age,) * 2)


def generated_persons(persons: int, documents: int, queries: int, seed: int) -> list[MadeUpPerson]:
    """Generate persons; they share half of their topics."""
    generator = Generator(
        parties=persons, documents=documents, queries=queries, body=120, vocabulary=4000, topics=8 * persons,
        topic_terms=100, about=0.35,
    )  # fmt: skip
    words, topics, found = generator.words(), generator.topic_table(seed), []
    for number in range(persons):
        made = generator.party(number, seed, topics)
        titles, bodies = (_texts(counts, words, seed, number, at) for at, counts in enumerate((made.title, made.body)))
        ages = OLDEST * uniforms(seed, Purpose.HISTORY, documents, client=number) ** AGE_EXPONENT
        names = [f"{re.sub('[^a-z]+', ' ', title.lower()).strip()} {at}.md" for at, title in enumerate(titles)]
        texts = [f"# {title}\n\n{body}\n" for title, body in zip(titles, bodies, strict=True)]
        kept, grades = [], []
        for terms, topic in zip(made.queries, made.query_topics, strict=True):
            graded = np.where(ages > RECENT, 0, made.grades(int(topic), generator.strong, generator.weak))
            if graded.any():
                kept.append(" ".join(words[term] for term in terms))
                grades.append({names[row]: int(graded[row]) for row in np.flatnonzero(graded)})
        notes = tuple(map(Note, names, texts, ages.tolist()))
        found.append(MadeUpPerson(number, notes, tuple(kept), tuple(grades)))
    return found


def _texts(counts: TermCounts, words: Sequence[str], seed: int, person: int, part: int) -> list[str]:
    """Write the words of each note in a drawn order, as sentences and paragraphs."""
    found = []
    for document, (begin, end) in enumerate(zip(counts.offsets[:-1], counts.offsets[1:], strict=True)):
        terms = np.repeat(counts.terms[begin:end], counts.counts[begin:end])
        round_ = WORD_ORDER + part
        draws = uniforms(seed, Purpose.DOCUMENTS, len(terms), round_=round_, client=person, interaction=document)
        text = [words[term] for term in terms[np.argsort(draws, kind="stable")]]
        sentences = [f"{' '.join(text[at : at + SENTENCE]).capitalize()}." for at in range(0, len(text), SENTENCE)]
        size = PARAGRAPH // SENTENCE
        found.append("\n\n".join(" ".join(sentences[at : at + size]) for at in range(0, len(sentences), size)))
    return found

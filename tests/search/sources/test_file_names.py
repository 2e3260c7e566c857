"""File names of every encoding: stored as text, given back as they were, shown without harm."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from quorank.search.sources import FilesSource
from quorank.search.sources.source import opened_path, shown_name, stored_path

BYTES = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=4), st.sampled_from([b"\xef\x9f\xa9", b"\xef", b"\x9f", "é\uf7e9".encode()])
    ),
    max_size=8,
)


@given(BYTES)
def test_every_path_has_one_text_and_comes_back(pieces: list[bytes]) -> None:
    path = os.fsdecode(b"".join(pieces))
    text = stored_path(path)
    text.encode()  # a database takes it
    assert opened_path(text) == path


@given(BYTES)
def test_what_is_shown_is_one_printable_line(pieces: list[bytes]) -> None:
    shown = shown_name(os.fsdecode(b"".join(pieces)))
    shown.encode()
    assert shown.isprintable()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("café.txt".encode(), "café.txt"),
        ("café.txt".encode("latin-1"), "café.txt"),
        ("„Brief“.txt".encode("cp1252"), "„Brief“.txt"),
        ("Привет".encode(), "Привет"),
        (b"a\x1b[31mb\n", "a\\u001b[31mb "),
        ("a\u202etxt.exe".encode(), "a\\u202etxt.exe"),
    ],
)
def test_names_are_shown_as_people_meant_them(name: bytes, shown: str) -> None:
    assert shown_name(os.fsdecode(name)) == shown


def test_a_source_keeps_a_path_of_any_bytes() -> None:
    source = FilesSource("/tmp/caf\udce9")
    assert source.path == "/tmp/caf\uf7e9" and str(source.place) == "/tmp/caf\udce9" and source.name == "/tmp/café"
    with refused("path.missing", "path"):
        FilesSource("")

"""Names of a collection's features: `features.txt` beside its LETOR files, a name a line in the order of their numbers."""

from __future__ import annotations

import re
from pathlib import Path

from quorank.data.library import folder_of
from quorank.data.ranking import Collection
from quorank.data.source import GIVEN, INTENTS, SYNTHETIC, DataSource
from quorank.errors import BadInput, require
from quorank.files.atomic import write_whole
from quorank.files.untrusted import bounded_lines, read_bounded

FILE = "features.txt"
LARGEST, LONGEST = 1 << 20, 200
"""Bytes of the file, and of a name."""


def feature_names(source: DataSource, n_features: int) -> tuple[str, ...]:
    """Return the names of a source's features, "" for one without; none where the source has no such file."""
    name = source.source.removeprefix(INTENTS)
    path = None if name.startswith((SYNTHETIC, GIVEN)) else folder_of(name) / FILE
    if path is None or not path.is_file():
        return ()
    lines = [line for _, line in bounded_lines(read_bounded(path, LARGEST), path, LONGEST)]
    try:
        names = [line.decode().strip() for line in lines]
    except UnicodeDecodeError as error:
        raise BadInput("file.unreadable", f"cannot be read as text ({error})", f"{path}") from None
    while names and not names[-1]:
        names.pop()
    sentence = f"names {len(names)} features, and the data has {n_features}; expected a name a line, in their order"
    require(len(names) <= n_features, "feature-names.too-many", sentence, f"{path}")
    return (*names, *("" for _ in range(n_features - len(names)))) if names else ()


def names_of(source: DataSource, collection: Collection) -> tuple[str, ...]:
    """Return the names of a collection's features: those that it was given with, or those of its source."""
    return collection.feature_names or feature_names(source, collection.train.n_features)


def write_feature_names(folder: Path, names: tuple[str, ...]) -> None:
    """Write the names beside a collection's files."""
    write_whole(folder / FILE, "".join(f"{name}\n" for name in names))


def typed_name(name: str) -> str:
    """Return a feature's name as it is typed without quotes in a TOML file.

    >>> typed_name("LMIR.ABS of body")
    'lmir-abs-of-body'
    """
    return "-".join(re.findall(r"[^\W_]+", name.lower()))

"""Library of a person's collections: a name for each folder that was imported or fetched, and the public collections.

Sizes in bytes and SHA-256 sums of public collections are those that TensorFlow Datasets records for the archives of its
`mslr_web` and `istella` builders; sizes with "about" come from the collection's page. Other checksums are unknown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from quorank.errors import BadInput, require, suggest
from quorank.files.atomic import expand_home, remove_leftovers, write_whole
from quorank.files.documents import read_json

_FOLDS = "Fold1..Fold5 with train.txt, vali.txt, test.txt"
_LETOR = "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval/letor-4-0/"
_LETOR_LICENCE = "online agreement of LETOR 4.0, to be accepted on the page"
_MSLR = "https://www.microsoft.com/en-us/research/project/mslr/"
_MSLR_LICENCE = "released for research on learning to rank; terms on the page"
_SHARES = "https://api.onedrive.com/v1.0/shares/"


@dataclass(frozen=True)
class PublicCollection:
    """Entry of the manifest."""

    name: str
    page: str
    features: int
    grades: int
    queries: str
    licence: str
    layout: str  # what unpacking the archive gives
    size: str  # for people
    address: str | None = None  # of the archive, where it can be fetched without a login
    archive: str = ""  # file name of the archive
    bytes: int | None = None
    sha256: str | None = None


_ENTRIES = (
    PublicCollection(
        "mq2007", _LETOR, 46, 3, "about 1,700", _LETOR_LICENCE, f"MQ2007/{_FOLDS}", "about 65 MB", None, "MQ2007.rar",
    ),
    PublicCollection(
        "mq2008", _LETOR, 46, 3, "about 800", _LETOR_LICENCE, f"MQ2008/{_FOLDS}", "about 15 MB", None, "MQ2008.rar",
    ),
    PublicCollection(
        "mslr-web10k", _MSLR, 136, 5, "10,000", _MSLR_LICENCE, _FOLDS, "1.2 GB",
        f"{_SHARES}s!AtsMfWUz5l8nbOIoJ6Ks0bEMp78/root/content", "MSLR-WEB10K.zip",
        1_234_144_912, "2902142ea33f18c59414f654212de5063033b707d5c3939556124b1120d3a0ba",
    ),
    PublicCollection(
        "mslr-web30k", _MSLR, 136, 5, "31,531", _MSLR_LICENCE, _FOLDS, "3.8 GB",
        f"{_SHARES}s!AtsMfWUz5l8nbXGPBlwD1rnFdBY/root/content", "MSLR-WEB30K.zip",
        3_849_406_307, "08cb7977e1d5cbdeb57a9a2537a0923dbca6d46a76db9a6afc69e043c85341ae",
    ),
    PublicCollection(
        "yahoo", "https://webscope.sandbox.yahoo.com/catalog.php?datatype=c", 700, 5, "36,251",
        "request for access to Webscope C14, on the page",
        "set1 and set2 .train.txt, .valid.txt, .test.txt; fold 1 is set 1, fold 2 is set 2",
        "about 421 MB", None, "dataset.tgz",
    ),
    PublicCollection(
        "istella-s", "http://quickrank.isti.cnr.it/istella-dataset/", 220, 5, "33,018",
        "Istella LETOR Licence Agreement: non-commercial use only", "sample/ with train.txt, vali.txt, test.txt",
        "472 MB", "http://library.istella.it/dataset/istella-s-letor.tar.gz", "istella-s-letor.tar.gz",
        472_129_615, "41b21116a3650cc043dbe16f02ee39f4467f9405b37fdbcc9a6a05e230a38981",
    ),
)  # fmt: skip
PUBLIC = {entry.name: entry for entry in _ENTRIES}


def public_collection(name: str) -> PublicCollection:
    """Return the entry of that name, upper or lower case."""
    if name.lower() not in PUBLIC:
        meant, known = suggest(name.lower(), PUBLIC), ", ".join(PUBLIC)
        raise BadInput("collection.unknown", f"there is no public collection {name!r}{meant}; known: {known}")
    return PUBLIC[name.lower()]


@dataclass(frozen=True)
class ImportedCollection:
    """Entry of the library: a name, its folder, and what lies there."""

    name: str
    path: str
    folds: int
    features: int
    queries: int  # of all splits of fold 1
    rows: int


def library_home() -> Path:
    """Return where collections and their names are kept: QUORANK_HOME, or the user's data folder."""
    chosen = os.environ.get("QUORANK_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "quorank"


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        sentence = f"cannot be written: {error.strerror}; set QUORANK_HOME"
        raise BadInput("file.unwritable", sentence, f"{library_home()}") from None


def library_folder(name: str) -> Path:
    """Make a folder of the library and return it."""
    folder = library_home() / name
    with _writing():
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def register_collection(entry: ImportedCollection) -> None:
    """Write an entry, in place of an earlier one of its name."""
    with _writing():
        remove_leftovers(library_folder("registry"))
        write_whole(library_folder("registry") / f"{entry.name}.json", json.dumps(asdict(entry), indent=1) + "\n")


def imported_collections() -> dict[str, ImportedCollection]:
    """Return all entries by name."""
    entries = {}
    for file in sorted((library_home() / "registry").glob("*.json")):
        try:
            entry = read_json(file, ImportedCollection)
        except BadInput:
            continue  # a damaged entry must not hide the sound ones; importing again repairs it
        entries[entry.name] = entry
    return entries


def folder_of(source: str) -> Path:
    """Return the folder that a source names: a path first, then a name of the library."""
    path = expand_home(source)
    if os.path.isdir(path):  # noqa: PTH112  # Path.is_dir raises for a name that is too long
        return path
    sentence = "is a file; expected the folder that holds train.txt and test.txt"
    require(not os.path.exists(path), "source.not-a-folder", sentence, source)  # noqa: PTH110
    known = imported_collections()
    if source in known:
        path = Path(known[source].path)
        sentence = f"the imported collection {source!r} was at {path}, which is gone; import it again"
        require(path.is_dir(), "source.gone", sentence)
        return path
    sentence = f"is not here yet; run `quorank data fetch {source.lower()}` or `quorank data import PATH`"
    require(source.lower() not in PUBLIC, "source.not-fetched", sentence, source)
    meant, imported = suggest(source, [*known, *PUBLIC]), ", ".join(known) or "none"
    sentence = f"there is no folder and no imported collection {source!r}{meant}; imported: {imported}"
    raise BadInput("source.unknown", sentence)

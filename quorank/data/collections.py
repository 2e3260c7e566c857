"""Manifest of the public collections: address, size, checksum, content and licence.

Sizes in bytes and SHA-256 sums are those that TensorFlow Datasets records for the archives of its `mslr_web` and `istella`
builders; sizes with "about" come from the collection's page. Other checksums are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from quorank.errors import BadInput, suggest

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
        meant = suggest(name.lower(), PUBLIC)
        raise BadInput(
            "collection.unknown", f"there is no public collection {name!r}{meant}; known: {', '.join(PUBLIC)}"
        )
    return PUBLIC[name.lower()]

"""Manifest of the public collections: address, size, checksum, what they hold, and the licence to agree to.

Sizes in bytes and SHA-256 sums are those that TensorFlow Datasets records for the archives of its `mslr_web`
and `istella` builders; sizes with "about" are what the collection's own page says. Where no sum is known
there is none here.
"""

from __future__ import annotations

from dataclasses import dataclass

from quorank.errors import BadInput
from quorank.parts import suggest

_LETOR = (
    "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval/letor-4-0/"
)
_MSLR = "https://www.microsoft.com/en-us/research/project/mslr/"
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


PUBLIC = {
    entry.name: entry
    for entry in (
        PublicCollection(
            name="mq2007",
            page=_LETOR,
            features=46,
            grades=3,
            queries="about 1,700",
            licence="online agreement of LETOR 4.0, to be accepted on the page",
            layout="MQ2007/Fold1..Fold5 with train.txt, vali.txt, test.txt",
            size="about 65 MB",
            archive="MQ2007.rar",
        ),
        PublicCollection(
            name="mq2008",
            page=_LETOR,
            features=46,
            grades=3,
            queries="about 800",
            licence="online agreement of LETOR 4.0, to be accepted on the page",
            layout="MQ2008/Fold1..Fold5 with train.txt, vali.txt, test.txt",
            size="about 15 MB",
            archive="MQ2008.rar",
        ),
        PublicCollection(
            name="mslr-web10k",
            page=_MSLR,
            features=136,
            grades=5,
            queries="10,000",
            licence="released for research on learning to rank; terms on the page",
            layout="Fold1..Fold5 with train.txt, vali.txt, test.txt",
            size="1.2 GB",
            address=f"{_SHARES}s!AtsMfWUz5l8nbOIoJ6Ks0bEMp78/root/content",
            archive="MSLR-WEB10K.zip",
            bytes=1_234_144_912,
            sha256="2902142ea33f18c59414f654212de5063033b707d5c3939556124b1120d3a0ba",
        ),
        PublicCollection(
            name="mslr-web30k",
            page=_MSLR,
            features=136,
            grades=5,
            queries="31,531",
            licence="released for research on learning to rank; terms on the page",
            layout="Fold1..Fold5 with train.txt, vali.txt, test.txt",
            size="3.8 GB",
            address=f"{_SHARES}s!AtsMfWUz5l8nbXGPBlwD1rnFdBY/root/content",
            archive="MSLR-WEB30K.zip",
            bytes=3_849_406_307,
            sha256="08cb7977e1d5cbdeb57a9a2537a0923dbca6d46a76db9a6afc69e043c85341ae",
        ),
        PublicCollection(
            name="yahoo",
            page="https://webscope.sandbox.yahoo.com/catalog.php?datatype=c",
            features=700,
            grades=5,
            queries="36,251",
            licence="request for access to Webscope C14, on the page",
            layout="set1 and set2 .train.txt, .valid.txt, .test.txt; fold 1 is set 1, fold 2 is set 2",
            size="about 421 MB",
            archive="dataset.tgz",
        ),
        PublicCollection(
            name="istella-s",
            page="http://quickrank.isti.cnr.it/istella-dataset/",
            features=220,
            grades=5,
            queries="33,018",
            licence="Istella LETOR Licence Agreement: non-commercial use only",
            layout="sample/ with train.txt, vali.txt, test.txt",
            size="472 MB",
            address="http://library.istella.it/dataset/istella-s-letor.tar.gz",
            archive="istella-s-letor.tar.gz",
            bytes=472_129_615,
            sha256="41b21116a3650cc043dbe16f02ee39f4467f9405b37fdbcc9a6a05e230a38981",
        ),
    )
}


def public_collection(name: str) -> PublicCollection:
    """Return the entry of that name, upper or lower case."""
    entry = PUBLIC.get(name.lower())
    if entry is None:
        raise BadInput(
            "collection.unknown",
            f"there is no public collection {name!r}{suggest(name.lower(), PUBLIC)}; "
            f"known: {', '.join(PUBLIC)}",
        )
    return entry

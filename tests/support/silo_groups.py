"""A group's folder and its parties' collections, and `quorank silo` called in this process."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke

from quorank.cli.silo import app
from quorank.errors import BadInput
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.silo_experiment import read_group
from quorank.rankers.ranker_file import ranker_bytes
from quorank.service.holders.group import SiloHome, settings_of
from quorank.silos.holdings import Holding
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.comparison import joint_ranker

NAMES = ("north", "south", "west")
SMALL = """\
seed = 3
[silo]
parties = ["north", "south", "west"]
labelled = 2
[training]
kind = "prior"
turns = 3
folds = 2
"""
KEYS = {name: bytes([number]) * 32 for number, name in enumerate(NAMES, 1)}
SECRETS = [b"commonword", b"rareword", b"northword", b"southword", b"westword", b"-document-", b"-query-"]
"""What is in the collections and in nothing that leaves."""


def mode(path: Path) -> int:
    """Permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def group(text: str = SMALL) -> SiloTerms:
    """The terms of an experiment file."""
    return read_group(parse_experiment_file(text, "group.toml"), "spring")


def call(*arguments: object) -> str:
    """What `quorank silo` prints."""
    return invoke(app, *arguments).stdout


def refused(*arguments: object) -> str:
    """How `quorank silo` refuses something."""
    with pytest.raises(BadInput) as refusal:
        call(*arguments)
    return str(refusal.value)


def workplace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with an experiment file, at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(folder)
    (folder / "small.toml").write_text(SMALL)
    return folder


def made(folder: Path, text: str = SMALL, port: int = 9092) -> SiloHome:
    """A group's folder."""
    settings = settings_of("spring", address=f"127.0.0.1:{port}", port=port, pause=0.2)
    return SiloHome.make(folder, group(text), settings)


def in_process(terms: SiloTerms, holdings: list[Holding]) -> bytes:
    """`ranker.json` of the same session in one process."""
    assert terms.seed is not None
    theta = joint_ranker(holdings, terms.setting, terms.seed)
    return ranker_bytes(terms.saved_ranker(theta))


def write_collection(folder: Path, own: str, documents: int = 40, queries: int = 8) -> Path:
    """A small collection in the BEIR layout: a query is answered by the documents that share its rare word."""
    random = np.random.default_rng(len(own))
    folder.mkdir()
    words = [f"commonword{i}" for i in range(20)] + [f"{own}word{i}" for i in range(10)]
    with (folder / "corpus.jsonl").open("w") as out:
        for d in range(documents):
            rare = f"rareword{d % 4}"
            text = " ".join([*random.choice(words, 12), rare, rare])
            out.write(
                json.dumps({"_id": f"{own}-document-{d}", "title": f"{rare} {words[d % 30]}", "text": text}) + "\n"
            )
    with (folder / "queries.jsonl").open("w") as out:
        for q in range(queries):
            out.write(json.dumps({"_id": f"{own}-query-{q}", "text": f"rareword{q % 4} {words[2 * q % 20]}"}) + "\n")
    (folder / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [
        f"{own}-query-{q}\t{own}-document-{d}\t1" for q in range(queries) for d in range(documents) if d % 4 == q % 4
    ]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder

"""Time of a group's session over HTTPS on this machine: `python benchmarks/silo_network.py [--documents N] [--training …]`.

A service and three parties, each a process started by the command line as people start them, with generated documents; at
the end the same session in one process, for the bytes. Prints one JSON object: seconds from the start of the service to the
last ranker, seconds of the session alone, and processor seconds of the service and of the parties.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from quorank.member.party_folder import PartyFolder
from quorank.rankers.ranker_file import ranker_bytes
from quorank.service.holders.group import SiloHome
from quorank.silos.training.comparison import joint_ranker

NAMES = ("north", "south", "west")
GROUP = """\
seed = 3
[silo]
parties = ["north", "south", "west"]
"""
TRAININGS = {"prior": '[training]\nkind = "prior"\n', "trees": '[training]\nkind = "trees"\nleast_lists = 20\n'}


def quorank(folder: Path, *words: object) -> subprocess.Popen[bytes]:
    """A command in a process of its own; what it says goes to a file."""
    command = [sys.executable, "-c", "from quorank.cli.main import main; main()", "silo", *map(str, words)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def ended(process: subprocess.Popen[bytes], folder: Path) -> float:
    """Wait for the end of a process, and return the processor seconds of it and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.wait(600) != 0:
        sys.exit((folder / "log").read_text())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(folder: Path, documents: int, training: str) -> dict[str, object]:
    """One session."""
    (folder / "group.toml").write_text(GROUP + TRAININGS[training])
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    began = time.monotonic()
    service = quorank(folder, "start", "home", "--experiment", "group.toml", "--port", port)
    while not (folder / "home" / "coordinator.json").exists():
        time.sleep(0.02)
    for process in [quorank(folder, "invite", "home", name) for name in NAMES]:
        ended(process, folder)
    parties = []
    for number, name in enumerate(NAMES):
        words = ("--data", name, "--bundle", f"{name}.json", "--generated", number, "--documents", documents)
        parties.append(quorank(folder, "join", *words, "--consent", "on"))
    by_parties = sum(ended(party, folder) for party in parties)
    seconds = time.monotonic() - began
    by_service = ended(service, folder)
    folders = [PartyFolder.open(folder / name) for name in NAMES]
    sent = [entry["at"] for each in folders for entry in each.sent_log()]
    terms, holdings = SiloHome.open(folder / "home").group, [each.holding() for each in folders]
    assert terms.seed is not None
    theta = joint_ranker(holdings, terms.setting, terms.seed)
    wanted = ranker_bytes(terms.saved_ranker(theta))
    rankers = {(path / "ranker.json").read_bytes() for path in (folder / "home", *(each.path for each in folders))}
    return {
        "training": training,
        "parties": len(NAMES),
        "documents": documents,
        "seconds": round(seconds, 2),
        "session_seconds": round(max(sent) - min(sent), 2),
        "processor_seconds": {"parties": round(by_parties, 2), "service": round(by_service, 2)},
        "load": os.getloadavg()[0],
        "same_bytes": rankers == {wanted},
        "learned": bool(theta.any()),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--training", choices=TRAININGS, default="prior")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(measure(Path(place), given.documents, given.training)))

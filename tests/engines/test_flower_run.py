"""`quorank run --engine flower` from outside: the same bytes as in process, nothing private sent, no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import real_services
from small_runs import all_files_of

from quorank.cli.main import main
from quorank.engines.flower import FlowerTransport
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, set_values
from quorank.experiments.runner import run_experiment
from quorank.experiments.workload import collection_of
from quorank.federation.reply import decode_reply, encode_reply
from quorank.protocol import frames
from quorank.protocol.transport import Arrival

pytest.importorskip("flwr", reason="needs quorank[flower]")
if not Path("/proc/self/environ").exists():
    pytest.skip("finds processes by /proc", allow_module_level=True)

ROOT = Path(__file__).parents[2]
ROUNDS = 3
FIRST_QUERY = 987_650_001
DOCUMENT = "GX-SECRET"
TOKEN = "QUORANK_TEST_TOKEN"


def write_collection(folder: Path) -> Path:
    """LETOR files whose queries and documents have names of their own."""
    folder.mkdir()
    random = np.random.default_rng(7)
    for split, queries in (("train", 30), ("vali", 5), ("test", 15)):
        lines = []
        for query in range(queries):
            for document in range(12):
                x = random.random(9).round(6)
                label = int(np.clip(2.2 * x[0] + x[1] - 1.0 + 0.3 * random.normal(), 0, 2))
                features = " ".join(f"{at}:{value:.6f}" for at, value in enumerate(x, 1))
                name = f"{DOCUMENT}-{split}-{query}-{document}"
                lines.append(f"{label} qid:{FIRST_QUERY + query} {features} #docid = {name}")
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    return folder


def file_of(collection: Path) -> str:
    return f"""\
[data]
source = "{collection}"

[users]
preset = "informational"

[federation]
clients = 10
interactions = 3
rounds = {ROUNDS}
keep_every = 2
"""


def experiment_of(collection: Path, *assignments: str) -> Experiment:
    return Experiment.read(set_values(parse_experiment_file(file_of(collection), "flower.toml"), assignments))


def running(token: str) -> dict[int, str]:
    """The processes that inherited this token from a test and have not ended, by their ids."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if token.encode() in (entry / "environ").read_bytes():
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state not in "ZX":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> Path:
    return write_collection(tmp_path_factory.mktemp("flower") / "letor")


@pytest.fixture(scope="module")
def expected(collection, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("flower") / "in-process"
    run_experiment(experiment_of(collection), folder, threads=1)
    return folder


def started(folder: Path, collection: Path, token: str, *words: str) -> subprocess.Popen[str]:
    """`quorank run`, with every byte that nodes send written down."""
    file = folder / "flower.toml"
    file.write_text(file_of(collection))
    (folder / "sent").mkdir()
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, TOKEN: token, "PYTHONPATH": path}
    options = [str(file), "--out", str(folder / "run"), *words]
    command = [sys.executable, str(Path(__file__).resolve()), str(folder / "sent"), "run", *options]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
    )


def private(collection: Path) -> set[bytes]:
    """What of the clients' data would be recognised in any message."""
    train = collection_of(experiment_of(collection).data).train
    found = {DOCUMENT.encode()}
    for query in range(FIRST_QUERY, FIRST_QUERY + 30):
        found |= {str(query).encode(), np.int64(query).tobytes(), np.float64(query).tobytes()}
    rows = np.asarray(train.features)[:, : train.n_features]
    telling = (rows != 0.0) & (rows != 1.0)  # every query has these after it was normalised
    for row, tells in zip(rows, telling, strict=True):
        pairs = np.flatnonzero(tells[:-1] & tells[1:])
        found |= {row[at : at + 2].astype("<f4").tobytes() for at in pairs}
    values = np.unique(rows[telling]).astype("<f8")
    assert len(values) > 1000
    return found | {value.tobytes() for value in values} | {f"{value:.6f}".encode() for value in values}


def seen_in(messages: bytes, secrets: set[bytes]) -> list[bytes]:
    return [secret for secret in secrets if secret in messages]


def test_two_nodes_of_which_one_dies_come_to_the_same_bytes_send_nothing_private_and_leave_no_process(
    collection, expected, tmp_path
) -> None:
    token, folder = uuid.uuid4().hex, tmp_path / "sent"
    process = started(tmp_path, collection, token, "--engine", "flower", "--nodes", "2", "--json")
    wait_for(process, lambda: len(list(folder.iterdir())) >= 2)
    wait_for(process, lambda: len({file.name.split()[1] for file in folder.iterdir()}) == 2)
    nodes = [pid for pid, words in running(token).items() if "flower-supernode" in words]
    assert len(nodes) == 2
    node = nodes[1]
    os.kill(node, signal.SIGKILL)
    out, error = process.communicate(timeout=280)
    assert process.returncode == 0, error
    assert f'"rounds": {ROUNDS}' in out
    assert all_files_of(tmp_path / "run") == all_files_of(expected)
    assert len(all_files_of(expected)) == 4 + 10
    assert not running(token)

    sent = [file.read_bytes() for file in folder.iterdir()]
    assert len(sent) > ROUNDS
    answered = set()
    for content in sent:
        replies = [decode_reply(reply) for reply in frames.unpack(content)]
        # the message is what these fields are made of, and not a byte more
        assert frames.pack([encode_reply(reply) for reply in replies]) == content
        answered |= {(reply.client, reply.round) for reply in replies}
    assert answered == {(client, round_) for client in range(10) for round_ in range(ROUNDS)}
    secrets = private(collection)
    assert seen_in(b"".join(sent), secrets) == []
    row = np.asarray(collection_of(experiment_of(collection).data).train.features)[5]
    for leak in (row.astype("<f8").tobytes(), row.astype("<f4").tobytes(), str(FIRST_QUERY).encode()):
        assert seen_in(b"".join(sent) + leak, secrets)


def wait_for(process: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
    real_services.until(lambda: process.poll() is not None or ready(), seconds=240.0)
    assert process.poll() is None, process.communicate()[1]


@pytest.mark.nightly
def test_killed_in_the_middle_it_goes_on_to_the_same_bytes_and_leaves_no_process(
    collection, expected, tmp_path
) -> None:
    """SIGKILL in one round; then in process, as any engine may go on."""
    token, sent = uuid.uuid4().hex, tmp_path / "sent"
    words = ("--engine", "flower", "--nodes", "1", "-q")
    process = started(tmp_path, collection, token, *words)
    wait_for(process, lambda: sum(1 for _ in sent.iterdir()) >= 2)  # in the second round
    assert len(running(token)) >= 6
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    real_services.until(lambda: not running(token), seconds=20.0)  # also where their parent was killed
    assert not (tmp_path / "run" / "ranker.json").exists()

    run_experiment(experiment_of(collection), tmp_path / "run", resume=True, threads=1)
    assert all_files_of(tmp_path / "run") == all_files_of(expected)


def noted(folder: Path) -> None:
    """Be `quorank`, and write down in this folder what comes from nodes: `NUMBER NODE`, a file for each message."""
    pull, numbers = FlowerTransport.pull, iter(range(10**6))

    def noting(transport: FlowerTransport) -> list[Arrival]:
        found = pull(transport)
        for arrival in found:
            if isinstance(arrival.content, bytes):
                (folder / f"{next(numbers)} {arrival.node}").write_bytes(arrival.content)
        return found

    FlowerTransport.pull = noting  # type: ignore[method-assign]
    main()


if __name__ == "__main__":
    into = Path(sys.argv.pop(1))
    noted(into)

"""The pieces below a network: bundles, certificates and keys, processes that never stay, the worker on its socket."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from hypothesis import given
from hypothesis import strategies as st
from memory_transport import MemoryTransport

from quorank.errors import BadInput
from quorank.flower.network import SINGLE, FlowerNetwork, NetworkDown
from quorank.flower.processes import Processes, free_ports
from quorank.flower.transport import FlowerTransport
from quorank.flower.worker import ask, listening, serve
from quorank.protocol import frames
from quorank.protocol.certificates import Authority, node_keys, write_private


@given(st.lists(st.binary(max_size=50), max_size=8))
def test_bundles_come_back(parts) -> None:
    assert frames.unpack(frames.pack(parts)) == parts


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_refusal(content) -> None:
    try:
        parts = frames.unpack(content)
    except BadInput as error:
        assert "malformed" in str(error)
    else:
        assert frames.pack(parts) == content


@given(st.lists(st.lists(st.binary(max_size=30), max_size=4), max_size=5), st.integers(1, 40))
def test_a_stream_of_bundles_may_be_cut_anywhere(bundles, step) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for parts in bundles:
            frames.send(ours, parts)
        ours.shutdown(socket.SHUT_WR)
        stream = b"".join(iter(lambda: theirs.recv(step), b""))
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def write() -> None:
            for at in range(0, len(stream), step):
                ours.sendall(stream[at : at + step])
            ours.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=write)
        thread.start()
        assert [frames.receive(theirs) for _ in bundles] == bundles
        with pytest.raises(EOFError):
            frames.receive(theirs)
        thread.join()


def test_a_server_is_trusted_by_its_own_authority_alone(tmp_path) -> None:
    authority = Authority.create()
    authority.write(tmp_path)
    key, certificate = Authority.read(tmp_path).server(["127.0.0.1", "coordinator.example"])
    write_private(tmp_path / "server.key", key)
    (tmp_path / "server.pem").write_bytes(certificate)
    (tmp_path / "other.pem").write_bytes(Authority.create().pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")

    def greet(trusted: str, name: str) -> None:
        ours, theirs = socket.socketpair()
        client = ssl.create_default_context(cafile=str(tmp_path / trusted))

        def answer() -> None:
            try:
                with server.wrap_socket(theirs, server_side=True) as connection:
                    connection.sendall(b"hello")
            except OSError:
                pass

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with client.wrap_socket(ours, server_hostname=name) as connection:
                assert connection.recv(5) == b"hello"
        finally:
            ours.close()
            thread.join()

    greet("ca.pem", "127.0.0.1")
    greet("ca.pem", "coordinator.example")
    for trusted, name in (("other.pem", "127.0.0.1"), ("ca.pem", "elsewhere.example"), ("ca.pem", "127.0.0.2")):
        with pytest.raises(ssl.SSLCertVerificationError):
            greet(trusted, name)


def test_private_keys_are_their_owner_s_alone_and_belong_to_the_public_ones(tmp_path) -> None:
    Authority.create().write(tmp_path)
    pair = node_keys()
    write_private(tmp_path / "node.key", pair.private)
    for name in ("ca.key", "node.key"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    public = load_ssh_private_key((tmp_path / "node.key").read_bytes(), None).public_key()
    assert public == load_ssh_public_key(pair.public)
    assert public.curve.name == "secp384r1"
    assert node_keys().public != pair.public
    with pytest.raises(BadInput, match="does not exist"):
        write_private(tmp_path / "no" / "node.key", b"")


def test_an_authority_that_does_not_fit_together_is_refused(tmp_path) -> None:
    with pytest.raises(BadInput, match="no certificate authority"):
        Authority.read(tmp_path)
    Authority.create().write(tmp_path)
    (tmp_path / "ca.pem").write_bytes(Authority.create().pem)
    with pytest.raises(BadInput, match="does not belong"):
        Authority.read(tmp_path)
    (tmp_path / "ca.key").write_bytes(b"nonsense")
    with pytest.raises(BadInput, match="no certificate authority"):
        Authority.read(tmp_path)


def alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, seconds=20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


PARENT = """
import os, sys, time
from pathlib import Path
from quorank.flower.processes import Processes
processes = Processes(Path(sys.argv[1]))
grandchild = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
processes.start("one", [sys.executable, "-c", grandchild], dict(os.environ))
processes.start("two", ["sleep", "600"], dict(os.environ))
print(*(child.pid for child in processes.children.values()), flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_and_grandchildren_end_with_their_parent(number, tmp_path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert parent.stdout is not None
    children = [int(word) for word in parent.stdout.readline().split()]
    log = folder / "one.log"
    assert wait_until(lambda: log.exists() and log.read_text().strip() != "")
    family = [*children, int(log.read_text())]
    assert len(family) == 3 and all(alive(member) for member in family)
    parent.send_signal(number)
    parent.communicate(timeout=20)
    assert wait_until(lambda: not any(alive(member) for member in family))
    assert wait_until(lambda: not folder.exists())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_stop_ends_children_and_grandchildren_and_leaves_their_logs(tmp_path) -> None:
    processes = Processes(tmp_path)
    stubborn = "import signal, subprocess; signal.signal(15, signal.SIG_IGN); p = subprocess.Popen(['sleep', '600']); "
    processes.start("stubborn", [sys.executable, "-c", stubborn + "print(p.pid, flush=True); p.wait()"], os.environ)
    processes.start(
        "ended", [sys.executable, "-c", "print('one'); print('bye '); print(); raise SystemExit(3)"], os.environ
    )
    assert wait_until(lambda: not processes.is_running("ended") and processes.last_words("stubborn").isdecimal())
    assert processes.children["ended"].poll() == 3 and processes.last_words("ended") == "bye"
    assert processes.is_running("stubborn") and not processes.is_running("nobody")
    grandchild = int(processes.last_words("stubborn"))
    assert alive(grandchild)
    processes.stop()
    assert not processes.is_running("stubborn") and wait_until(lambda: not alive(grandchild))
    assert tmp_path.is_dir()  # whoever stops the children removes it


def test_ports_are_free_and_differ() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_a_worker_s_mistakes_do_not_leave_it(caplog) -> None:
    def respond(task: bytes) -> bytes:
        if task == b"bad":
            raise OSError(2, "No such file", "/somewhere/secret query.txt")
        return task.upper()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "worker.sock"
        threading.Thread(target=serve, args=(listening(path), respond), daemon=True).start()
        assert path.stat().st_mode & 0o777 == 0o600
        assert ask(str(path), b"task") == b"TASK"
        assert ask(str(path), b"bad") == b""
        assert "secret query" in caplog.text  # its owner can read it
    assert ask(str(path), b"task") == b""
    assert ask("", b"task") == b""


def test_a_network_goes_on_without_a_node_and_not_without_what_there_is_once(tmp_path) -> None:
    network = FlowerNetwork(2, tmp_path / "run.toml", lambda: None)
    network.processes = Processes(tmp_path)
    network.transport = FlowerTransport(tmp_path / "c.sock")

    def end(name: str) -> None:
        network.processes.children[name].kill()
        network.processes.children[name].wait()

    def start(name: str) -> None:
        code = f"import time; print({name!r}, 'says this', flush=True); time.sleep(600)"
        network.processes.start(name, [sys.executable, "-c", code], os.environ)
        assert wait_until(lambda: network.processes.last_words(name) == f"{name} says this")

    try:
        for name in (*SINGLE, "node-0", "node-0-executor", "node-1", "node-1-executor"):
            start(name)
        with pytest.raises(NetworkDown, match="ServerApp ended"):
            network.tend()
        with socket.socket(socket.AF_UNIX) as app:
            app.connect(str(network.transport.path))
            network.transport.pull()
            network.tend()
            end("node-0-executor")
            network.tend()
            assert not network.alive("node-0") and network.alive("node-1")
            for name in SINGLE:
                end(name)
                with pytest.raises(NetworkDown, match=f"{name} ended; it said last: {name} says this"):
                    network.tend()
                start(name)
            network.tend()
            end("node-1")
            with pytest.raises(NetworkDown, match="no node is left"):
                network.tend()
    finally:
        network.transport.close()
        network.processes.stop()


def test_the_memory_network_loses_and_repeats_as_often_as_it_says() -> None:
    transport = MemoryTransport(lambda node, content: content, ("a",), loss=0.2, duplicates=0.5, seed=1)
    for number in range(4000):
        assert transport.push("a", b"x") == str(number + 1)
    came = [arrival.id for _ in range(5) for arrival in transport.pull()]
    # a message comes with 0.8; each of its one or, with 0.5, two answers with 0.8
    assert abs(len(set(came)) / 4000 - 0.8 * (0.5 * 0.8 + 0.5 * (1 - 0.2**2))) < 0.02
    assert abs(len(came) / 4000 - 0.8 * 1.5 * 0.8) < 0.03
    transport.leave("a")
    transport.push("a", b"x")
    assert transport.pull() == [] and transport.nodes() == []
    for wrong in ({"loss": 1.0}, {"duplicates": 2.0}):
        with pytest.raises(BadInput):
            MemoryTransport(lambda node, content: content, ("a",), **wrong)

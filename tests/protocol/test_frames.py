"""Bundles of messages, and certificates of a server."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.protocol import frames
from quorank.protocol.certificates import Authority, write_private


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


def test_an_authority_that_does_not_fit_together_is_refused(tmp_path) -> None:
    with pytest.raises(BadInput, match="no certificate authority"):
        Authority.read(tmp_path)
    Authority.create().write(tmp_path)
    (tmp_path / "ca.pem").write_bytes(Authority.create().pem)
    with pytest.raises(BadInput, match="does not belong"):
        Authority.read(tmp_path)
    assert (tmp_path / "ca.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(BadInput, match="does not exist"):
        write_private(tmp_path / "no" / "node.key", b"")
    (tmp_path / "ca.key").write_bytes(b"nonsense")
    with pytest.raises(BadInput, match="no certificate authority"):
        Authority.read(tmp_path)

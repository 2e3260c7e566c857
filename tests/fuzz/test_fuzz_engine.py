"""The fuzzing engine finds what it is planted, tells it apart, shortens it, and repeats itself."""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import io
import json
import sqlite3
from random import Random

import numpy as np
import pytest
from damaged_files import members_of

from fuzz import __main__ as command
from fuzz.engine import fuzz, minimised, tried
from fuzz.mutations import SHAPES, attempt, mutate
from fuzz.target import CORPUS, TARGETS, VALID, Target
from quorank.errors import BadInput

OK = BadInput("input.refused", "this is no input")


def planted(run, **limits) -> Target:
    return Target("planted", run, **({"seconds": 0.5, "megabytes": 200} | limits))


def only(target: Target, data: bytes):
    found = tried(target, data)
    assert found is not None
    return found


def test_a_refusal_and_a_result_are_no_findings() -> None:
    def run(data: bytes) -> None:
        if data:
            raise OK

    assert tried(planted(run), b"") is None
    assert tried(planted(run), b"x") is None


def test_an_exception_is_found_with_its_place() -> None:
    def run(data: bytes) -> None:
        int(data)

    found = only(planted(run), b"x")
    assert found.kind == "ValueError"
    assert found.where.startswith("tests/fuzz/test_fuzz_engine.py:")
    assert "invalid literal" in found.message


@pytest.mark.nightly
def test_a_hang_in_python_and_one_in_native_code_are_found() -> None:
    def spin(data: bytes) -> None:
        while True:
            pass

    def native(data: bytes) -> None:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)

    assert only(planted(spin), b"").kind == "time"
    assert only(planted(native), b"").kind == "time"


def test_much_memory_is_found() -> None:
    found = only(planted(lambda data: bytes(1 << 30), seconds=5.0), b"")
    assert (found.kind, found.message) == ("memory", "more than 200 MB")
    assert only(planted(lambda data: np.ones(1 << 27), seconds=5.0), b"").kind == "memory"
    assert tried(planted(lambda data: bytes(50 << 20), seconds=5.0), b"") is None


def test_the_death_of_the_process_is_found() -> None:
    assert only(planted(lambda data: ctypes.string_at(0)), b"").kind == "killed by SIGSEGV"


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("a\nb", "a refusal of 2 lines"),
        ("x" * 3000, "a refusal of 3,000 characters"),
        ("\x1b[31m", "cannot be printed"),
    ],
)
def test_a_refusal_must_be_one_printable_sentence(sentence, fault) -> None:
    class Unruly(BadInput):
        def __str__(self) -> str:
            return sentence

    def run(data: bytes) -> None:
        raise Unruly("input.refused", "x")

    found = only(planted(run), b"")
    assert found.kind == "sentence"
    assert fault in found.message


@pytest.mark.nightly
def test_what_a_parser_catches_does_not_hide_a_hang() -> None:
    def run(data: bytes) -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                return

    assert only(planted(run), b"").kind == "time"


@pytest.mark.nightly
def test_findings_are_shortened() -> None:
    def run(data: bytes) -> None:
        if b"b" in data and b"ug" in data:
            raise KeyError(data)

    target = planted(run)
    found = only(target, b"some text with a b and then, later, the other half of it: ug, and more after it")
    assert minimised(found, target, 20.0).data == b"bug"


def test_an_input_is_found_that_only_reached_lines_lead_to() -> None:
    """Five words in order out of thirteen: one input in 371,293, unless what reaches a new line is kept."""

    def run(data: bytes) -> None:
        if data[:1] != b"Q":
            raise OK
        if data[1:2] != b"U":
            raise OK
        if data[2:3] != b"E":
            raise OK
        if data[3:4] != b"R":
            raise OK
        if data[4:5] == b"Y":
            raise KeyError("found")

    words = tuple(bytes([letter]) for letter in b"ABCDEFGQRUYXZ")
    tally = fuzz(planted(run, words=words), 1, 60.0, enough=1)
    assert [found.kind for found in tally.findings] == ["KeyError"]
    assert tally.findings[0].data.startswith(b"QUERY")


@pytest.mark.nightly
def test_a_crash_costs_one_input_and_the_worker_goes_on() -> None:
    def run(data: bytes) -> None:
        if data.startswith(b"crash"):
            ctypes.string_at(0)
        if len(data) > 8 and data[0] == 0:
            raise KeyError("another")

    target = planted(run, words=(b"crash", bytes(9)))
    tally = fuzz(target, 3, 4.0)
    assert {found.kind for found in tally.findings} == {"killed by SIGSEGV", "KeyError"}
    # a worker that crashed at the end has not told its count, but what it kept
    assert max(tally.inputs, tally.kept) > 20


def test_the_same_seed_gives_the_same_inputs() -> None:
    seed = json.dumps({"a": [1, 2, {"b": "c"}]}).encode()
    for shape in SHAPES:
        made = [[mutate(Random(f"{s}/{i}"), seed, shape, (b"word",), b"other") for i in range(50)] for s in (1, 1, 2)]
        assert made[0] == made[1] != made[2]


def test_structured_mutations_keep_what_is_checked_first() -> None:
    """A changed zip has right CRCs, a changed database sound pages, a changed gzip file a right end: most of them."""
    buffer = io.BytesIO()
    np.savez(buffer, theta=np.arange(5.0), rounds=np.arange(3))
    memory = sqlite3.connect(":memory:")
    memory.executescript("CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    memory.commit()
    readers = {
        "zip": (buffer.getvalue(), members_of),
        "gzip": (gzip.compress(b"1 qid:1 1:0.5\n"), gzip.decompress),
        "json": (b'{"a": [1, {"b": null}]}', json.loads),
        "sqlite": (memory.serialize(), lambda raw: sqlite3.connect(":memory:").deserialize(raw)),
    }
    for shape, (seed, read) in readers.items():
        sound = changed = 0
        for i in range(200):
            made = attempt(SHAPES[shape], Random(i), seed)
            changed += made != seed
            try:
                read(made)
                sound += 1
            except Exception:
                continue
        assert changed > 150, shape
        assert sound > 100, shape


def test_every_target_has_a_valid_seed_and_a_sentence_about_it() -> None:
    import fuzz.targets  # noqa: F401

    assert len(TARGETS) >= 60
    for name, target in TARGETS.items():
        assert any(seed.startswith(VALID) for seed in target.seeds()), name
        assert target.shape in SHAPES
    folders = {path.name for path in CORPUS.iterdir()} - {"run", "folders"}
    assert folders == set(TARGETS)
    assert sum(file.stat().st_size for file in CORPUS.rglob("*") if file.is_file()) < 750_000


@pytest.mark.nightly
def test_a_finding_is_saved_and_repeated_by_its_command(monkeypatch, tmp_path, capsys) -> None:
    def run(data: bytes) -> None:
        if b"!" in data:
            raise KeyError("!")

    monkeypatch.setitem(TARGETS, "planted", planted(run, words=(b"!",)))
    monkeypatch.setattr(command, "FINDINGS", tmp_path)
    monkeypatch.setattr("sys.argv", ["fuzz", "--target", "planted", "--minutes", "0.03", "--json"])
    assert command.main() == 1
    told = json.loads(capsys.readouterr().out)
    assert told["targets"][0]["findings"] == 1
    assert told["targets"][0]["inputs"] > 10
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == b"!"
    monkeypatch.setattr("sys.argv", ["fuzz", "--target", "planted", "--input", str(file)])
    assert command.main() == 1
    assert "KeyError" in capsys.readouterr().out
    file.write_bytes(b"?")
    assert command.main() == 0


def test_an_unknown_target_is_refused(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz", "--target", "nothing"])
    assert command.main() == 2
    assert "--list" in capsys.readouterr().err

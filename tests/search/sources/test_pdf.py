"""PDF files: read in another process, which neither a broken nor a hostile one takes along."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import pytest
from persons_files import encrypted_pdf, pdf_bomb, pdf_of, pdf_pages, slow_pdf
from scanned_items import ScannedItems

from quorank.search.sources import FilesSource, pdf
from quorank.search.sources.pdf import MEGABYTES, PdfProcess

pytestmark = pytest.mark.slow
GOOD = pdf_pages(["the quick fox", "jumps over the dog"], "A fable")


def test_one_process_reads_all_and_nothing_stops_it(tmp_path: Path) -> None:
    nested = b"[" * 100_000
    files = {
        "good": GOOD,
        "locked": encrypted_pdf(GOOD, "secret"),
        "open": encrypted_pdf(GOOD, ""),
        "cut": GOOD[: len(GOOD) // 2],
        "noise": b"%PDF-1.7\n" + random.Random(1).randbytes(5000),
        "text": b"this is no PDF",
        "empty": pdf_pages([]),
        "scan": pdf_pages([""]),
        "ring": pdf_of([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"]),
        "deep": pdf_of([b"<< /Type /Catalog /Pages 2 0 R >>", nested]),
        "bomb": pdf_bomb(300),
    }
    found, processes = {}, set()
    with PdfProcess() as reader:
        for name, content in [*files.items(), ("again", GOOD)]:
            (tmp_path / name).write_bytes(content)
            found[name] = reader.read(str(tmp_path / name), 1000)
            processes |= {reader.process} - {None}
        gone = reader.read(str(tmp_path / "gone"), 1000)
    assert found["good"] == ("A fable", "the quick fox\njumps over the dog", None)
    assert found["again"] == found["good"] and found["open"].text == found["good"].text
    codes = {name: problem[0] for name, (_, _, problem) in found.items() if problem is not None}
    assert codes["locked"] == "pdf.encrypted" and codes["scan"] == codes["empty"] == "pdf.no-text"
    for name in ("noise", "text", "ring", "deep", "bomb"):
        assert codes[name].startswith("pdf.") and found[name].text == "", name
    assert gone.problem is not None and gone.problem[0] == "file.missing"
    assert len(processes) <= 3  # started anew for what ended it, if anything did, and for nothing else
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_what_takes_too_long_is_ended_and_its_first_pages_kept(tmp_path: Path) -> None:
    (tmp_path / "slow.pdf").write_bytes(slow_pdf(2_000_000))
    (tmp_path / "good.pdf").write_bytes(GOOD)
    with PdfProcess(seconds=2) as reader:
        assert reader.read(str(tmp_path / "good.pdf"), 1000).problem is None
        begin = time.monotonic()
        slow = reader.read(str(tmp_path / "slow.pdf"), 1_000_000_000)
        assert time.monotonic() - begin < 10
        assert slow.problem is not None and slow.problem[0] == "pdf.too-slow" and slow.text == "begun"
        assert reader.read(str(tmp_path / "good.pdf"), 1000).title == "A fable"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say what a process is limited to")
def test_the_process_has_little_memory_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "good.pdf").write_bytes(GOOD)
    with PdfProcess() as reader:
        reader.read(str(tmp_path / "good.pdf"), 1000)
        lines = Path(f"/proc/{reader.process}/limits").read_text().splitlines()
    limits = {line[:26].strip(): line[26:].split()[0] for line in lines}
    assert limits["Max address space"] == str(MEGABYTES << 20) and limits["Max file size"] == "0"
    assert int(limits["Max cpu time"]) < 60


def test_a_process_that_dies_is_started_anew(tmp_path: Path) -> None:
    (tmp_path / "good.pdf").write_bytes(GOOD)
    with PdfProcess() as reader:
        assert reader.read(str(tmp_path / "good.pdf"), 1000).problem is None
        assert reader.process is not None
        os.kill(reader.process, 9)
        died = reader.read(str(tmp_path / "good.pdf"), 1000)
        assert died.problem is not None and died.problem[0] == "pdf.crashed"
        assert reader.read(str(tmp_path / "good.pdf"), 1000).problem is None


def test_a_folder_with_pdf_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken ones are found by their names, and not opened again until they change."""
    files = {"a.pdf": GOOD, "b.pdf": GOOD[:40], "c.PDF": encrypted_pdf(GOOD, "x"), "d.txt": b"text"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pypdf.py").write_text("raise SystemExit  # of whoever stands in this folder")
    (tmp_path / ".ignore").write_text("pypdf.py")
    source = FilesSource(str(tmp_path))
    scanned = ScannedItems(source.scan({}))
    assert scanned.texts == {"a.pdf": "the quick fox\njumps over the dog", "b.pdf": "", "c.PDF": "", "d.txt": "text"}
    assert [one.title for one in scanned.found.values()] == ["A fable", "b.pdf", "c.PDF", "d.txt"]
    assert scanned.skipped == {"b.pdf": "pdf.damaged", "c.PDF": "pdf.encrypted"}
    monkeypatch.setattr(pdf, "_PROGRAM", "no.such.program")  # nothing is read a second time
    again = ScannedItems(source.scan(scanned.after()))
    assert len(again) == len(again.unchanged) == 4

"""Collections by name: import, fetch over HTTP from this machine, archives that mean harm."""

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from quorank.data import DataSource, library, load
from quorank.data.importing import fetch_collection, import_collection, unpack_archive
from quorank.data.library import PublicCollection, imported_collections, library_home
from quorank.errors import BadInput

FILES = {
    f"Top/Fold{i}/{s}.txt": f"1 qid:{i}{s} 1:1\n0 qid:{i}{s} 1:0\n" for i in range(1, 6) for s in ("train", "test")
}


def as_zip(files=FILES):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return data.getvalue()


def as_tar(files=FILES, link=None):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text.encode()))
        if link:
            member = tarfile.TarInfo("link")
            member.type, member.linkname = tarfile.SYMTYPE, link
            packed.addfile(member)
    return data.getvalue()


def lay(folder: Path, files=FILES) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_an_imported_name_is_a_source(tmp_path):
    entry = import_collection(lay(tmp_path / "mine"), "shop")
    assert (entry.folds, entry.features, entry.queries, entry.rows) == (5, 1, 2, 4)
    assert entry.path == str(tmp_path / "mine" / "Top")
    assert list(load(DataSource("shop", fold=3)).test.query_ids) == ["3test"]
    assert imported_collections() == {"shop": entry}
    assert import_collection(tmp_path / "mine" / "Top").name == "Top"


@pytest.mark.parametrize(("pack", "name"), [(as_zip, "c.zip"), (as_tar, "c.tar.gz")])
def test_an_archive_is_unpacked_into_the_library(tmp_path, pack, name):
    (tmp_path / name).write_bytes(pack())
    entry = import_collection(tmp_path / name)
    assert entry.name == "c"
    assert Path(entry.path) == library_home() / "collections" / "c" / "Top"
    assert list(load(DataSource("c", fold=5)).train.query_ids) == ["5train"]


def test_what_does_not_load_is_not_registered(tmp_path):
    folder = lay(tmp_path / "c")
    (folder / "Top" / "Fold4" / "test.txt").write_text("1 qid:1 1:x\n")
    with pytest.raises(BadInput, match=r"Fold4/test.txt:1: found '1:x'"):
        import_collection(folder, "c")
    (folder / "Top" / "Fold4" / "test.txt").unlink()
    with pytest.raises(BadInput, match=r"Fold4: has no test.txt"):
        import_collection(folder, "c")
    assert imported_collections() == {}


def test_names_and_paths_that_cannot_be(tmp_path):
    folder = lay(tmp_path / "c")
    for name in ("a/b", "synthetic:x", "..", " "):
        with pytest.raises(BadInput, match="cannot name a collection"):
            import_collection(folder, name)
    with pytest.raises(BadInput, match="there is no"):
        import_collection(tmp_path / "none")
    with pytest.raises(BadInput, match="is a file; expected a folder"):
        import_collection(folder / "Top" / "Fold1" / "train.txt", "x")
    with pytest.raises(BadInput, match="holds several collections"):
        lay(tmp_path / "two" / "a")
        lay(tmp_path / "two" / "b")
        import_collection(tmp_path / "two")


def test_a_damaged_entry_does_not_hide_the_others(tmp_path):
    import_collection(lay(tmp_path / "c"), "good")
    (library_home() / "registry" / "bad.json").write_text("{")
    assert list(imported_collections()) == ["good"]


def test_a_collection_that_was_moved_away(tmp_path):
    import_collection(lay(tmp_path / "c"), "moved")
    (tmp_path / "c").rename(tmp_path / "d")
    with pytest.raises(BadInput, match="which is gone; import it again"):
        load(DataSource("moved"))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.zip", as_zip({"../evil.txt": "x"}), "leads outside its folder"),
        ("a.zip", as_zip({"/tmp/evil.txt": "x"}), "leads outside its folder"),
        ("a.zip", as_zip({"x\\..\\..\\evil.txt": "x"}), "leads outside its folder"),
        ("a.tar.gz", as_tar({"../evil.txt": "x"}), "leads outside its folder"),
        ("a.tar.gz", as_tar(link="/etc/passwd"), "which is not a regular file"),
        ("a.zip", b"no zip", "is not a sound archive"),
        ("a.tar.gz", as_tar()[:-30], "is not sound gzip data"),
        ("a.rar", b"Rar!", "is a .rar archive, which cannot be unpacked here"),
    ],
)
def test_bad_archives_leave_nothing(tmp_path, name, content, sentence):
    box = tmp_path / "box"
    box.mkdir()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=sentence):
        unpack_archive(tmp_path / name, box / "into")
    assert list(box.iterdir()) == []
    assert not (tmp_path / "evil.txt").exists()


class Server(http.server.BaseHTTPRequestHandler):
    content, break_after, ranges = b"", None, []

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.ranges.append(wanted)
        if self.path != "/archive":
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        body = self.content[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: type(self).break_after])
        type(self).break_after = None

    def log_message(self, *_):
        pass


@pytest.fixture
def shelf(monkeypatch):
    """A server on this machine, and an entry of the manifest that points to it."""
    handler = type("Handler", (Server,), {"content": as_zip(), "ranges": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def offer(path="/archive", **fields):
        entry = PublicCollection(
            name="toy",
            page="the page",
            features=1,
            grades=3,
            queries="2",
            licence="none",
            layout="",
            size="small",
            address=f"http://127.0.0.1:{server.server_port}{path}",
            archive="toy.zip",
            **fields,
        )
        monkeypatch.setitem(library.PUBLIC, "toy", entry)

    yield handler, offer
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_fetch(shelf):
    handler, offer = shelf
    offer(bytes=len(handler.content), sha256=hashlib.sha256(handler.content).hexdigest())
    seen = []
    entry = fetch_collection("Toy", lambda have, total: seen.append((have, total)))
    assert seen[-1] == (len(handler.content), len(handler.content))
    assert entry.name == "toy" and entry.folds == 5
    assert list(load(DataSource("toy", fold=2)).train.query_ids) == ["2train"]
    assert list((library_home() / "downloads").iterdir()) == []


@pytest.mark.slow
def test_a_download_that_breaks_off_is_continued(shelf):
    handler, offer = shelf
    offer(bytes=len(handler.content), sha256=hashlib.sha256(handler.content).hexdigest())
    handler.break_after = 700
    with pytest.raises(BadInput, match="run the same command again"):
        fetch_collection("toy")
    assert imported_collections() == {}
    assert (library_home() / "downloads" / "toy.zip.part").stat().st_size == 700
    fetch_collection("toy")
    assert handler.ranges == [None, "bytes=700-"]
    assert list(imported_collections()) == ["toy"]


@pytest.mark.slow
def test_a_wrong_archive_is_removed(shelf):
    handler, offer = shelf
    offer(sha256="0" * 64)
    with pytest.raises(BadInput, match=r"has the SHA-256 sum .*, expected 0000"):
        fetch_collection("toy")
    offer(bytes=5)
    with pytest.raises(BadInput, match=f"has {len(handler.content)} bytes, expected 5"):
        fetch_collection("toy")
    assert list((library_home() / "downloads").iterdir()) == [] and imported_collections() == {}


@pytest.mark.slow
def test_addresses_that_do_not_answer(shelf, monkeypatch):
    _, offer = shelf
    offer(path="/gone")
    with pytest.raises(BadInput, match="answers 404; get it from the page"):
        fetch_collection("toy")
    silent = replace(library.PUBLIC["toy"], address="http://127.0.0.1:9/")
    monkeypatch.setitem(library.PUBLIC, "toy", silent)
    with pytest.raises(BadInput, match="broke off after 0 bytes"):
        fetch_collection("toy")


@pytest.mark.parametrize("name", ["mq2007", "MQ2008", "yahoo"])
def test_what_needs_an_agreement_says_what_to_do(name):
    with pytest.raises(BadInput, match=rf"run `quorank data import PATH --name {name.lower()}`"):
        fetch_collection(name)
    with pytest.raises(BadInput, match="did you mean 'mslr-web10k'"):
        fetch_collection("mslr-web-10k")

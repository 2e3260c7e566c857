"""Page for searching: lists, marks, chips, reasons, opening by number alone, forgetting; texts that look like markup."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from html_pages import Seen
from own_search import NOTES, SCRIPT, OwnSearch, browsed, own_search
from real_services import until

from quorank.errors import BadInput
from quorank.search.pages.changes import open_document, web_address
from quorank.search.sources.source import FoundDocument


@pytest.fixture
def own(tmp_path: Path):
    with own_search(tmp_path) as found:
        yield found


def titles(page: str) -> list[str]:
    """The titles of a list, as text."""
    parts = page.split('class="open"')[1:]
    return [Seen("<b " + part).text.split("\n")[0] for part in parts]


def found_in(own: OwnSearch, address: str) -> list[str]:
    return titles(own.browser.get(address).text)


def test_before_anything_is_indexed_the_page_says_what_to_do(own: OwnSearch) -> None:
    for address in ("/", "/?q=roses", "/list?q=roses"):
        page = Seen(own.browser.get(address).text)
        assert "Nothing is indexed yet" in page.text and "quorank search add" in page.text
        assert page.all("a", href="/sources")


def test_a_list_has_the_documents_in_the_order_of_the_search(own: OwnSearch) -> None:
    own.add()
    page = own.browser.get("/?q=roses").text
    shown = own.search.find("roses")
    assert titles(page) == [one.title or one.name for one in shown.results]
    assert len(shown.results) == len(NOTES)
    seen = Seen(page)
    assert f"{shown.found} results in" in seen.text
    assert "Nothing found for “unknown”" in Seen(own.browser.get("/?q=unknown").text).text
    assert "Type to search 5 documents" in Seen(own.browser.get("/").text).text


def test_chips_restrict_the_list_and_the_order(own: OwnSearch) -> None:
    own.add()
    own.add([browsed("https://roses.example/", "Roses for all")])
    for name, days in (("garden/tulips.txt", 20), ("money/budget.txt", 200), ("money/old budget.txt", 2000)):
        os.utime(own.notes / name, (time.time() - 86400 * days,) * 2)
    own.search.update(1)
    everything = set(found_in(own, "/?q=roses"))
    assert len(everything) == 6
    assert found_in(own, "/?q=roses&source=firefox") == ["Roses for all"]
    assert set(found_in(own, "/?q=roses&source=folder")) == everything - {"Roses for all"}
    assert found_in(own, "/?q=roses&source=mail") == []
    recent = {f"Roses {SCRIPT}", "Travel to Lisbon"}
    assert set(found_in(own, "/?q=roses&since=week")) == recent
    assert set(found_in(own, "/?q=roses&since=month")) == recent | {"tulips.txt"}
    assert set(found_in(own, "/?q=roses&since=year")) == recent | {"tulips.txt", "budget.txt"}
    assert set(found_in(own, "/?q=roses&since=decade")) == everything, "what is unknown restricts nothing"
    by_date = found_in(own, "/?q=roses&order=date")
    assert by_date[2:5] == ["tulips.txt", "budget.txt", "Roses for all"] and by_date[5] == "old budget.txt"
    chosen = [
        chip["data-value"]
        for chip in Seen(own.browser.get("/?q=roses&since=month&order=date").text).all("a", aria_current="true")
    ]
    assert chosen == ["", "month", "date"]
    token = Seen(own.browser.get("/?q=roses&source=folder").text).all("div", id="state")[0]["data-token"]
    own.submit("/api/open", token=token, document=own.document("money/budget.txt"))
    assert [choice.query for choice in own.search.history.choices()] == ["roses"], "a chip is not learned from"


def test_texts_are_shown_as_text(own: OwnSearch) -> None:
    own.add()
    own.search.index.update(1, [*map(nasty, range(2))])
    for address in (
        "/?q=roses",
        "/list?q=roses",
        f"/?q={SCRIPT}",
        '/?q="><script>x</script>',
        "/?q=a&source=<b>&since=<b>&order=<b>",
    ):
        page = Seen(own.browser.get(address).text)
        scripts = [attributes.get("src") for tag, attributes in page.elements if tag == "script"]
        assert scripts in ([], ["/static/pages.js"])
        assert not [tag for tag, attributes in page.elements if any(name.startswith("on") for name in attributes)]
        assert all(attributes.get("src", "").startswith("/static") for tag, attributes in page.elements if tag == "img")
    assert "<script>document.title</script>" in Seen(own.browser.get("/?q=roses").text).text
    learned = own.search.find("roses")
    own.search.choose(learned.token, learned.results[0].document)
    own.search.history.add(1.7e9, "x", (1, "nasty0"), own.search.history.lists(1)[0])
    assert "<script>document.title</script>" in Seen(own.browser.get("/learned").text).text


def nasty(number: int):
    text = "<script>document.title</script>"
    return FoundDocument(f"nasty{number}", "1", f"/x/{text}", text, text, f"roses {text} <b onclick=x>", 1.7e9)


@pytest.mark.parametrize(
    "address",
    ["JAVASCRIPT:alert(1)", " javascript:alert(1)", "data:text/html,<b>", "file:///etc/passwd",
     "java\nscript:alert(1)", "https:javascript:alert(1)", "http://a\"onclick=x", "https://a b", "//evil.example"],
)  # fmt: skip
def test_only_addresses_of_the_web_are_links(address: str, own: OwnSearch) -> None:
    assert web_address(address) is None
    own.add([browsed(address, "Roses"), browsed("https://good.example/?a=1&b=2", "Good roses")])
    page = Seen(own.browser.get("/?q=roses").text)
    links = [link["href"] for link in page.all("a", class_="open")]
    assert links == ["https://good.example/?a=1&b=2"]
    assert all(link["rel"] == "noopener noreferrer" for link in page.all("a", class_="open"))
    number = next(one.document for one in own.search.find("roses").results if one.path == address)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        with pytest.raises(BadInput) as refusal:
            open_document(own.search, number)
    assert refusal.value.code in ("document.no-file", "document.gone")


def test_opening_learns_and_says_so_without_script(own: OwnSearch) -> None:
    own.add()
    token = Seen(own.browser.get("/?q=roses").text).all("div", id="state")[0]["data-token"]
    number = own.document("money/budget.txt")
    answer = own.submit("/api/open", token=token, document=number, back="/?q=roses&since=week")
    assert answer.status_code == 303 and answer.headers["location"] == "/?q=roses&since=week"
    assert [(choice.query, choice.document) for choice in own.search.history.choices()] == [
        ("roses", (1, "money/budget.txt"))
    ]


@pytest.mark.parametrize(
    ("document", "status"),
    [("999", 404), ("", 400), ("../../etc/passwd", 400), ("1e3", 400), ("-1", 400), ("9" * 30, 400)],
)
def test_what_is_opened_is_a_document_of_the_index(document: str, status: int, own: OwnSearch) -> None:
    own.add()
    for path in ("/api/open", "/api/forget"):
        assert own.submit(path, document=document, path="/etc/passwd", token="x").status_code == status
    assert own.search.index.count() == len(NOTES)


@pytest.mark.slow
def test_the_systems_program_gets_the_file_of_the_index_and_no_other(
    own: OwnSearch, tmp_path: Path, monkeypatch
) -> None:
    own.add()
    told, bin_ = tmp_path / "told", tmp_path / "bin"
    bin_.mkdir()
    opener = bin_ / "xdg-open"
    opener.write_text(f'#!/bin/sh\nprintf "%s\\n" "$#" "$@" >> {told}\n')
    opener.chmod(opener.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    number = own.document("money/old budget.txt")
    open_document(own.search, number)
    until(told.exists)
    until(lambda: told.read_text() == f"1\n{own.notes}/money/old budget.txt\n")
    runs = own.notes / "garden" / "tool.desktop"
    runs.write_text("[Desktop Entry]\nExec=roses\n")
    own.search.update(1)
    assert "folder" in open_document(own.search, own.document("garden/tool.desktop"))
    until(lambda: told.read_text().endswith(f"1\n{own.notes}/garden\n"))
    before = told.read_text()
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (own.notes / "money/old budget.txt").unlink()
    (own.notes / "money/old budget.txt").symlink_to(secret)
    gone = own.document("money/budget.txt")
    (own.notes / "money/budget.txt").unlink()
    for document, code in ((number, "document.outside"), (gone, "document.gone")):
        with pytest.raises(BadInput) as refusal:
            open_document(own.search, document)
        assert refusal.value.code == code
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput) as refusal:
        open_document(own.search, own.document("travel.html"))
    assert refusal.value.code == "system.no-opener"
    assert told.read_text() == before

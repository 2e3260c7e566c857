"""News in Reuters' SGML."""

from __future__ import annotations

import pytest

from quorank.errors import BadInput
from quorank.text import read_collection

FIRST = """<!DOCTYPE lewis SYSTEM "lewis.dtd">
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" OLDID="5544" NEWID="1">
<DATE>26-FEB-1987 15:01:01.79</DATE>
<TOPICS><D>cocoa</D></TOPICS>
<TEXT>&#2;
<TITLE>BAHIA COCOA &lt;REVIEW></TITLE>
<DATELINE>    SALVADOR, Feb 26 - </DATELINE><BODY>Showers continued
throughout the week.
 Reuter
&#3;</BODY></TEXT>
</REUTERS>
<REUTERS TOPICS="NO" OLDID="5545" NEWID="2">
<TEXT TYPE="UNPROC">&#2;
Shares were quiet
all day.
&#3;</TEXT>
</REUTERS>
"""
SECOND = '<REUTERS NEWID="3"><TEXT><TITLE>T</TITLE><BODY>third</BODY></TEXT></REUTERS>\n'


def test_stories_of_several_files(tmp_path) -> None:
    (tmp_path / "reut2-000.sgm").write_text(FIRST)
    (tmp_path / "reut2-001.sgm").write_text(SECOND)
    found = read_collection(tmp_path)
    assert [document.id for document in found.documents] == ["1", "2", "3"]
    first, second, third = found.documents
    assert first.title == "BAHIA COCOA <REVIEW>"
    assert first.body.split() == ["Showers", "continued", "throughout", "the", "week.", "Reuter"]
    assert "SALVADOR" not in first.body
    assert second.title == "Shares were quiet"
    assert "all day." in second.body
    assert third.body == "third"
    assert read_collection(tmp_path / "reut2-001.sgm").documents == (third,)


def test_bad_files_are_named_with_their_line(tmp_path) -> None:
    (tmp_path / "a.sgm").write_text(SECOND)
    (tmp_path / "b.sgm").write_text(SECOND)
    with pytest.raises(BadInput, match="'3'"):
        read_collection(tmp_path)
    (tmp_path / "b.sgm").write_text(FIRST.replace(' NEWID="2"', ""))
    with pytest.raises(BadInput, match=r"b\.sgm, line 12: this story has no number"):
        read_collection(tmp_path)
    (tmp_path / "b.sgm").write_text("<REUTERS NEWID='4'>")
    with pytest.raises(BadInput, match="found no such story"):
        read_collection(tmp_path)


def test_trec_news_in_several_files(tmp_path) -> None:
    for number in ("1", "2"):
        (tmp_path / f"ap{number}").write_text(
            f"<DOC>\n<DOCNO> AP-{number} </DOCNO>\n<HEAD>x</HEAD>\n<TEXT>story {number}</TEXT>\n</DOC>\n"
        )
    assert [document.id for document in read_collection(tmp_path).documents] == ["AP-1", "AP-2"]
    (tmp_path / "ap3").write_text((tmp_path / "ap1").read_text())
    with pytest.raises(BadInput, match="'AP-1' stands twice"):
        read_collection(tmp_path)

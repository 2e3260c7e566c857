"""Panels as SVG in pages: positions agree with the ticks, names are escaped, bytes are reproducible."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quorank.reports.page import panel_svg, write_picture
from quorank.reports.panels import PALETTE, Curve, Panel


def curve(label: str = "A", runs: int = 2, points: int = 40, high: float = 0.8) -> Curve:
    random = np.random.default_rng([runs, points])
    x = np.linspace(4_000, 4_000_000, points)
    return Curve(label, x, high - 0.3 * np.exp(-x / 1e6) + 0.01 * random.normal(size=(runs, points)))


def drawn(*curves: Curve, **fields: Any) -> ET.Element:
    return ET.fromstring(panel_svg(Panel("nDCG", "interactions", "", curves, **({"form": "curves"} | fields)), "alt"))


def texts(root: ET.Element, anchor: str) -> list[tuple[float, float, str]]:
    found = (e for e in root.iter("text") if e.get("text-anchor") == anchor and e.get("x"))
    return [(float(e.get("x", "")), float(e.get("y", "")), e.text or "") for e in found]


def points(path: ET.Element) -> np.ndarray:
    return np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d", "")), dtype=float)


def lines(root: ET.Element) -> list[ET.Element]:
    return [e for e in root.iter("path") if "curve" in e.get("stroke", "")]


@pytest.mark.parametrize("high", [0.8, 1250.0, 3e-4])
def test_points_stand_where_the_numbers_at_the_axes_say(high: float) -> None:
    shown = curve(high=0.8)
    shown = Curve("A", shown.x, shown.runs * high / 0.8)
    root = drawn(shown)
    up = [(y - 3.5, float(text)) for _, y, text in texts(root, "end")]
    along = [(x, float(text.rstrip("M"))) for x, _, text in texts(root, "middle") if text != "interactions"]
    assert len(up) >= 3 and [value for _, value in along] == [0, 1, 2, 3, 4]
    y_of, x_of = (np.polyfit([at for at, _ in axis], [value for _, value in axis], 1) for axis in (up, along))
    (line,) = lines(root)
    at = points(line)
    scale = np.ptp(shown.runs)
    np.testing.assert_allclose(np.polyval(y_of, at[:, 1]), shown.runs.mean(axis=0), atol=2e-3 * scale)
    np.testing.assert_allclose(np.polyval(x_of, at[:, 0]) * 1e6, shown.x, atol=2e-3 * 4e6)
    (band,) = (e for e in root.iter("path") if e.get("fill-opacity"))
    above, below = np.split(np.polyval(y_of, points(band)[:, 1]), 2)
    np.testing.assert_allclose((above - below[::-1]) / 2, shown.runs.std(axis=0, ddof=1), atol=2e-3 * scale)


def test_one_curve_ends_in_its_value_and_several_in_their_names() -> None:
    alone = curve(runs=1)
    assert f"{alone.runs[0, -1]:.4f}" in [e.text for e in drawn(alone).iter("text")]
    both = [e.text for e in drawn(curve("first"), curve("second", high=0.79)).iter("text")]
    assert "first" in both and "second" in both


def test_many_curves_have_a_legend_and_stay_distinguishable() -> None:
    labels = [f"setting number {n:03}" for n in range(2 * len(PALETTE))]
    root = drawn(*(curve(label) for label in labels))
    assert [e.text for e in root.iter("text") if e.get("font-size") == "9"] == labels
    looks = {(e.get("stroke"), e.get("stroke-dasharray")) for e in lines(root)}
    assert len(looks) == len(labels)
    bottom = float(root.get("viewBox", "").split()[3])
    assert max(float(e.get("y", "0")) for e in root.iter("text")) < bottom


def test_names_are_only_names_and_the_bytes_are_always_the_same() -> None:
    panel = Panel("<b>&", "a<b", "y & z", (curve("<script>&"), curve('"B"')))
    text = panel_svg(panel, "an <alt>")
    assert text == panel_svg(panel, "an <alt>") and text.startswith("<svg viewBox=")
    assert ET.fromstring(text).get("aria-label") == "an <alt>"
    words = {e.text for e in ET.fromstring(text).iter("text")}
    assert {"<b>&", "a<b", "y & z", "<script>&", '"B"'} <= words
    assert "<script" not in text and " id=" not in text and "http" not in text and "style" not in text


def test_a_picture_is_a_file_of_all_panels(tmp_path: Path) -> None:
    rows = [
        ("first & row", [Panel("a", "x", "", (curve(),)), Panel("b", "x", "", (curve(),))]),
        ("", [Panel("c", "x", "", (curve(),))]),
    ]
    paths = [write_picture(tmp_path / f"{n}.svg", rows, "<title>") for n in (1, 2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    root = ET.fromstring(paths[0].read_text())
    words = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert {"<title>", "first & row", "a", "b", "c"} <= {*words} and "var(" not in paths[0].read_text()
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    places = [
        [float(each.get(key, "")) for key in ("x", "y", "width", "height")] for each in root if each.tag.endswith("svg")
    ]
    assert places[0][1] == places[1][1] < places[2][1] and places[0][0] == places[2][0] < places[1][0]
    assert all(x + across <= width and y + down <= height for x, y, across, down in places)


def test_what_is_not_a_number_is_left_out() -> None:
    x = np.arange(1.0, 6.0)
    root = drawn(Curve("A", x, np.array([[1.0, 2, np.nan, 4, 5]])), Curve("B", x[:0], np.zeros((1, 0))))
    assert [len(points(line)) for line in lines(root)] == [4]
    (marks,) = (e for e in root.iter("path") if "curve" in e.get("fill", "") and not e.get("fill-opacity"))
    assert marks.get("d", "").count("M") == 4
    assert "nan" not in ET.tostring(root, encoding="unicode")


@pytest.mark.parametrize("value", [0.0, 0.7, -3.0, 1e-12, 1e12])
def test_a_curve_that_stays_where_it_is(value: float) -> None:
    root = drawn(Curve("A", np.array([1.0, 2.0]), np.full((1, 2), value)))
    heights = points(lines(root)[0])[:, 1]
    assert heights[0] == heights[1] and len(texts(root, "end")) >= 2


def test_a_curve_is_clipped_where_it_leaves_the_axes() -> None:
    x = np.arange(20.0)
    shown = Curve("A", x, np.array([np.where(x < 10, 0.0, 1.0), np.where(x < 10, 0.2, 1.2)]))
    root = drawn(shown, y_range=(0.5, 2.0))
    (inside,) = (e for e in root if e.tag == "svg")
    top, height = float(inside.get("y", "")), float(inside.get("height", ""))
    base = float(root[1].get("d", "").split()[1].split("H")[0])
    assert top + height == pytest.approx(base, abs=0.01)
    heights = points(lines(inside)[0])[:, 1]
    assert ((heights > base) == (x < 10)).all()


def test_logarithmic_axes_points_and_error_bars() -> None:
    x = np.array([1.0, 10.0, 100.0])
    known = Curve.of_means("A", x, [1.0, 10.0, 100.0], [0.5, 5.0, 50.0])
    root = drawn(known, form="points", log="xy")
    marks = next(e for e in root.iter("path") if "curve" in e.get("fill", ""))
    at = np.array(re.findall(r"M(-?[\d.]+) (-?[\d.]+)", marks.get("d", "")), dtype=float)
    assert np.diff(at, axis=0)[0] == pytest.approx(np.diff(at, axis=0)[1], abs=0.02)  # equal factors, equal distances
    assert lines(root)[0].get("d", "").count("V") == 3
    assert [text for _, _, text in texts(root, "middle")] == ["1", "2", "5", "10", "20", "50", "100", "interactions"]

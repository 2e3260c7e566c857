"""Self-contained HTML pages: they load and run nothing, and suit light, dark, print and the phone.

Not jinja2: it is no core dependency, and its import alone takes 40 to 70 ms, where a whole report is written in 2 ms.
`element` is the one place where text becomes HTML: whatever is no `Markup` is escaped there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --card: #f5f7f9; --line: #dfe3e8; --ink: #1f2429; --faint: #5c6570; --grid: #dfe3e8;
  --accent: #0072b2;
  --curve-1: #0072b2; --curve-2: #d55e00; --curve-3: #00855f; --curve-4: #a8508a; --curve-5: #b07800;
  --curve-6: #2f7fb8; --curve-7: #5b6470;
}
@media (prefers-color-scheme: dark) { :root {
  --ground: #14181c; --card: #1c2126; --line: #313840; --ink: #e6e9ec; --faint: #9ba5af; --grid: #2b3138;
  --accent: #5ab4ec;
  --curve-1: #5ab4ec; --curve-2: #ff8f45; --curve-3: #3fc79a; --curve-4: #e396c8; --curve-5: #e6b23a;
  --curve-6: #8ccbf2; --curve-7: #a9b2bc;
} }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 62rem; padding: 2.5rem 1.25rem 3rem;
  background: var(--ground); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
header { border-bottom: 1px solid var(--line); padding-bottom: 1.5rem; }
.eyebrow { color: var(--accent); font-weight: 600; font-size: .85rem; letter-spacing: .02em; margin: 0; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: .2rem 0 .7rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .8rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .6rem; }
p { margin: .5rem 0; max-width: 46rem; }
.lead { font-size: 1.08rem; }
.note { color: var(--faint); font-size: .9rem; }
.figures { display: grid; grid-template-columns: repeat(3, 1fr); gap: .75rem; margin: 1.5rem 0 .8rem; }
.figure { background: var(--card); border-radius: .6rem; padding: .85rem 1rem; margin: 0; }
.figure dt { color: var(--faint); font-size: .85rem; }
.figure dd { margin: .1rem 0 0; font-size: 1.55rem; font-weight: 600; line-height: 1.3; }
.figure small { display: block; font-size: .8rem; font-weight: 400; color: var(--faint); }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 1.5rem; }
.plots.row { grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: 1rem; }
.plots figure { margin: 0; }
svg { display: block; width: 100%; height: auto; }
pre, code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { font-size: .9em; overflow-wrap: anywhere; }
pre {
  background: var(--card); border-radius: .6rem; padding: 1rem; margin: .6rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; line-height: 1.5;
}
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; padding: 0; margin: .2rem 0 1.2rem; }
.legend li { display: flex; gap: .55rem; align-items: center; overflow-wrap: anywhere; }
.legend b { flex: none; width: 2rem; text-align: center; line-height: 1; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
.scroll > table { width: 100%; }
th, td { text-align: right; padding: .45rem .8rem; border-bottom: 1px solid var(--line); }
th, td { vertical-align: top; white-space: nowrap; }
th { color: var(--faint); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.scroll tbody th, .scroll thead th, .scroll .words { white-space: normal; overflow-wrap: break-word; }
.scroll .words { text-align: left; }
tbody th { color: var(--ink); }
td small { color: var(--faint); display: block; }
.facts th, .facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.facts th { font-weight: 400; min-width: 3rem; }
.key { list-style: none; padding: 0; margin: .8rem 0; }
.key li { display: flex; gap: .7rem; margin: .35rem 0; overflow-wrap: anywhere; }
.key b { flex: none; min-width: 1.7rem; text-align: center; line-height: 1.35; }
.key b { align-self: flex-start; }
.key span span { display: block; color: var(--faint); font-size: .9rem; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
footer { color: var(--faint); font-size: .88rem; }
@media (max-width: 34rem) {
  body { padding-top: 1.5rem; }
  h1 { font-size: 1.5rem; }
  .figures { grid-template-columns: 1fr 1fr; }
  .figure dd { font-size: 1.3rem; }
  .scroll thead { display: none; }
  .scroll :is(table, tbody, tr, th, td) { display: block; width: 100%; border: 0; padding: .15rem 0; }
  .scroll tbody tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  .scroll td { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 .8rem; }
  .scroll td::before { content: attr(data-head); color: var(--faint); }
  .scroll td small { flex-basis: 100%; text-align: right; }
}
@media print {
  :root {
    --ground: #fff; --card: #f5f7f9; --line: #ccc; --ink: #000; --faint: #444; --grid: #ddd;
    --accent: #0072b2;
    --curve-1: #0072b2; --curve-2: #d55e00; --curve-3: #00855f; --curve-4: #a8508a; --curve-5: #b07800;
    --curve-6: #2f7fb8; --curve-7: #5b6470;
  }
  body { max-width: none; padding: 0; font-size: 10pt; }
  figure, .figure, tr, pre { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""

POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Markup(str):
    """HTML that stands as it is; any other string is text."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str) -> Markup:
    """Write an HTML or SVG element; content that is no Markup is escaped, and so are the values of attributes.

    `class_` stands for the attribute class, `stroke_width` for stroke-width. Elements without content are closed as
    SVG's are where HTML knows no closing tag.

    >>> element("p", "a < b", element("b", "&"), class_="note")
    '<p class="note">a &lt; b<b>&amp;</b></p>'
    """
    inner = "".join(part if isinstance(part, Markup) else escape(part) for part in content)
    start = f"<{name}{_attributes(**attributes)}"
    return Markup(f"{start}/>" if name in _EMPTY else f"{start}>{inner}</{name}>")


_EMPTY = ("path", "circle")


def _attributes(**attributes: str) -> str:
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    return "".join(f' {names[name]}="{escape(value)}"' for name, value in attributes.items())


def page(title: str, body: Iterable[Markup]) -> str:
    """Write a whole document."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Whatever slips through as markup can still neither run nor load anything.
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"{element('title', title)}\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def header(eyebrow: str, title: str, lead: str) -> Markup:
    """Write the head of the page."""
    return element(
        "header", element("p", eyebrow, class_="eyebrow"), element("h1", title), element("p", lead, class_="lead")
    )


def section(title: str, *body: Markup) -> Markup:
    """Write a titled section."""
    return element("section", element("h2", title), Markup("\n" + "\n".join(body) + "\n"))


def paragraph(text: str, kind: str = "") -> Markup:
    """Write a paragraph of text."""
    return element("p", text, **({"class_": kind} if kind else {}))


def figures(entries: Iterable[tuple[str, str, str]]) -> Markup:
    """Write large numbers: (name, value, what it means) each."""
    cards = (
        element("dl", element("dt", name), element("dd", value, element("small", note)), class_="figure")
        for name, value, note in entries
    )
    return element("div", *cards, class_="figures")


def plots(drawings: Iterable[tuple[str, str]], *, small: bool = False) -> Markup:
    """Write drawings: (what it shows, its SVG) each, the first text, the second markup; small ones in rows of three."""
    shown = (
        element("figure", Markup(drawing.replace("<svg", f"<svg{_attributes(role='img', aria_label=alt)}", 1)))
        for alt, drawing in drawings
    )
    return element("div", *shown, class_="plots row" if small else "plots")


def subtitle(text: str) -> Markup:
    """Write a title inside a section."""
    return element("h3", text)


def facts(entries: Iterable[tuple[str, str]]) -> Markup:
    """Write names and values in two columns."""
    rows = (element("tr", element("th", name, scope="row"), element("td", value)) for name, value in entries)
    return element("table", element("tbody", *rows), class_="facts")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Write a table; the lines of a cell stand below each other, the first one large.

    Names and sentences are broken into lines. On a phone it is a list of rows, with the head before each cell.
    """
    top = element("thead", element("tr", *(element("th", cell, scope="col") for cell in head)))
    body = (
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(_cell(text, name) for name, text in zip(head[1:], row[1:], strict=True)),
        )
        for row in rows
    )
    return element("div", element("table", top, element("tbody", *body)), class_="scroll")


LONGEST_VALUE = 32
"""Characters of a cell that holds a value; a longer one holds words, which are broken into lines."""


def _cell(text: str, head: str) -> Markup:
    first, *rest = text.split("\n")
    named = {"data_head": " ".join(head.split())} if head else {}
    words = {"class_": "words"} if len(first) > LONGEST_VALUE else {}
    return element("td", first, *(element("small", line) for line in rest), **named, **words)


def legend(entries: Iterable[tuple[str, str, str]]) -> Markup:
    """Write which curve is which: (name, its colour in CSS, its line in CSS or its mark) each."""
    items = []
    for name, colour, sign in entries:
        drawn = len(sign) == 1
        style = f"color: {colour}" if drawn else f"border-bottom: .22rem {sign} {colour}"
        items.append(element("li", element("b", sign if drawn else "", style=style), name))
    return element("ul", *items, class_="legend")


def key(entries: Iterable[tuple[str, str, str, str]]) -> Markup:
    """Write what the names of curves stand for: (name, its underline in CSS, text, further text) each."""
    items = (
        element(
            "li", element("b", name, style=f"border-bottom: .2rem {line}"), element("span", text, element("span", more))
        )
        for name, line, text, more in entries
    )
    return element("ul", *items, class_="key")


def footer(text: str) -> Markup:
    """Write the foot of the page."""
    return element("footer", text)


def code(text: str) -> Markup:
    """Write text as it is typed or stored."""
    return element("pre", text)

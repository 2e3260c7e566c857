"""A self-contained HTML page: loads and runs nothing; for light, dark, print and the phone."""

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
p { margin: .5rem 0; max-width: 46rem; }
.lead { font-size: 1.08rem; }
.note { color: var(--faint); font-size: .9rem; }
.figures { display: grid; grid-template-columns: repeat(3, 1fr); gap: .75rem; margin: 1.5rem 0 .8rem; }
.figure { background: var(--card); border-radius: .6rem; padding: .85rem 1rem; margin: 0; }
.figure dt { color: var(--faint); font-size: .85rem; }
.figure dd { margin: .1rem 0 0; font-size: 1.55rem; font-weight: 600; line-height: 1.3; }
.figure small { display: block; font-size: .8rem; font-weight: 400; color: var(--faint); }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 1.5rem; }
.plots figure { margin: 0; }
svg { display: block; width: 100%; height: auto; }
pre, code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { font-size: .9em; overflow-wrap: anywhere; }
pre {
  background: var(--card); border-radius: .6rem; padding: 1rem; margin: .6rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; line-height: 1.5;
}
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
.scroll > table { width: 100%; }
th, td { text-align: right; padding: .45rem .8rem; border-bottom: 1px solid var(--line); }
th, td { vertical-align: top; white-space: nowrap; }
th { color: var(--faint); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
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


def page(title: str, body: Iterable[str]) -> str:
    """A whole document. `body` is HTML already; the title is text."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Whatever slips through as markup can still neither run nor load anything.
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def header(eyebrow: str, title: str, lead: str) -> str:
    """The head of the page; all three are text."""
    return (
        f'<header><p class="eyebrow">{escape(eyebrow)}</p><h1>{escape(title)}</h1>'
        f'<p class="lead">{escape(lead)}</p></header>'
    )


def section(title: str, *body: str) -> str:
    """A titled section of HTML."""
    return f"<section><h2>{escape(title)}</h2>\n" + "\n".join(body) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of text."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def figures(entries: Iterable[tuple[str, str, str]]) -> str:
    """Large numbers: (name, value, what it means) each, as text."""
    cards = (
        f'<dl class="figure"><dt>{escape(name)}</dt>'
        f"<dd>{escape(value)}<small>{escape(note)}</small></dd></dl>"
        for name, value, note in entries
    )
    return f'<div class="figures">{"".join(cards)}</div>'


def plots(drawings: Iterable[tuple[str, str]]) -> str:
    """(what it shows, SVG) each: the first is text, the second markup."""
    shown = (
        "<figure>" + drawing.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1) + "</figure>"
        for alt, drawing in drawings
    )
    return f'<div class="plots">{"".join(shown)}</div>'


def facts(entries: Iterable[tuple[str, str]]) -> str:
    """Names and values as text, in two columns."""
    rows = "".join(f'<tr><th scope="row">{escape(n)}</th><td>{escape(v)}</td></tr>' for n, v in entries)
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text; the lines of a cell stand below each other, the first one large."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{_lines(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def key(entries: Iterable[tuple[str, str, str, str]]) -> str:
    """What the names of curves stand for: (name, its underline in CSS, text, further text) each."""
    items = (
        f'<li><b style="border-bottom: .2rem {escape(line)}">{escape(name)}</b>'
        f"<span>{escape(text)}<span>{escape(more)}</span></span></li>"
        for name, line, text, more in entries
    )
    return f'<ul class="key">{"".join(items)}</ul>'


def footer(text: str) -> str:
    """The foot of the page."""
    return f"<footer>{escape(text)}</footer>"


def code(text: str) -> str:
    """Text as it is typed or stored."""
    return f"<pre>{escape(text)}</pre>"


def _lines(cell: str) -> str:
    first, *rest = cell.split("\n")
    return escape(first) + "".join(f"<small>{escape(line)}</small>" for line in rest)


def _class(kind: str) -> str:
    return f' class="{escape(kind)}"' if kind else ""

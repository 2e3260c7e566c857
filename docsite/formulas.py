r"""Formulas of pages as MathML, which browsers show without a script: `$\theta$` in a sentence, a block of language `math`.

Both are written in LaTeX, and forges show them too. latex2mathml converts them when the site is built.
"""

from __future__ import annotations

import re

_INLINE = re.compile(r"(?<![\\$\w])\$(?=[^\s$])((?:\\\$|[^$\n])*?[^\s$\\])\$(?![\w$])([.,;:!?)]*)")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_FENCE = re.compile(r"^( *)(`{3,})([\w-]*)\s*$")


def with_formulas(text: str) -> str:
    """Return a page whose formulas are MathML; code and other blocks are unchanged."""
    found: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            found.append(_in_sentence(lines[at]))
            at += 1
            continue
        indent, ticks, language = fence.groups()
        end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == ticks), len(lines))
        if language == "math":
            formula = _mathml(" ".join(line.strip() for line in lines[at + 1 : end]), display="block")
            found.append(f'{indent}<div class="formula">{formula}</div>')
        else:
            found += lines[at : end + 1]
        at = end + 1
    return "\n".join(found)


def _in_sentence(line: str) -> str:
    """Return a line with its formulas converted; code between backticks stays."""
    pieces, last = [], 0
    for code in [*_CODE.finditer(line), None]:
        outside = line[last : code.start() if code else len(line)]
        pieces.append(
            _INLINE.sub(lambda formula: f'<span class="formula">{_mathml(formula[1])}{formula[2]}</span>', outside)
        )
        if code:
            pieces.append(code[0])
            last = code.end()
    return "".join(pieces)


def _mathml(formula: str, display: str = "inline") -> str:
    from latex2mathml.converter import convert

    found = convert(formula, display=display)
    left = re.search(r"<mi>\\\w+</mi>|<mtext>\\\w+", found)
    if left:
        raise ValueError(f"{formula}: {left[0]} is a command that latex2mathml does not know")
    return found.replace("*", "&#42;").replace("_", "&#95;")

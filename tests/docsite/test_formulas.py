"""Formulas of pages become MathML; code stays as it is."""

from __future__ import annotations

import pytest

pytest.importorskip("latex2mathml", reason="a dependency of the documentation only")

from docsite.formulas import with_formulas


def test_formulas_become_mathml() -> None:
    found = with_formulas("The update is $\\theta_{t+1}$, and\n\n```math\n\\sum_i w_i\n```\n")
    assert found.startswith('The update is <span class="formula"><math ') and "$" not in found
    assert '<div class="formula"><math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in found
    assert "```" not in found


@pytest.mark.parametrize("text", ["It costs $5 or $7.", "`$x$` and `a $y$ b`", "```bash\necho $x $y\n```", "US$ 3$"])
def test_other_dollars_stay(text: str) -> None:
    assert with_formulas(text) == text


def test_an_unknown_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not know"):
        with_formulas("$\\whatever x$")

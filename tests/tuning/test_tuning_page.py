"""The code of docs/tuning.md runs as it stands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from docsite.markdown import blocks

PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"


def test_the_afternoon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(PAGE.read_text(encoding="utf-8"))
    parts = [block.text for block in found if block.language == "python" and not block.not_run]
    assert len(parts) == 3
    names: dict[str, object] = {}
    exec(compile("\n".join(parts), str(PAGE), "exec"), names)
    assert names["model"].version == 1  # type: ignore[attr-defined]

    def loss(fresh: float, old: float, mine: float) -> float:
        """The fresh one was taken of 3·fresh, 9·old + mine and fresh."""
        scores = np.array([3 * fresh, 9 * old + mine, fresh])
        return float(np.maximum(0.0, (scores[1:] - scores[0]) / scores.std() + 0.2).sum())

    assert names["loss"] == pytest.approx([loss(10, 4, 3)])
    slopes = [loss(10.01, 4, 3) - loss(9.99, 4, 3), loss(10, 4.01, 3) - loss(10, 3.99, 3)]
    assert names["slopes"][0, :2] == pytest.approx(np.array(slopes) / 0.02)  # type: ignore[index]
    assert names["update"].values.tolist() == [[-1.0, 1.0, 1.0]]  # type: ignore[attr-defined]

"""The code of docs/tuning.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"


def test_the_afternoon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    exec(compile("\n".join(blocks), str(PAGE), "exec"), names)
    assert names["receipt"] == (1, 0, 0, 0)
    # the fresh one was taken: 4·9 + 3·1 + 5 − 10·3 = 14, with slopes −3, 9 and 1
    assert names["loss"].tolist() == [14.0]  # type: ignore[attr-defined]
    assert names["slopes"].round(9).tolist() == [[-3.0, 9.0, 1.0]]  # type: ignore[attr-defined]
    assert names["protocol"].release.unpack(names["update"].payload, 3).tolist() == [[-1.0, 1.0, 1.0]]  # type: ignore[attr-defined]

"""Numbers of LETOR text: the compiled parser reads what Python's `float` reads, rounded to float32."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from quorank.data.letor.reader import read_letor

LARGEST = float(np.finfo(np.float32).max)
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def expected(text: str) -> np.float32:
    """What is documented: float(text), the largest float32 for what is beyond it."""
    assert NUMBER.fullmatch(text)
    return np.float32(max(min(float(text), LARGEST), -LARGEST))


def read(tmp_path: Path, texts: list[str]) -> np.ndarray:
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"0 qid:1 1:{text}\n" for text in texts))
    return read_letor(path).features[:, 0]


def check(tmp_path: Path, texts: list[str]) -> None:
    found = read(tmp_path, texts)
    wanted = np.array([expected(text) for text in texts], np.float32)
    wrong = np.flatnonzero(found.view(np.int32) != wanted.view(np.int32))
    assert [(texts[i], found[i], wanted[i]) for i in wrong[:5]] == []


def test_zero_is_zero_whatever_its_exponent(tmp_path: Path) -> None:
    mantissas = ["0", "-0", "+0", "0.0", ".0", "0.", "000", "-0.000000000000000000000000"]
    exponents = ["E+39", "e308", "e309", "e99999", "e-40", "e-99999", "e0", "e00000000040"]
    check(tmp_path, [mantissa + exponent for mantissa in mantissas for exponent in exponents])


def test_halfway_cases_subnormals_and_the_largest(tmp_path: Path) -> None:
    numbers = random.Random(1)
    texts = ["3.4028235e38", "3.4028234663852886e38", "1e39", "-1e39", "9e307", "1.7976931348623157e308", "1e-45"]
    texts += ["7.0064923216240853e-46", "7.006492321624085e-46", "1.17549435e-38", "1e-50", "1e-400", "0" * 400 + "1"]
    for _ in range(1500):
        low = np.uint32(numbers.randrange(0x7F7FFFFF)).view(np.float32)
        high = np.nextafter(low, np.float32(np.inf))
        middle = (Decimal(float(low)) + Decimal(float(high))) / 2
        for nudge in (Decimal(0), Decimal(1), Decimal(-1)):
            texts.append(format(middle + nudge * middle.scaleb(-numbers.randrange(10, 60)), "e"))
        texts.append(f"{Decimal(float(low)):f}")
    check(tmp_path, texts)


def test_generated_numbers(tmp_path: Path) -> None:
    numbers = random.Random(2)
    texts = []
    for _ in range(40_000):
        digits = "".join(numbers.choices("0123456789", k=numbers.choice((1, 2, 6, 9, 17, 18, 19, 20, 25, 45))))
        point = numbers.randrange(len(digits) + 1)
        text = numbers.choice(("", "-", "+")) + "0" * numbers.choice((0, 0, 1, 30)) + digits[:point]
        text += numbers.choice(("", ".")) + digits[point:]
        if numbers.random() < 0.6:
            text += (
                numbers.choice("eE")
                + numbers.choice(("", "-", "+"))
                + str(numbers.randrange(10 ** numbers.randrange(1, 3)))
            )
        texts.append(text)
    check(tmp_path, [text for text in texts if np.isfinite(float(text))])


@pytest.mark.parametrize(
    "text", ["1e309", "-1e400", "1e99999", "1.8e308", "inf", "e5", ".", "+", "-.", "1e", "1e+", "0x1", "1_0"]
)
def test_what_is_no_finite_number_is_refused(tmp_path: Path, text: str) -> None:
    with refused("letor.not-a-number", f"{tmp_path / 'numbers.txt'}:1"):
        read(tmp_path, [text])


def test_a_long_number_takes_linear_time(tmp_path: Path) -> None:
    """A million digits and one wrong letter: a pattern that tries all ways to divide the digits would take hours."""
    with refused("letor.not-a-number"):
        read(tmp_path, ["1" * 1_000_000 + "x"])

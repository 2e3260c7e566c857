"""Damaged copies of sound files, and the one thing that a reader may say of them: a sentence on one line."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from quorank.errors import BadInput

WORDS = (
    b"\0", b"\xff\xfe", b"\n", b"\r", b"\t\t", b"<", b">", b"&#", b"99999999999999999999", b"-1", b"1e999", b"0e40",
    b"nan", b'"', b"[[[[", b"{", b"}", b"\\u", b"\\ud800", b"From ", b".I ", b"</", b"\xf0\x9f\x98\x80", b"\xc3", b":",
)  # fmt: skip


def mutations(sources: Sequence[bytes], count: int, seed: int = 1) -> Iterator[bytes]:
    """`count` copies with bytes flipped, cut, repeated, put in, or spliced with another source."""
    numbers = random.Random(seed)
    for _ in range(count):
        content = bytearray(numbers.choice(sources))
        for _ in range(numbers.choice((1, 1, 2, 4))):
            at, size = numbers.randrange(len(content) + 1), numbers.choice((1, 2, 8, 64))
            kind = numbers.randrange(6)
            if kind == 0 and at < len(content):
                content[at] ^= 1 << numbers.randrange(8)
            elif kind == 1:
                del content[at:]
            elif kind == 2:
                del content[at : at + size]
            elif kind == 3:
                content[at:at] = content[at : at + size] * numbers.choice((1, 3, 40))
            elif kind == 4:
                content[at:at] = numbers.choice(WORDS)
            else:
                other = numbers.choice(sources)
                content[at:] = other[numbers.randrange(len(other) + 1) :]
        yield bytes(content)


def refusals(read: Callable[[bytes], object], contents: Iterator[bytes]) -> int:
    """How many of the contents were refused, each in one line; anything but a refusal is a failure."""
    refused = 0
    for content in contents:
        try:
            read(content)
        except BadInput as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 1000, error
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} over {content[:400]!r}") from error
    return refused

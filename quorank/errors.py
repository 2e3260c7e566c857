"""Errors as values: a stable code for programs, a sentence for people, and the place that it is about."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_LARGEST = 2**1023  # largest magnitude of an integer that has a float


class BadInput(Exception):
    """Invalid input: `BadInput("letor.not-a-number", "found 'x', expected a number", "train.txt:7")`.

    `sentence` and `where` are one printable line each, of bounded length. The command line prints them and exits with 2.

    Args:
        code: Stable identifier for logs, metrics and tests: the thing and its fault.
        sentence: Fault and remedy, for a person.
        where: File and line, dotted key, or option.

    Attributes:
        code: Stable identifier.
        sentence: Fault and remedy.
        where: Place of the fault; empty if unknown.

    >>> import quorank as qr
    >>> try:
    ...     qr.run("fpdgd", set={"federation.clients": 0})
    ... except qr.BadInput as error:
    ...     print(error.code, error.sentence, sep=": ")
    value.out-of-range: must be at least 1 and below 2^31, got 0
    """

    def __init__(self, code: str, sentence: str, where: str = "") -> None:
        super().__init__(code, sentence, where)
        self.code, self.sentence, self.where = code, printable(sentence, 900), printable(where, 900)

    def __str__(self) -> str:
        return f"{self.where}: {self.sentence}" if self.where else self.sentence

    def under(self, key: str) -> BadInput:
        """Return the error with a key before its own: `step` under `federation.server` is `federation.server.step`.

        Args:
            key: Dotted key.
        """
        return BadInput(self.code, self.sentence, ".".join(filter(None, (key, self.where))))

    def at(self, place: str) -> BadInput:
        """Return the error with a place before its own: a file and line before a key, a file before a line.

        Args:
            place: File, or file and line.
        """
        return BadInput(self.code, self.sentence, f"{place}: {self.where}" if self.where else place)


@contextmanager
def under(key: str) -> Iterator[None]:
    """Raise every BadInput of the block with a key before its own.

    >>> with under("federation.server"):
    ...     raise BadInput("value.out-of-range", "must be above 0, got -1", "step")
    Traceback (most recent call last):
    quorank.errors.BadInput: federation.server.step: must be above 0, got -1
    """
    try:
        yield
    except BadInput as error:
        raise error.under(key) from None


class Interrupted(Exception):
    """Run that was stopped by a signal after it had saved its last complete round; `resume` continues it.

    Args:
        round_: Last complete round.
        rounds: Number of rounds of the run.

    Attributes:
        round: Last complete round.
        rounds: Number of rounds of the run.

    >>> import quorank as qr
    >>> stopped = qr.Interrupted(40, 1000)
    >>> f"stopped after {stopped.round} of {stopped.rounds} rounds"
    'stopped after 40 of 1000 rounds'
    """

    def __init__(self, round_: int, rounds: int) -> None:
        super().__init__(round_, rounds)
        self.round, self.rounds = round_, rounds


def require(condition: object, code: str, sentence: str, where: str = "") -> None:
    """Raise BadInput(code, sentence, where) unless the condition holds."""
    if not condition:
        raise BadInput(code, sentence, where)


def require_range(
    name: str,
    value: float,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    code: str = "value.out-of-range",
) -> None:
    """Raise BadInput for a field or option `name` whose value is outside the bounds, or no finite number.

    >>> require_range("beta", 1.0, least=0.0, below=1.0)
    Traceback (most recent call last):
    quorank.errors.BadInput: beta: must be at least 0 and below 1, got 1.0
    """
    inside = (
        (above is None or value > above)
        and (least is None or value >= least)
        and (below is None or value < below)
        and (most is None or value <= most)
    )
    if inside and (abs(value) <= _LARGEST if isinstance(value, int) else math.isfinite(value)):
        return
    bounds = (("above", above), ("at least", least), ("below", below), ("at most", most))
    words = [f"{word} {_in_words(bound)}" for word, bound in bounds if bound is not None]
    raise BadInput(code, f"must be {' and '.join(words) or 'a finite number'}, got {brief(value)}", name)


def require_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise BadInput for a field or option `name` whose value is not among the choices."""
    known = list(choices)
    sentence = f"expected one of {', '.join(map(repr, known))}, got {brief(value)}"
    require(value in known, "value.not-a-choice", sentence, name)


def brief(value: object, longest: int = 60, levels: int = 4) -> str:
    """Return a value as a sentence quotes it: on one line, and cut where it is long or nested in more than `levels`.

    >>> brief([1] * 1000, 12)
    '[1, 1, 1, 1,…'
    >>> brief([[[[[[1]]]]]])
    '[[[[[…]]]]]'
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"a number of more than {value.bit_length() * 3 // 10} digits"
    if isinstance(value, str | bytes):
        shown = repr(value[:longest])
        return shown if len(value) <= longest else f"{shown[:-1]}…{shown[-1]}"
    if isinstance(value, dict | list | tuple) and value and levels == 0:
        shown = "{…}" if isinstance(value, dict) else "[…]"
    elif isinstance(value, dict):
        first = list(value.items())[:4]
        shown = "{" + ", ".join(f"{brief(k, 20)}: {brief(v, 20, levels - 1)}" for k, v in first)
        shown += ", …}" if len(value) > 4 else "}"
    elif isinstance(value, list | tuple):
        shown = (
            "["
            + ", ".join(brief(item, 20, levels - 1) for item in value[:longest])
            + ("]" if len(value) <= longest else "…")
        )
    else:
        shown = repr(value)
    shown = " ".join(shown.splitlines())
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def suggest(word: object, known: Iterable[object]) -> str:
    """Return " (did you mean …?)" for a word that is close to a known one, else the empty string.

    >>> suggest("navigatonal", ["perfect", "navigational"])
    " (did you mean 'navigational'?)"
    """
    if not isinstance(word, str | int) or len(str(word)) > 100:
        return ""
    from difflib import get_close_matches

    close = get_close_matches(str(word), [str(choice) for choice in known], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def first_line(error: BaseException, longest: int = 160) -> str:
    """Return the first line of a library's exception for a sentence, or its type if it has no message."""
    line = next((" ".join(line.split()) for line in f"{error}".splitlines() if line.strip()), "")
    return (f"{line[:longest]}…" if len(line) > longest else line) or type(error).__name__


def _in_words(bound: float) -> str:
    """Write 2147483648 as 2^31, 10000000 as 10,000,000, 0.05 as 0.05."""
    whole = isinstance(bound, int)
    if whole and bound >= 2**20 and math.log2(bound).is_integer():
        return f"2^{int(math.log2(bound))}"
    return (f"{bound:,}" if bound >= 1_000_000 else str(bound)) if whole else f"{bound:g}"


def printable(text: str, longest: int | None = None) -> str:
    r"""Return a string as one line that any terminal may show, with escapes for control characters.

    >>> printable("a\x1b[31m\nb")
    'a\\u001b[31m b'
    """
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else f"\\u{ord(c):04x}" for c in text)

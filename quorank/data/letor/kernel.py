"""Compiled parser of LETOR lines: one pass over the bytes of whole lines, straight into the features.

A number of at most 18 digits is read as mantissa / 10^k. With a mantissa up to 2^53 and k up to 22,
both are exact doubles and the quotient is the correctly rounded one, equal to Python's `float`. Others are
computed to within a few units in the last place, which settles the float32 unless it lies on a rounding boundary;
what is then unsettled, or no plain number, is a "hard token" that `reader.py` hands to Python's `float`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quorank.data.ranking import HIGHEST_LABEL
from quorank.kernels.arrays import Bytes, Floats, Int8s, Integers
from quorank.kernels.compiled import kernel

HIGHEST_INDEX = 65_535  # rows are as wide as the highest index, which may be mistyped
LABEL, NO_QUERY, EMPTY_QUERY, FEATURE, INDEX, VALUE, DUPLICATE = range(1, 8)  # faults of a line

ROWS, RUNS, HARD, BAD, WIDEST, NAMED = range(6)  # places in `counts`

_TENS = np.array([float(f"1e{k}") for k in range(291)])
_EXACT = 2**53
_SURE = 2.0**-50
_LARGEST = float(np.finfo(np.float32).max)
_LAST_DOUBLE = 179769313486231580  # the first 18 digits of the last number that is read as a finite double

_NEWLINE, _HASH, _COLON, _DOT, _PLUS, _MINUS, _ZERO = 10, 35, 58, 46, 43, 45, 48


@kernel
def _is_space(c: int) -> bool:
    return c == 32 or (9 <= c <= 13 and c != _NEWLINE)


@kernel
def _token_end(text: Bytes, p: int) -> int:
    c = text[p]
    while not (c == 32 or 9 <= c <= 13 or c == _HASH):
        p += 1
        c = text[p]
    return p


@kernel
def _settle(text: Bytes, start: int, end: int) -> tuple[bool, float]:
    """Read any decimal number to within 2^-50: (is its float32 settled, value)."""
    p = start
    negative = text[p] == _MINUS
    if negative or text[p] == _PLUS:
        p += 1
    mantissa, exponent, kept, digits, fraction = 0, 0, 0, 0, False
    while p < end:
        d = text[p] - _ZERO
        if 0 <= d <= 9:
            digits += 1
            if kept < 18:
                mantissa = mantissa * 10 + d
                kept += mantissa > 0
                exponent -= fraction
            else:
                exponent += not fraction
        elif text[p] == _DOT and not fraction:
            fraction = True
        else:
            break
        p += 1
    if p < end and (text[p] == 101 or text[p] == 69):
        p += 1
        down = p < end and text[p] == _MINUS
        if p < end and (down or text[p] == _PLUS):
            p += 1
        if p == end or end - p > 4:
            return False, 0.0
        written = 0
        while p < end and 0 <= text[p] - _ZERO <= 9:
            written = written * 10 + text[p] - _ZERO
            p += 1
        exponent += -written if down else written
    if p < end or digits == 0:
        return False, 0.0
    if mantissa == 0:  # with any exponent
        return True, -0.0 if negative else 0.0
    if exponent < -290:
        return False, 0.0
    if exponent + kept > 39:
        last = exponent + kept == 309
        if exponent + kept > 309 or (last and mantissa * 10 ** (18 - kept) > _LAST_DOUBLE):
            return False, 0.0
        value = _LARGEST
    else:
        value = mantissa / _TENS[-exponent] if exponent < 0 else mantissa * _TENS[exponent]
        value = min(value, _LARGEST)
    exact = kept < 18 and mantissa <= _EXACT and -22 <= exponent <= 22
    alike = np.float32(value * (1.0 - _SURE)) == np.float32(min(value * (1.0 + _SURE), _LARGEST))
    return exact or alike, -value if negative else value


@kernel
def _repeated(text: Bytes, p: int, seen: Integers, mark: int) -> int:
    """Return where, from the first feature at p on, an index stands for the second time; -1 if nowhere."""
    while True:
        while _is_space(text[p]):
            p += 1
        if text[p] == _NEWLINE or text[p] == _HASH:
            return -1
        start, index = p, 0
        while text[p] != _COLON:
            index = index * 10 + text[p] - _ZERO
            p += 1
        if seen[index] == mark:
            return start
        seen[index] = mark
        p = _token_end(text, p)


@kernel
def _document(text: Bytes, p: int) -> tuple[int, int]:
    """Return the span of X in a comment `#docid = X …`, p behind the hash; empty without one."""
    while _is_space(text[p]):
        p += 1
    for c in (100, 111, 99, 105, 100):  # docid
        if text[p] != c:
            return p, p
        p += 1
    while _is_space(text[p]):
        p += 1
    if text[p] != 61:
        return p, p
    p += 1
    while _is_space(text[p]):
        p += 1
    start = p
    while not (text[p] == 32 or 9 <= text[p] <= 13):
        p += 1
    return start, p


@kernel
def _label(text: Bytes, p: int) -> tuple[int, int]:
    """Read a label: (label or -1, where it ends); 2.0 is an integer too."""
    start = p
    if text[p] == _PLUS:
        p += 1
    first, label = p, 0
    while 0 <= text[p] - _ZERO <= 9:
        label = min(label * 10 + text[p] - _ZERO, HIGHEST_LABEL + 1)
        p += 1
    if p == first:
        return -1, start
    if text[p] == _DOT:
        p += 1
        while text[p] == _ZERO:
            p += 1
    whole = text[p] == 32 or 9 <= text[p] <= 13 or text[p] == _HASH
    return (label if whole and label <= HIGHEST_LABEL else -1), p


@kernel
def parse_lines(
    text: Bytes,  # whole lines: the last byte is a newline, so that no inner loop asks where the text ends
    padded: Floats,  # (at least one row per line, stride), zeros
    labels: Int8s,
    runs: Integers,  # (lines, 3) first row of a run of one query, span of its id
    documents: Integers,  # (lines,) where the document id of each row ends in `names`
    names: Bytes,  # (bytes of the text,) the document ids one behind the other
    hard: Integers,  # (tokens, 5) row, column, span, line of the numbers left to Python
    bad: Integers,  # (some, 3) line, what is wrong, position
    counts: Integers,  # (6,) out
    seen: Integers,  # (HIGHEST_INDEX + 1,) zeros
) -> Any:
    """Parse whole lines into rows; malformed lines and hard numbers are listed, not raised."""
    stride = padded.shape[1]
    p, size = 0, text.size
    line, row, n_runs, n_hard, n_bad, widest, named = 0, 0, 0, 0, 0, 0, 0
    last, last_size = 0, 0
    while p < size:
        wrong, at = 0, p
        hard_before = n_hard
        while _is_space(text[p]):
            p += 1
        if text[p] != _NEWLINE and text[p] != _HASH:
            at = p
            label, p = _label(text, p)
            query, query_size, first = 0, 0, 0
            if label < 0:
                wrong = LABEL
            else:
                while _is_space(text[p]):
                    p += 1
                at = p
                if not (text[p] == 113 and text[p + 1] == 105 and text[p + 2] == 100 and text[p + 3] == _COLON):
                    wrong = NO_QUERY
                else:
                    query = p + 4
                    p = _token_end(text, query)
                    query_size = p - query
                    if query_size == 0:
                        wrong = EMPTY_QUERY
            first, previous, ordered = p, 0, True
            while wrong == 0:
                c: Any = np.int64(text[p])
                while _is_space(c):
                    p += 1
                    c = np.int64(text[p])
                if c in (_NEWLINE, _HASH):
                    break
                at = p
                index: Any = 0
                d = c - _ZERO
                while 0 <= d <= 9:
                    index = index * 10 + d
                    p += 1
                    d = np.int64(text[p]) - _ZERO
                if d != _COLON - _ZERO or p == at:
                    wrong = FEATURE
                    break
                if index == 0 or index > HIGHEST_INDEX or p - at > 9:
                    wrong = INDEX
                    break
                ordered &= index > previous
                previous = index
                widest = max(widest, index)
                p += 1
                start = p
                c = np.int64(text[p])
                negative = c == _MINUS
                if negative:
                    p += 1
                begin = p
                mantissa: Any = 0
                d = np.int64(text[p]) - _ZERO
                while 0 <= d <= 9:
                    mantissa = mantissa * 10 + d
                    p += 1
                    d = np.int64(text[p]) - _ZERO
                digits, places = p - begin, 0
                if d == _DOT - _ZERO:
                    p += 1
                    begin = p
                    d = np.int64(text[p]) - _ZERO
                    while 0 <= d <= 9:
                        mantissa = mantissa * 10 + d
                        p += 1
                        d = np.int64(text[p]) - _ZERO
                    places = p - begin
                    digits += places
                c = d + _ZERO
                ended = c == 32 or 9 <= c <= 13 or c == _HASH
                if ended and 0 < digits <= 18 and mantissa <= _EXACT:
                    value = mantissa / _TENS[places]
                    if negative:
                        value = -value
                    if index <= stride:
                        padded[row, index - 1] = np.float32(value)
                else:
                    p = _token_end(text, p)
                    if p == start:
                        wrong, at = VALUE, start
                        break
                    settled, value = _settle(text, start, p)
                    if settled and index <= stride:
                        padded[row, index - 1] = np.float32(value)
                    elif not settled:
                        hard[n_hard, 0], hard[n_hard, 1], hard[n_hard, 2] = row, index - 1, start
                        hard[n_hard, 3], hard[n_hard, 4] = p, line
                        n_hard += 1
            if wrong == 0 and not ordered:
                repeated = _repeated(text, first, seen, line + 1)
                if repeated >= 0:
                    wrong, at = DUPLICATE, repeated
            if wrong:
                n_hard = hard_before
                if n_bad < len(bad):
                    bad[n_bad, 0], bad[n_bad, 1], bad[n_bad, 2] = line, wrong, at
                n_bad += 1
            else:
                if not np.array_equal(text[query : query + query_size], text[last : last + last_size]):
                    runs[n_runs, 0], runs[n_runs, 1], runs[n_runs, 2] = row, query, query + query_size
                    n_runs += 1
                    last, last_size = query, query_size
                labels[row] = label
                if text[p] == _HASH:
                    at, p = _document(text, p + 1)
                    for i in range(at, p):
                        names[named] = text[i]
                        named += 1
                documents[row] = named
                row += 1
        while text[p] != _NEWLINE:
            p += 1
        p += 1
        line += 1
    counts[ROWS], counts[RUNS], counts[HARD], counts[BAD] = row, n_runs, n_hard, n_bad
    counts[WIDEST], counts[NAMED] = widest, named

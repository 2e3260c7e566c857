"""Times of a log as text: ISO 8601 dates, or numbers since 1970; in UTC where no zone is named."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import numpy as np

from quorank.data.logs.click_log import NO_TIME
from quorank.errors import BadInput, brief

_START = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_800_000_000  # the years 1 and 10000, in microseconds
_WHOLE = re.compile(r"-?\d{1,18}(\.\d{1,6})?", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)


def read_time(text: str, unit: int = 1_000_000) -> int:
    """Return microseconds since 1970 of an ISO 8601 date, or of a number of units of so many microseconds.

    >>> read_time("2006-03-01 00:01:03"), read_time("2006-03-01T01:01:03+01:00"), read_time("1141171263")
    (1141171263000000, 1141171263000000, 1141171263000000)
    """
    text = text.strip()
    try:
        if _WHOLE.fullmatch(text):
            whole, _, fraction = text.partition(".")
            found = int(whole) * unit + round(float(f"0.{fraction or 0}") * unit) * (-1 if text[0] == "-" else 1)
        else:
            when = datetime.fromisoformat(text)
            found = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - _START) // _MICROSECOND
    except (ValueError, OverflowError):
        found = NO_TIME
    if not _FIRST <= found < _LAST:
        expected = "an ISO 8601 date such as 2006-03-01T00:01:03Z, or a number since 1970"
        raise BadInput("log.bad-time", f"found {brief(text)} as a time, expected {expected}")
    return found


def write_time(microseconds: int) -> str:
    """Return a time as ISO 8601 text in UTC, with a fraction where it has one.

    >>> write_time(1141171263000000), write_time(-500000)
    ('2006-03-01T00:01:03Z', '1969-12-31T23:59:59.500000Z')
    """
    if microseconds == NO_TIME:
        return ""
    return str(np.datetime_as_string(np.datetime64(int(microseconds), "us"))).removesuffix(".000000") + "Z"

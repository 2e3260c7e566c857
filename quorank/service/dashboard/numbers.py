"""Numbers for people: durations, times ago, counts, bytes, small numbers."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Format a duration in one or two units: 8 s, 4 min, 1 h 12 min, 2 d 3 h.

    >>> duration(4325.0), duration(0.25), duration(90.0)
    ('1 h 12 min', '0.25 s', '1 min 30 s')
    """
    if seconds is None:
        return "unknown"
    if seconds < 60.0:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    rest, parts = round(seconds), list[tuple[int, str]]()
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if (rest >= size or parts) and len(parts) < 2:
            parts.append((rest // size, name))
            rest %= size
    if parts[0][1] == "min" and parts[0][0] >= 10:
        parts = parts[:1]
    return " ".join(f"{number} {name}" for number, name in parts if number)


def ago(seconds: float | None) -> str:
    """Format a time ago."""
    if seconds is None:
        return "never"
    return "just now" if seconds < 5.0 else f"{' '.join(duration(seconds).split()[:2])} ago"


def small(number: float) -> str:
    """Format a small number: 1e-5, not 1e-05."""
    return f"{number:g}".replace("e-0", "e-")


def count(number: float | None) -> str:
    """Format a count with separators, shortened from 100,000 on; a dash for None."""
    if number is None:
        return "–"
    if number >= 1e6:
        return f"{number / 1e6:.3g}M"
    if number >= 1e5:
        return f"{number / 1e3:.3g}k"
    return f"{number:,.0f}"


def rate(per_second: float | None) -> str:
    """Format a rate, per minute below one a second; a dash for None.

    >>> rate(12.34), rate(0.05)
    ('12.3/s', '3/min')
    """
    if per_second is None:
        return "–"
    return f"{per_second:.3g}/s" if per_second >= 1.0 else f"{60.0 * per_second:.3g}/min"


def byte_count(number: float) -> str:
    """Format bytes in a short unit."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"

"""Watching of sources on the disk: yields the sources to scan again, a moment after changes have settled.

The system's notifications (watchfiles) are used where available. A folder that vanishes, or does not exist yet, is
looked for regularly, and watched when it appears. If a folder cannot be watched, its source is scanned at intervals
instead. Changes of a source within its `rest` interval are reported later, never lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event

from quorank.errors import first_line
from quorank.search.sources.source import Source

SETTLED, LOOK = 500, 1000
"""Milliseconds without a change after which changes are reported, and between two checks for folders that appeared."""
WITHOUT_WATCHES = 600.0  # interval between two scans of a source that cannot be watched, seconds


def watch_sources(
    sources: Sequence[Source], stop: Event, *, say: Callable[[str], object] = lambda sentence: None
) -> Iterator[list[int]]:
    """Yield the positions of changed sources until `stop` is set; `say` is called when something cannot be watched."""
    paths = [source.watch_paths() for source in sources]
    places = {path: {number for number, own in enumerate(paths) if path in own} for own in paths for path in own}
    reported, waiting, unwatched = [-1e9] * len(sources), set[int](), False
    before, restarted = {path: _identity(path) for path in places}, False
    while not stop.is_set():
        present = [path for path, identity in before.items() if identity is not None]
        for found in _notifications(present, stop, say):
            if restarted:  # nothing was watched for a moment
                waiting |= {number for path in present for number in places[path]}
                restarted = False
            now, moment = {path: _identity(path) for path in places}, time.monotonic()
            waiting |= {number for path in places if now[path] != before[path] for number in places[path]}
            for changed in map(Path, found or ()):
                over = {n for path in (changed, *changed.parents) for n in places.get(path, ())}
                waiting |= {number for number in over if sources[number].concerns(changed)}
            unwatched = unwatched or found is None
            if unwatched:
                waiting |= {number for number, at in enumerate(reported) if moment - at >= WITHOUT_WATCHES}
            due = sorted(number for number in waiting if moment - reported[number] >= sources[number].rest)
            for number in due:
                reported[number] = moment
            waiting -= set(due)
            if due:
                yield due
            if stop.is_set():
                return
            if now != before:
                before, restarted = now, True
                break  # watch new folders from now on


def _notifications(present: Sequence[Path], stop: Event, say: Callable[[str], object]) -> Iterator[set[str] | None]:
    """Yield sets of changed paths, empty ones after each `LOOK` without changes, and None where nothing is watched."""
    from watchfiles import watch

    try:
        if present:
            for changes in watch(
                *present,
                watch_filter=None,
                debounce=SETTLED * 10,
                step=SETTLED,
                rust_timeout=LOOK,
                yield_on_timeout=True,
                stop_event=stop,
                ignore_permission_denied=True,
            ):
                yield {path for _, path in changes}
            return
    except FileNotFoundError:  # a folder vanished just now
        yield set()
    except (OSError, RuntimeError) as error:  # no watches left, or a file system without
        every = f"scanning every {WITHOUT_WATCHES:g} s instead"
        say(f"changes are not reported by the system ({first_line(error)}); {every}")
        yield None
    while not stop.wait(LOOK / 1000):
        yield set()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file or folder; None for one that does not exist."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino

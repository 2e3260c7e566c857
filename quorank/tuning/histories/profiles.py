"""A browser's history from a file or a profile's folder, whichever browser it is."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from quorank.errors import BadInput
from quorank.tuning.histories.browser import History
from quorank.tuning.histories.chromium import from_chromium
from quorank.tuning.histories.firefox import from_places
from quorank.tuning.histories.sqlite_copy import open_copy, rows

WHAT = "places.sqlite of a Firefox profile or History of a Chromium profile"
FILES = ("places.sqlite", "History")


def read_history(path: Path) -> tuple[str, History]:
    """("firefox" or "chromium", the history); a folder is searched for the file of either."""
    if path.is_dir():
        found = [path / name for name in FILES if (path / name).is_file()]
        if not found:
            raise BadInput(f"{path}: there is no {' and no '.join(FILES)} in this folder; expected {WHAT}")
        path = found[0]
    with closing(open_copy(path, WHAT)) as connection:
        tables = {str(row[0]) for row in rows(connection, path, "SELECT name FROM sqlite_master")}
        if "moz_places" in tables:
            return "firefox", from_places(connection, path)
        if "urls" in tables:
            return "chromium", from_chromium(connection, path)
    raise BadInput(f"{path}: this database holds no history of a browser; expected {WHAT}")

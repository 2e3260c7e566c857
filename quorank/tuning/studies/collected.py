"""The file of a study's searches: a CSV with a line per search, `client,arm,characters,rank`.

The arm is written down where the search took place and worked out again when the file is read: clients that are in
another arm than the study's name and shares give are a sign that the study was changed under way.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from quorank.errors import BadInput, require
from quorank.files import write_whole
from quorank.tuning.heuristics.url_bar import Typed
from quorank.tuning.studies.arms import Study

COLUMNS = ("client", "arm", "characters", "rank")
_MOST = 2**31 - 1


def write_collected(path: Path, arms: dict[str, Typed], name: str = "person-{}") -> None:
    """Write the searches of all arms; `name` makes an id of a client's number."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for arm, typed in arms.items():
        writer.writerows(
            (name.format(client), arm, characters, rank)
            for client, characters, rank in zip(
                typed.client.tolist(), typed.characters.tolist(), typed.rank.tolist(), strict=True
            )
        )
    write_whole(path, out.getvalue())


def read_collected(path: Path, study: Study) -> dict[str, Typed]:
    """The searches of each arm. Clients are checked against the study's assignment."""
    numbers: dict[str, int] = {}
    found: dict[str, tuple[list[int], list[int], list[int]]] = {arm: ([], [], []) for arm in study.arms}
    arm_of: dict[str, str] = {}
    for line, client, arm, characters, rank in _lines(path):
        if client not in arm_of:
            arm_of[client] = study.assign(client)
            numbers[client] = len(numbers)
        _check_arm(path, line, study, client, arm, arm_of[client])
        columns = found[arm_of[client]]
        columns[0].append(numbers[client])
        columns[1].append(_whole(path, line, "characters", characters))
        columns[2].append(_whole(path, line, "rank", rank))
    return {
        arm: Typed(np.array(a, np.int64), np.array(b, np.int32), np.array(c, np.int32))
        for arm, (a, b, c) in found.items()
    }


def read_pilot(path: Path) -> Typed:
    """All searches of a file as one sample, whatever the arms: a pilot. The column `arm` may be missing."""
    numbers: dict[str, int] = {}
    clients, characters, ranks = [], [], []
    for line, client, _, typed, rank in _lines(path):
        clients.append(numbers.setdefault(client, len(numbers)))
        characters.append(_whole(path, line, "characters", typed))
        ranks.append(_whole(path, line, "rank", rank))
    return Typed(np.array(clients, np.int64), np.array(characters, np.int32), np.array(ranks, np.int32))


def _lines(path: Path) -> Iterable[tuple[int, str, str | None, str, str]]:
    """(line number, client, arm, characters, rank) of every line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            for column in ("client", "characters", "rank"):
                require(
                    column in header,
                    f"{path}: there is no column {column!r} in the first line; expected {','.join(COLUMNS)}",
                )
            places = [header.index(column) if column in header else -1 for column in COLUMNS]
            for row in filter(None, reader):  # a blank line is no search
                require(
                    len(row) == len(header),
                    f"{path}: line {reader.line_num}: {len(row)} values under {len(header)} columns",
                )
                client, arm, characters, rank = (row[at] if at >= 0 else None for at in places)
                assert client is not None and characters is not None and rank is not None
                yield reader.line_num, client, arm, characters, rank
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; expected a CSV with the columns {','.join(COLUMNS)}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: not a CSV file ({error})") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None


def _check_arm(path: Path, line: int, study: Study, client: str, given: str | None, arm: str) -> None:
    require(
        given is None or given in study.arms,
        f"{path}: line {line}: there is no arm {given!r} in study {study.name}; its arms: {', '.join(study.arms)}",
    )
    require(
        given is None or given == arm,
        f"{path}: line {line}: client {client!r} is in arm {given!r}, but study {study.name} puts it into {arm!r}; "
        "a study whose arms or shares are changed needs a new name",
    )


def _whole(path: Path, line: int, column: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    require(
        0 <= number <= _MOST, f"{path}: line {line}: {column} must be a whole number from 0, got {text!r}"
    )
    return number

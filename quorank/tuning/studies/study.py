"""Studies: their arms, the assignment of clients to arms, and the file of collected searches.

Hartmann et al. 2019, §6.2. A client's arm follows from the study's name and the client's id alone, by a keyed hash: no
list is kept, a device can compute it without asking, and the arms of two studies are independent. The same hash decides
under the same name, so another arm or another share needs another name: else clients change sides during a study.

Collected searches are a CSV with a line per search, `client,arm,characters,rank`. The arm is computed again when the
file is read: a client in another arm than the study's name and shares give shows that the study was changed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.files import write_whole
from quorank.parts import read_fields, suggest
from quorank.tuning.studies.address_bar import TypedSearches

METRICS = ("characters", "rank")
"""Characters typed before a suggestion is selected, and its rank, counted from 0: §6.2."""

ARMS = {"treatment": 0.6, "control": 0.2, "control-no-decay": 0.2}
COLUMNS = ("client", "arm", "characters", "rank")
_MOST = 2**31 - 1


@dataclass(frozen=True)
class Study:
    """Arms, metrics, effect, α and power of a study. The defaults are the paper's."""

    name: str = "frecency"
    arms: Mapping[str, float] = field(default_factory=lambda: dict(ARMS))  # name → share of clients
    metrics: tuple[str, ...] = METRICS
    metric: str = "characters"  # the one that the study is planned for
    effect: float = 0.5  # the least fall of its mean that must not be missed
    alpha: float = 0.05  # α, of the whole study
    power: float = 0.9  # chance to find such an effect

    def __post_init__(self) -> None:
        for metric in (*self.metrics, self.metric):
            unknown = f"unknown metric {metric!r}{suggest(metric, METRICS)}; known: {', '.join(METRICS)}"
            require(metric in METRICS, "study.unknown-metric", unknown)
        total = math.fsum(self.arms.values())
        for holds, code, sentence in (
            (self.name, "no-name", "a study needs a name"),
            (len(self.arms) >= 2, "too-few-arms", f"a study needs at least two arms, got {list(self.arms)}"),
            (all(self.arms), "no-name", "an arm needs a name"),
            (abs(total - 1) < 1e-9, "wrong-shares", f"the shares of the arms must add up to 1, got {total:g}"),
            (self.metrics, "no-metric", f"a study needs a metric ({', '.join(METRICS)})"),
            (self.metric in self.metrics, "metric-not-collected",
             f"the study is planned for {self.metric!r}, which it does not collect"),
            (len(set(self.metrics)) == len(self.metrics), "metric-repeated", "a metric is named twice"),
        ):  # fmt: skip
            require(holds, f"study.{code}", sentence)
        for arm, share in self.arms.items():
            require_range(f"arms.{arm}", share, above=0, below=1)
        require_range("effect", self.effect, above=0)
        require_range("alpha", self.alpha, above=0, below=1)
        require_range("power", self.power, above=0, below=1)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """All pairs of arms, in the order of the file."""
        return tuple(combinations(self.arms, 2))

    @property
    def comparisons(self) -> int:
        """Every pair of arms in every metric: three arms and two metrics are the paper's six."""
        return len(self.pairs) * len(self.metrics)

    @property
    def corrected_alpha(self) -> float:
        """α/m, Bonferroni: what a single p-value must be below. The paper's is 0.05/6."""
        return self.alpha / self.comparisons

    def assign(self, client: str) -> str:
        """Return the arm of a client."""
        return self.assign_all([client])[0]

    def assign_all(self, clients: Iterable[str]) -> list[str]:
        """Return the arm of each client: the share of [0, 2^64) into which its keyed hash falls."""
        key = hashlib.blake2b(self.name.encode(), digest_size=32).digest()
        arms = list(self.arms)
        limits = [round(share * 2**64) for share in accumulate(self.arms.values())]
        limits[-1] = 2**64
        keyed, found = hashlib.blake2b(digest_size=8, key=key), []
        for client in clients:
            digest = keyed.copy()
            digest.update(client.encode())
            found.append(arms[bisect_right(limits, int.from_bytes(digest.digest(), "big"))])
        return found


def read_study(path: Path) -> tuple[Study, dict[str, Any]]:
    """Read the study of a TOML file, and its table [people], which only a simulation uses."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        missing = "no such file; expected a study, a TOML file with a name and [arms]"
        raise BadInput("file.missing", missing, str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput("study.not-toml", f"not TOML ({error})", str(path)) from None
    except OSError as error:
        raise BadInput("file.unreadable", f"cannot be read ({error.strerror})", str(path)) from None
    people = content.pop("people", {})
    require(isinstance(people, dict), "value.wrong-type", f"must be a table, got {people!r}", f"{path}: people")
    nameless = 'the study has no name; add a line such as name = "frecency-spring"'
    require("name" in content, "study.no-name", nameless, str(path))
    arms = content.pop("arms", dict(ARMS))
    fits = isinstance(arms, dict) and all(
        isinstance(share, int | float) and not isinstance(share, bool) for share in arms.values()
    )
    require(fits, "value.wrong-type", f"must be a table of names and shares, got {arms!r}", f"{path}: arms")
    study = read_fields(Study, content, str(path))  # type: ignore[type-var]
    try:
        return replace(study, arms={name: float(share) for name, share in arms.items()}), people
    except BadInput as error:
        raise error.at(str(path)) from None


def write_collected(path: Path, arms: dict[str, TypedSearches]) -> None:
    """Write the searches of all arms; client number n is `person-n`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for arm, typed in arms.items():
        writer.writerows(
            (f"person-{client}", arm, characters, rank)
            for client, characters, rank in zip(
                typed.client.tolist(), typed.characters.tolist(), typed.rank.tolist(), strict=True
            )
        )
    write_whole(path, out.getvalue())


class _Searches:
    """Columns of searches while a file is read; clients are numbered as they appear."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.clients: list[int] = []
        self.characters: list[int] = []
        self.ranks: list[int] = []

    def add(self, client: str, characters: int, rank: int) -> None:
        self.clients.append(self.numbers.setdefault(client, len(self.numbers)))
        self.characters.append(characters)
        self.ranks.append(rank)

    def arrays(self) -> TypedSearches:
        return TypedSearches(
            np.array(self.clients, np.int64), np.array(self.characters, np.int32), np.array(self.ranks, np.int32)
        )


def read_collected(path: Path, study: Study) -> dict[str, TypedSearches]:
    """Read the searches of each arm. Clients are checked against the study's assignment."""
    found = {arm: _Searches() for arm in study.arms}
    arm_of: dict[str, str] = {}
    for line, client, given, characters, rank in _lines(path):
        arm = arm_of.get(client) or arm_of.setdefault(client, study.assign(client))
        if given is not None and given != arm:
            where = f"{path}: line {line}"
            require(
                given in study.arms,
                "collected.unknown-arm",
                f"there is no arm {given!r} in study {study.name}; its arms: {', '.join(study.arms)}",
                where,
            )
            raise BadInput(
                "collected.wrong-arm",
                f"client {client!r} is in arm {given!r}, but study {study.name} puts it into {arm!r}; "
                "a study whose arms or shares are changed needs a new name",
                where,
            )
        found[arm].add(client, characters, rank)
    return {arm: searches.arrays() for arm, searches in found.items()}


def read_pilot(path: Path) -> TypedSearches:
    """Read all searches of a file as one sample, whatever the arms: a pilot. The column `arm` may be missing."""
    found = _Searches()
    for _, client, _, characters, rank in _lines(path):
        found.add(client, characters, rank)
    return found.arrays()


def _lines(path: Path) -> Iterable[tuple[int, str, str | None, int, int]]:
    """Yield (line number, client, arm, characters, rank) of every line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            for column in ("client", "characters", "rank"):
                require(
                    column in header,
                    "collected.missing-column",
                    f"there is no column {column!r} in the first line; expected {','.join(COLUMNS)}",
                    str(path),
                )
            client, characters, rank = (header.index(name) for name in ("client", "characters", "rank"))
            arm = header.index("arm") if "arm" in header else None
            for row in filter(None, reader):  # a blank line is no search
                line = reader.line_num
                require(
                    len(row) == len(header),
                    "collected.wrong-columns",
                    f"{len(row)} values under {len(header)} columns",
                    f"{path}: line {line}",
                )
                typed = _whole(path, line, "characters", row[characters])
                yield (
                    line,
                    row[client],
                    None if arm is None else row[arm],
                    typed,
                    _whole(path, line, "rank", row[rank]),
                )
    except FileNotFoundError:
        raise BadInput(
            "file.missing", f"no such file; expected a CSV with the columns {','.join(COLUMNS)}", str(path)
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput("collected.not-csv", f"not a CSV file ({error})", str(path)) from None
    except OSError as error:
        raise BadInput("file.unreadable", f"cannot be read ({error.strerror})", str(path)) from None


def _whole(path: Path, line: int, column: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    wrong = f"{column} must be a whole number from 0, got {text!r}"
    require(0 <= number <= _MOST, "collected.not-a-number", wrong, f"{path}: line {line}")
    return number

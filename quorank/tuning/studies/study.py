"""Studies: arms, assignment of clients to arms, and the file of collected searches.

Hartmann et al. 2019, §6.2. A client's arm follows from the study's name and the client's id by a keyed hash: no list
is stored, a device can compute it alone, and the arms of two studies are independent. Other arms or shares need
another name, because under the same name clients would change sides during a study.

Collected searches are a CSV with a line per search, `client,arm,characters,rank`. The arm is computed again when the
file is read: a client in another arm shows that the study was changed.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, combinations
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.data.logs.csv_table import named_records
from quorank.errors import BadInput, brief, require
from quorank.files.codec import Length, Range, decode
from quorank.files.documents import read_toml
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.parts import Numbers

Metric = Literal["characters", "rank"]
METRICS: tuple[Metric, ...] = ("characters", "rank")  # typed before a suggestion is selected; its rank, from 0 (§6.2)
LARGEST = {"characters": 12.0, "rank": 6.0}
KEY_BYTES = 32  # of an Ed25519 public key
_MOST = 2**31 - 1


class Arms(Numbers):
    """Shares of clients by arm, in order: a table, or a list of pairs where a reader may lose the order of a table."""

    @classmethod
    def decode_value(cls, value: object) -> Arms:
        """Decode the arms of a study's file or of a device's terms."""
        pairs = dict(decode(list[tuple[str, float]], value)) if isinstance(value, list) else value
        return cls(decode(dict[str, Annotated[float, Range(above=0.0, below=1.0)]], pairs))


ARMS = Arms({"treatment": 0.6, "control": 0.2, "control-no-decay": 0.2})


class TypedSearches(NamedTuple):
    """Searches with the client, the characters typed and the rank selected, one entry each."""

    client: Integers
    characters: Int32s
    rank: Int32s

    def metric(self, name: str) -> Doubles:
        """Return the values (searches,) of a metric."""
        return np.asarray(getattr(self, name), dtype=np.float64)

    def of_arm(self, arms: npt.NDArray[np.str_], arm: str) -> TypedSearches:
        """Return the searches of an arm; `arms` (searches,) names the arm of each."""
        return TypedSearches(*(column[arms == arm] for column in self))


@dataclass(frozen=True)
class Study:
    """Arms, metrics, effect, α and power of a study; the defaults are the paper's.

    Args:
        name: Name, which determines the assignment.
        arms: Share of clients by arm; the first is the treatment.
        metrics: Collected metrics.
        metric: Metric for which the study is planned.
        effect: Fall of its mean that must not be missed.
        alpha: α of the whole study.
        power: Probability to detect such an effect.
        epsilon: ε of a device's report by randomised response (`analysis`).
        largest: Upper bound on the mean of each metric in such a report.

    >>> Study("spring").comparisons
    6
    """

    name: Annotated[str, Length(1000, 1)]
    arms: Arms = ARMS
    metrics: Annotated[tuple[Metric, ...], Length(2, 1)] = METRICS
    metric: Metric = "characters"
    effect: Annotated[float, Range(above=0.0)] = 0.5
    alpha: Annotated[float, Range(above=0.0, below=1.0)] = 0.05
    power: Annotated[float, Range(above=0.0, below=1.0)] = 0.9
    epsilon: Annotated[float, Range(above=0.0)] | None = None
    largest: Mapping[str, Annotated[float, Range(above=0.0)]] = field(default_factory=lambda: dict(LARGEST))

    def __post_init__(self) -> None:
        total = math.fsum(self.arms.values())
        for holds, code, sentence in (
            (len(self.arms) >= 2, "too-few-arms", f"a study needs at least two arms, got {list(self.arms)}"),
            (all(self.arms), "no-name", "an arm needs a name"),
            (abs(total - 1) < 1e-9, "wrong-shares", f"the shares of the arms must add up to 1, got {total:g}"),
            (self.metric in self.metrics, "metric-not-collected",
             f"the study is planned for {self.metric!r}, which it does not collect"),
            (len(set(self.metrics)) == len(self.metrics), "metric-repeated", "a metric is named twice"),
            (set(self.metrics) <= set(self.largest), "no-largest",
             f"expected a largest value of {' and of '.join(self.metrics)}"),
        ):  # fmt: skip
            require(holds, f"study.{code}", sentence)

    @property
    def compared(self) -> list[tuple[str, str, str]]:
        """(metric, arm, baseline) of every comparison, in the order of the file."""
        return [(metric, *pair) for metric in self.metrics for pair in combinations(self.arms, 2)]

    @property
    def comparisons(self) -> int:
        """Number of pairs of arms times metrics: the paper's six for three arms and two metrics."""
        return len(self.compared)

    @property
    def corrected_alpha(self) -> float:
        """Bonferroni's α/m, the level of a single comparison; the paper's is 0.05/6."""
        return self.alpha / self.comparisons

    def assign(self, client: str) -> str:
        """Return the arm of a client."""
        return self.assign_all([client])[0]

    def arm_of(self, key: bytes) -> str:
        """Return the arm of a device by its public key.

        Device and service compute it independently; a device can change its arm only with another key.
        """
        require(len(key) == KEY_BYTES, "study.no-identity", f"an identity has {KEY_BYTES} bytes, got {len(key)}")
        return self.assign(key.hex())

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


def read_study(path: Path) -> Study:
    """Read the study of a TOML file; its `largest` may name single metrics."""
    advice = "; expected a study, a TOML file with a name and [arms]"
    tables = read_toml(path, code="study.not-toml", advice=advice)
    if isinstance(tables.get("largest"), dict):
        tables["largest"] = LARGEST | tables["largest"]
    try:
        return decode(Study, tables)
    except BadInput as error:
        raise error.at(str(path)) from None


def read_collected(path: Path, study: Study) -> dict[str, TypedSearches]:
    """Read the searches of each arm. Clients are checked against the study's assignment."""
    typed, arms = _read_searches(path, study)
    arm_of = np.array(arms, dtype=np.str_)[typed.client]
    return {arm: typed.of_arm(arm_of, arm) for arm in study.arms}


def read_pilot(path: Path) -> TypedSearches:
    """Read all searches of a file as one sample, a pilot; the column `arm` is ignored and may be missing."""
    return _read_searches(path, None)[0]


def _read_searches(path: Path, study: Study | None) -> tuple[TypedSearches, list[str]]:
    """Read all searches, clients numbered as they appear, and the arm of each client under the study."""
    numbers: dict[str, int] = {}
    arms: list[str] = []
    searches: list[tuple[int, int, int]] = []
    expected = "expected a CSV with the columns client,arm,characters,rank"
    for where, row in named_records(path, ("client", *METRICS), expected):
        client, arm = row["client"], row.get("arm")
        number = numbers.setdefault(client, len(numbers))
        if study is not None:
            if number == len(arms):
                arms.append(study.assign(client))
            unknown = f"there is no arm {brief(arm or '')} in study {study.name}; its arms: {', '.join(study.arms)}"
            require(arm is None or arm in study.arms, "collected.unknown-arm", unknown, where)
            wrong = f"client {brief(client)} is in arm {arm!r}, but study {study.name} puts it into {arms[number]!r}"
            advice = "a study whose arms or shares are changed needs a new name"
            require(arm in (None, arms[number]), "collected.wrong-arm", f"{wrong}; {advice}", where)
        for name in METRICS:
            whole = row[name].isdecimal() and len(row[name]) <= 10 and int(row[name]) <= _MOST
            sentence = f"{name} must be an integer from 0, got {brief(row[name])}"
            require(whole, "collected.not-a-number", sentence, where)
        searches.append((number, int(row["characters"]), int(row["rank"])))
    columns = np.array(searches, np.int64).reshape(-1, 3).T
    return TypedSearches(columns[0], columns[1].astype(np.int32), columns[2].astype(np.int32)), arms

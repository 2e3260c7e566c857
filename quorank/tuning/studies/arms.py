"""A study: its arms, and who belongs to which (Hartmann et al. 2019, §6.2).

A client's arm follows from the study's name and the client's id alone, by a keyed hash: no list is kept, a device can
work it out without asking, and the arms of two studies have nothing to do with each other. The same hash decides under
the same name, so another arm or another share needs another name: else clients change sides in the middle of a study.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, require
from quorank.parts import read_fields, suggest

METRICS = ("characters", "rank")
"""Characters typed before a suggestion is selected, and its rank, counted from 0: §6.2."""

ARMS = {"treatment": 0.6, "control": 0.2, "control-no-decay": 0.2}


@dataclass(frozen=True)
class Study:
    """What is compared, and how sure the answer shall be. The defaults are the paper's."""

    name: str = "frecency"
    arms: Mapping[str, float] = field(default_factory=lambda: dict(ARMS))  # name → share of clients
    metrics: tuple[str, ...] = METRICS
    metric: str = "characters"  # the one that the study is planned for
    effect: float = 0.5  # the least fall of its mean that must not be missed
    alpha: float = 0.05  # α, of the whole study
    power: float = 0.9  # chance to find such an effect

    def __post_init__(self) -> None:
        require(self.name, "a study needs a name")
        require(len(self.arms) >= 2, f"a study needs at least two arms, got {list(self.arms)}")
        for arm, share in self.arms.items():
            require(arm and 0 < share < 1, f"arm {arm!r}: its share must lie between 0 and 1, got {share}")
        total = math.fsum(self.arms.values())
        require(abs(total - 1) < 1e-9, f"the shares of the arms must add up to 1, got {total:g}")
        require(self.metrics, f"a study needs a metric ({', '.join(METRICS)})")
        for metric in (*self.metrics, self.metric):
            if metric not in METRICS:
                raise BadInput(
                    f"unknown metric {metric!r}{suggest(metric, METRICS)}; known: {', '.join(METRICS)}"
                )
        require(
            self.metric in self.metrics,
            f"the study is planned for {self.metric!r}, which it does not collect",
        )
        require(len(set(self.metrics)) == len(self.metrics), "a metric is named twice")
        require(0 < self.effect < math.inf, f"effect must be above 0, got {self.effect}")
        require(0 < self.alpha < 1, f"alpha must lie between 0 and 1, got {self.alpha}")
        require(0 < self.power < 1, f"power must lie between 0 and 1, got {self.power}")

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
        """The arm of a client."""
        return self.assign_all([client])[0]

    def assign_all(self, clients: Iterable[str]) -> list[str]:
        """The arm of each client: the share of [0, 2^64) into which its keyed hash falls."""
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
    """The study of a TOML file, and the table [people] of it, which only a simulation reads."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(
            f"{path}: no such file; expected a study, a TOML file with a name and [arms]"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML ({error})") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    people = content.pop("people", {})
    require(isinstance(people, dict), f"{path}: people must be a table, got {people!r}")
    require("name" in content, f'{path}: the study has no name; add a line such as name = "frecency-spring"')
    arms = content.pop("arms", dict(ARMS))
    fits = isinstance(arms, dict) and all(
        isinstance(share, int | float) and not isinstance(share, bool) for share in arms.values()
    )
    require(fits, f"{path}: arms must be a table of names and shares, got {arms!r}")
    plain = read_fields(_Fields, content, str(path))  # type: ignore[type-var]
    try:
        fields = {name: value for name, value in vars(plain).items() if value is not None}
        return Study(arms={name: float(share) for name, share in arms.items()}, **fields), people
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


@dataclass(frozen=True)
class _Fields:
    """The keys of a study's file beside its arms, not yet checked against each other."""

    name: str | None = None
    metrics: tuple[str, ...] | None = None
    metric: str | None = None
    effect: float | None = None
    alpha: float | None = None
    power: float | None = None

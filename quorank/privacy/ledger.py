"""Ledger of a run: every release, and the privacy loss of all of them together.

Rounds with the same sensitivity and noise are one entry. Every ε stands with its unit, δ and horizon. Rebuildings without
leavers are entries of their own, finished or not, and `altogether` states the loss of run and rebuildings at the run's δ
(`composition`). Where ε is amplified by secret cohorts, the number of clients in a round is withheld, since it would tell
who was in it: an entry then holds the planned number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeVar, get_type_hints

import numpy as np

from quorank.errors import BadInput, require
from quorank.files.codec import Range
from quorank.files.documents import read_json
from quorank.kernels.arrays import Doubles
from quorank.privacy.accounting import Setting
from quorank.privacy.composition import NOTHING_COUNTS, Loss, compose, total_loss
from quorank.privacy.mechanisms import PRIVACIES
from quorank.privacy.mechanisms.mechanism import Mechanism, Privacy

T = TypeVar("T")

FORMAT = 1
MOST_ROUNDS = 10_000_000  # largest number of rounds in a ledger

Count = Annotated[int, Range(0, 2**53)]
Positive = Annotated[int, Range(1, 2**53)]
RoundCount = Annotated[int, Range(0, MOST_ROUNDS)]
RoundNumber = Annotated[int, Range(1, MOST_ROUNDS)]
Amount = Annotated[float, Range(0.0, 1e300)]


class PartTable(TypedDict):
    """Table of a privacy part, which `PRIVACIES` reads."""

    kind: str


class SettingTable(TypedDict):
    """Fields of `Setting`; `rounds` are those done."""

    clients: Positive
    cohort: Positive
    participation: Literal["full", "sampled", "poisson", "arrivals"]
    rounds: RoundCount
    planned_rounds: RoundNumber
    interactions: Positive
    parameters: Positive
    values: Positive
    most_rounds: NotRequired[RoundCount]  # limits of one client
    rest: NotRequired[RoundCount]


class ReleaseEntry(TypedDict):
    """Consecutive rounds with the same sensitivity and noise."""

    first_round: RoundNumber
    last_round: RoundNumber
    releases: Count | None  # of clients; None if withheld
    participants: dict[Literal["least", "most", "planned"], Count]  # cohorts; the planned one where sizes are withheld
    sensitivity: Amount | None
    noise: Amount
    noise_multiplier: Amount | None


class Statement(TypedDict):
    """ε with its unit, δ and horizon, and the neighbouring relation, where there is one."""

    kind: str
    unit: str
    horizon: str
    rounds: Annotated[int, Range(0, 1000 * MOST_ROUNDS)]
    epsilon: Amount | None
    delta: Annotated[float, Range(0.0, 1.0)]
    neighbouring: NotRequired[str]


class Entry(TypedDict):
    """Setting, releases and loss of the run, of a rebuilding without clients, or of the ranges of features."""

    setting: SettingTable
    releases: list[ReleaseEntry]
    privacy: Statement | None
    mechanism: NotRequired[PartTable]  # where it differs from the run's
    without: NotRequired[list[Count]]


class SpentPoint(TypedDict):
    """ε spent after a number of rounds."""

    round: RoundCount
    epsilon: Amount


class LedgerContent(Entry):
    """Content of `ledger.json`."""

    format: Literal[1]
    mechanism: PartTable  # type: ignore[misc]
    spent: NotRequired[list[SpentPoint]]
    withheld: NotRequired[str]
    unlearning: NotRequired[list[Entry]]
    normalisation: NotRequired[Entry]  # release of the ranges of features before the first round
    reports: NotRequired[Statement | None]
    altogether: NotRequired[Statement | None]


SETTING_KEYS = tuple(get_type_hints(SettingTable))

WITHHELD = "the number of clients in a round: its ε counts on nobody knowing who was in it; planned is the mean"


def ledger(
    part: Mapping[str, Any],
    mechanism: Mechanism,
    setting: Setting,
    participants: Doubles,
    sensitivity: Doubles,
    noise: Doubles,
    *,
    withhold: bool | None = None,
    curve: bool = True,
) -> dict[str, Any]:
    """Return the ledger of a run.

    Args:
        part: Table of the privacy part.
        mechanism: Calibrated mechanism of the run.
        setting: Planned setting.
        participants: Clients of each round, (rounds,).
        sensitivity: Sensitivity of each round's sum, (rounds,); NaN where unbounded.
        noise: Standard deviation of the noise on it, (rounds,).
        withhold: Hide the numbers of clients; by default where ε relies on secret cohorts of varying size.
        curve: Include ε by rounds.
    """
    done = len(participants)
    plan = setting.table() | {"rounds": done, "planned_rounds": setting.rounds}
    if withhold is None:
        withhold = setting.participation == "poisson" and _read_part(part).assumes_secret_cohorts
    found = {
        "format": FORMAT,
        "mechanism": dict(part),
        "setting": {key: plan[key] for key in SETTING_KEYS if key in plan},
        "releases": release_entries(participants, sensitivity, noise, setting.cohort if withhold else None),
        "privacy": mechanism.statement(done),
        "spent": [{"round": t, "epsilon": e} for t, e in mechanism.spent() if t <= done] if curve else [],
    }
    return found | ({"withheld": WITHHELD} if withhold else {})


def release_entries(
    participants: Doubles, sensitivity: Doubles, noise: Doubles, planned: int | None = None
) -> list[dict[str, Any]]:
    """Return one entry per sequence of rounds with the same sensitivity and noise, from arrays (rounds,).

    With `planned`, the mean size of a cohort, the entries hold that instead of the actual sizes.
    """
    if len(participants) == 0:
        return []
    found: list[dict[str, Any]] = []
    both = np.nan_to_num(np.stack((sensitivity, noise)), nan=-1.0)
    starts = [0, *(1 + np.flatnonzero((both[:, 1:] != both[:, :-1]).any(axis=0))).tolist()]
    for start, stop in zip(starts, [*starts[1:], len(participants)], strict=True):
        there = participants[start:stop]
        length, deviation = float(sensitivity[start]), float(noise[start])
        many: int | None = int(there.sum()) if length != 0.0 else 0
        sizes = {"least": int(there.min()), "most": int(there.max())}
        found.append(
            {
                "first_round": start + 1,
                "last_round": stop,
                "releases": many if planned is None else None,
                "participants": sizes if planned is None else {"planned": planned},
                "sensitivity": length if math.isfinite(length) else None,
                "noise": deviation,
                "noise_multiplier": deviation / length if deviation > 0.0 and length > 0.0 else None,
            }
        )
    return found


def read_ledger(run: Path) -> dict[str, Any]:
    """Read and check the ledger of a run's directory, or the file itself."""
    path = run / "ledger.json" if run.is_dir() else run
    sentence = "no ledger here; expected the directory of a finished run, with ledger.json"
    require(path.is_file(), "file.missing", sentence, f"{run}")
    content: dict[str, Any] = read_json(path, LedgerContent)
    more = "unlearning" in content or "normalisation" in content
    complete = ("altogether" in content) == more and ("reports" not in content or "unlearning" in content)
    sentence = "damaged: it has further entries or the loss of all together, but not both"
    require(complete, "file.damaged", sentence, f"{path}")
    return content


def recount(content: Mapping[str, Any]) -> float | None:
    """Compute ε of an entry's rounds again from mechanism and setting; None where no ε is stated.

    Raises:
        BadInput: `ledger.too-little-noise` for a release with less noise than the mechanism asks for.
    """
    if (content["privacy"] or {}).get("epsilon") is None:
        return None
    mechanism = _mechanism_of(content["mechanism"], content)
    _check_releases(content, mechanism.least_multiplier * (1.0 - 1e-9))
    again = _compute(lambda: mechanism.statement(content["setting"]["rounds"])) or {}
    return None if again.get("epsilon") is None else float(again["epsilon"])


def check_together(content: Mapping[str, Any]) -> None:
    """Recompute the further entries and the loss of all together; refuse other numbers."""
    if "altogether" not in content:
        return
    part, entries, stated = content["mechanism"], content.get("unlearning", []), content["altogether"]
    same = all(
        _equal(recount({"mechanism": part, **entry}), (entry["privacy"] or {}).get("epsilon"))
        for entry in (*ranges_of(content), *entries)
    )
    found = combined_privacy(part, [content, *entries], reports_loss(content))
    if found is None or stated is None:
        same = same and found == stated
    else:
        same = same and _equal(found["epsilon"], stated["epsilon"])
        same = same and (found["rounds"], found["delta"]) == (stated["rounds"], stated["delta"])
    sentence = "the ledger does not add up: its further entries were changed"
    require(same, "ledger.inconsistent", sentence)


def _equal(one: float | None, other: float | None) -> bool:
    return one == other or (one is not None and other is not None and abs(one - other) <= 1e-6 * max(one, 1.0))


def _read_part(part: Mapping[str, Any]) -> Privacy:
    return PRIVACIES.read(part, "ledger.json: mechanism", imports=False)


def _mechanism_of(part: Mapping[str, Any], entry: Mapping[str, Any]) -> Mechanism:
    plan = {key: value for key, value in entry["setting"].items() if key in SETTING_KEYS}
    plan["rounds"] = plan.pop("planned_rounds")
    return _compute(lambda: _read_part(part).mechanism(Setting(**plan), 0))


def _compute(compute: Callable[[], T]) -> T:
    """Compute from numbers of a file; refuse numbers that nothing can be computed from."""
    try:
        return compute()
    except (ArithmeticError, ValueError, MemoryError, AssertionError):
        sentence = "the ledger does not add up: nothing can be computed from its mechanism and setting"
        raise BadInput("ledger.inconsistent", sentence) from None


def _check_releases(content: Mapping[str, Any], asked: float) -> None:
    """Check that the entries cover all rounds in order, none with less noise than planned."""
    expected, failed = 1, "the ledger does not add up"
    for entry in content["releases"]:
        first, last = entry["first_round"], entry["last_round"]
        sentence = f"{failed}: expected an entry from round {expected} on, got {first} to {last}"
        require(first == expected and last >= first, "ledger.inconsistent", sentence)
        expected = last + 1
        if entry["sensitivity"] == 0.0 and entry["releases"] == 0:
            continue  # a secure sum that failed: nothing was released
        given = entry["noise"] / entry["sensitivity"] if entry["sensitivity"] else 0.0
        sentence = f"rounds {first} to {last} had noise of {given:.4g} clips, the budget asks for {asked:.4g}: {failed}"
        require(given >= asked, "ledger.too-little-noise", sentence)
    stated = content["setting"]["rounds"]
    sentence = f"{failed}: it has entries of {expected - 1} rounds and states {stated}"
    require(expected - 1 == stated, "ledger.inconsistent", sentence)


def loss_of(content: Mapping[str, Any]) -> Loss | None:
    """Return the loss of a run and its rebuildings; None if one of them states no ε."""
    entries = (content, *ranges_of(content), *content.get("unlearning", ()))
    return _total(content["mechanism"], entries, reports_loss(content))


def ranges_of(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the entry of the ranges of features, in a list of at most one."""
    return [content["normalisation"]] if "normalisation" in content else []


def reports_loss(content: Mapping[str, Any]) -> Loss:
    """Return the loss of the metrics that devices reported."""
    return Loss(pure=(content.get("reports") or {}).get("epsilon") or 0.0)


def _total(part: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], reports: Loss) -> Loss | None:
    losses = [reports]
    for entry in entries:
        if (entry["privacy"] or {}).get("epsilon") is None:
            return None
        mechanism, rounds = _mechanism_of(entry.get("mechanism", part), entry), entry["setting"]["rounds"]
        loss = _compute(lambda mechanism=mechanism, rounds=rounds: mechanism.loss(rounds))  # type: ignore[misc]
        if loss is None:
            return None
        losses.append(loss)
    return total_loss(losses)


def combined_privacy(
    part: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], reports: Loss | None = None
) -> dict[str, Any] | None:
    """Return the statement of a run (the first entry) and its rebuildings together; None where nothing is protected.

    Args:
        part: Table of the run's privacy part.
        entries: Ledger entries with `setting` and `privacy`; the first may have a `normalisation`.
        reports: Loss of the metrics that devices reported.
    """
    statements = [entry["privacy"] for entry in entries]
    run, *rebuildings = statements
    if any(statement is None for statement in statements):
        return None
    rounds = [int(statement["rounds"]) for statement in rebuildings]
    many = "rebuildings" if len(rounds) > 1 else "the rebuilding"
    again = f", and {many} of {', '.join(map(str, rounds))} round{'s' if rounds != [1] else ''} without those who left"
    beside = ", and what devices reported" if reports is not None else ""
    before = ", and one release for the ranges of features before it" if ranges_of(entries[0]) else ""
    found = {
        **run,
        "rounds": sum(int(statement["rounds"]) for statement in statements),
        "horizon": f"{run['horizon']}{before}{again if rounds else ''}{beside}",
        "run_alone": {key: run[key] for key in ("epsilon", "delta", "horizon", "unit") if key in run},
    }
    loss = _total(part, [*entries, *ranges_of(entries[0])], reports or Loss())
    if loss is None:
        return found | {"epsilon": None}
    together = _compute(lambda: compose(loss, run["delta"]))
    return found | {"epsilon": together.epsilon, "delta": together.delta, "added_up": together.method}


def compose_runs(contents: Sequence[Mapping[str, Any]], delta: float | None = None) -> dict[str, Any]:
    """Return the statement of several runs of the same clients at one δ, by default their largest."""
    losses = [loss_of(content) for content in contents]
    statements = [content.get("altogether") or content["privacy"] or {} for content in contents]
    relations = {stated.get("neighbouring", NOTHING_COUNTS) for stated in statements}
    chosen = max(stated.get("delta", 0.0) for stated in statements) if delta is None else delta
    rounds = sum(content["setting"]["rounds"] for content in contents)
    found: dict[str, Any] = {
        "epsilon": None,
        "delta": chosen,
        "unit": "client",
        "neighbouring": relations.pop() if len(relations) == 1 else NOTHING_COUNTS,
        "horizon": f"all {len(contents)} runs, {rounds:,} rounds in all, for a client that is in each of them",
        "rounds": rounds,
        "method": "a run without a stated ε cannot be added up",
    }
    known = [loss for loss in losses if loss is not None]
    if len(known) < len(losses):
        return found
    together = _compute(lambda: compose(total_loss(known), chosen))
    return found | {"epsilon": together.epsilon, "method": together.method}

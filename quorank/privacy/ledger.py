"""Ledger of a run: every release, and what all of them together give away.

Rounds with the same sensitivity and noise are one entry. An ε stands nowhere without its unit, δ and horizon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.documents import read_json
from quorank.errors import require
from quorank.privacy.mechanisms import PRIVACIES
from quorank.privacy.mechanisms.mechanism import Mechanism
from quorank.privacy.setting import Setting

FORMAT = 1
_SETTING = "clients", "cohort", "participation", "rounds", "planned_rounds", "interactions", "parameters", "values"
"""What a ledger holds of the setting: `rounds` are those done."""


def ledger(
    part: Mapping[str, Any],
    mechanism: Mechanism,
    setting: Setting,
    participants: Doubles,
    sensitivity: Doubles,
    noise: Doubles,
) -> dict[str, Any]:
    """Return the ledger of a run whose round t had participants[t] clients, with sensitivity[t] and noise[t].

    All three have the shape (rounds,).
    """
    done = len(participants)
    plan = asdict(setting) | {"rounds": done, "planned_rounds": setting.rounds}
    return {
        "format": FORMAT,
        "mechanism": dict(part),
        "setting": {key: plan[key] for key in _SETTING},
        "releases": release_entries(participants, sensitivity, noise),
        "privacy": mechanism.statement(done),
        "spent": [{"round": t, "epsilon": e} for t, e in mechanism.spent() if t <= done],
    }


def release_entries(participants: Doubles, sensitivity: Doubles, noise: Doubles) -> list[dict[str, Any]]:
    """Return one entry for each run of consecutive rounds with the same sensitivity and noise, from arrays (rounds,)."""
    found: list[dict[str, Any]] = []
    if len(participants) == 0:
        return found
    starts = [0]
    for t in range(1, len(participants)):
        before, now = (sensitivity[t - 1], noise[t - 1]), (sensitivity[t], noise[t])
        if not np.array_equal(before, now, equal_nan=True):
            starts.append(t)
    for start, stop in zip(starts, [*starts[1:], len(participants)], strict=True):
        there = participants[start:stop]
        length, deviation = float(sensitivity[start]), float(noise[start])
        found.append(
            {
                "first_round": start + 1,
                "last_round": stop,
                "releases": int(there.sum()) if length != 0.0 else 0,
                "participants": {"least": int(there.min()), "most": int(there.max())},
                "sensitivity": length if math.isfinite(length) else None,
                "noise": deviation,
                "noise_multiplier": deviation / length if deviation > 0.0 and length > 0.0 else None,
            }
        )
    return found


def read_ledger(run: Path) -> dict[str, Any]:
    """Read the ledger of a run's directory, or the file itself, and check its shape."""
    path = run / "ledger.json" if run.is_dir() else run
    sentence = "no ledger here; expected the directory of a finished run, with ledger.json"
    require(path.is_file(), "file.missing", sentence, f"{run}")
    content = read_json(path)
    fault = _fault_in(content)
    require(not fault, "file.damaged", fault, f"{path}")
    return content  # type: ignore[no-any-return]


def _fault_in(content: Any) -> str:
    """What is wrong with the shape of a ledger's content; nothing where it can be read."""
    if not isinstance(content, dict):
        return "damaged: expected a JSON object"
    for key, kind in (("mechanism", dict), ("setting", dict), ("releases", list), ("privacy", dict | None)):
        if key not in content:
            return f"damaged, or of an older version: {key!r} is missing"
        if not isinstance(content[key], kind):
            return f"damaged: {key!r} is not what a ledger holds"
    numbers = [key for key in _SETTING if key != "participation"]
    if not all(isinstance(content["setting"].get(key), int) for key in numbers):
        return f"damaged: the setting lacks one of {', '.join(numbers)}"
    fields = ("first_round", "last_round", "releases", "noise")
    for entry in content["releases"]:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), int | float) for key in fields):
            return f"damaged: a release lacks one of {', '.join(fields)}"
        if not isinstance(entry.get("sensitivity"), int | float | None):
            return "damaged: the sensitivity of a release is not a number"
    if not isinstance((content["privacy"] or {}).get("epsilon"), int | float | None):
        return "damaged: ε is not a number"
    return ""


def recount(content: Mapping[str, Any]) -> float | None:
    """Compute ε of a ledger's rounds again from its mechanism and setting; None where no ε is stated.

    A release with less noise than the mechanism asks for is refused: then the ε would not be true.
    """
    statement, plan = content["privacy"], content["setting"]
    if not isinstance(statement, Mapping) or statement.get("epsilon") is None:
        return None
    setting = Setting(
        **{key: plan[key] for key in _SETTING if key != "planned_rounds"} | {"rounds": plan["planned_rounds"]}
    )
    mechanism = PRIVACIES.read(content["mechanism"], "ledger.json: mechanism").mechanism(setting, 0)
    _check_releases(content, mechanism.least_multiplier)
    again = mechanism.statement(plan["rounds"])
    return None if again is None else float(again["epsilon"])


def _check_releases(content: Mapping[str, Any], asked: float) -> None:
    """The entries must be of all rounds, one behind the other, and none may have less noise than was planned."""
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
        require(given >= asked * (1.0 - 1e-9), "ledger.too-little-noise", sentence)
    stated = content["setting"]["rounds"]
    sentence = f"{failed}: it has entries of {expected - 1} rounds and states {stated}"
    require(expected - 1 == stated, "ledger.inconsistent", sentence)

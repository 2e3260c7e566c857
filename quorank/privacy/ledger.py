"""The ledger: every release of a run, and what all of them together give away.

Rounds with the same sensitivity and noise are one entry. An ε stands nowhere without its unit, δ and horizon.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import BadInput
from quorank.privacy.mechanisms.mechanism import Mechanism
from quorank.privacy.mechanisms.setting import Setting

FORMAT = 1


def ledger(
    part: Mapping[str, Any],
    mechanism: Mechanism,
    setting: Setting,
    participants: Doubles,
    sensitivity: Doubles,
    noise: Doubles,
) -> dict[str, Any]:
    """The ledger of a run whose round t had participants[t] clients, and so on."""
    done = len(participants)
    statement = mechanism.statement(done)
    return {
        "format": FORMAT,
        "mechanism": dict(part),
        "setting": {
            "clients": setting.clients,
            "cohort": setting.cohort,
            "participation": setting.participation,
            "rounds": done,
            "planned_rounds": setting.rounds,
            "interactions": setting.interactions,
            "parameters": setting.parameters,
            "values": setting.values,
        },
        "releases": entries(participants, sensitivity, noise),
        "privacy": statement,
        "spent": [{"round": t, "epsilon": e} for t, e in mechanism.spent() if t <= done],
    }


def entries(participants: Doubles, sensitivity: Doubles, noise: Doubles) -> list[dict[str, Any]]:
    """Consecutive rounds with the same sensitivity and noise, as one entry each."""
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
    """The ledger of a run's directory."""
    path = run / "ledger.json" if run.is_dir() else run
    if not path.is_file():
        raise BadInput(f"{run}: no ledger here; expected the directory of a finished run, with ledger.json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: damaged: not JSON ({error})") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: damaged: expected a JSON object")
    for key, kind in (("mechanism", dict), ("setting", dict), ("releases", list), ("privacy", dict | None)):
        if key not in content:
            raise BadInput(f"{path}: damaged, or of an older version: {key!r} is missing")
        if not isinstance(content[key], kind):
            raise BadInput(f"{path}: damaged: {key!r} is not what a ledger holds")
    numbers = ("clients", "cohort", "rounds", "planned_rounds", "interactions", "parameters", "values")
    if not all(isinstance(content["setting"].get(key), int) for key in numbers):
        raise BadInput(f"{path}: damaged: the setting lacks one of {', '.join(numbers)}")
    fields = ("first_round", "last_round", "releases", "noise")
    for entry in content["releases"]:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), int | float) for key in fields):
            raise BadInput(f"{path}: damaged: a release lacks one of {', '.join(fields)}")
        if not isinstance(entry.get("sensitivity"), int | float | None):
            raise BadInput(f"{path}: damaged: the sensitivity of a release is not a number")
    epsilon = (content["privacy"] or {}).get("epsilon")
    if not isinstance(epsilon, int | float | None):
        raise BadInput(f"{path}: damaged: ε is not a number")
    return content


def recount(content: Mapping[str, Any]) -> float | None:
    """ε of a ledger's rounds, planned and counted again from its mechanism; None where no ε is stated.

    A release with less noise than the mechanism asks for is refused: then the ε would not be true.
    """
    from quorank.privacy import PRIVACIES

    statement, plan = content["privacy"], content["setting"]
    if not isinstance(statement, Mapping) or statement.get("epsilon") is None:
        return None
    setting = Setting(
        plan["clients"],
        plan["cohort"],
        plan["planned_rounds"],
        plan["participation"],
        plan["interactions"],
        plan["parameters"],
        plan["values"],
    )
    mechanism = PRIVACIES.read(content["mechanism"], "ledger.json: mechanism").mechanism(setting, 0)
    _check_releases(content, getattr(mechanism, "least_multiplier", 0.0))
    again = mechanism.statement(plan["rounds"])
    return None if again is None else float(again["epsilon"])


def _check_releases(content: Mapping[str, Any], asked: float) -> None:
    """The entries must be of all rounds, one behind the other, and none may have less noise than was planned."""
    expected = 1
    for entry in content["releases"]:
        first, last = entry["first_round"], entry["last_round"]
        if first != expected or last < first:
            raise BadInput(
                f"the ledger does not add up: expected an entry from round {expected} on, got {first} to {last}"
            )
        expected = last + 1
        if entry["sensitivity"] == 0.0 and entry["releases"] == 0:
            continue  # a secure sum that failed: nothing was released
        given = entry["noise"] / entry["sensitivity"] if entry["sensitivity"] else 0.0
        if given < asked * (1.0 - 1e-9):
            raise BadInput(
                f"rounds {first} to {last} had noise of {given:.4g} clips, and the budget asks for {asked:.4g}: "
                "the ledger does not add up"
            )
    if expected - 1 != content["setting"]["rounds"]:
        raise BadInput(
            f"the ledger does not add up: it has entries of {expected - 1} rounds and states "
            f"{content['setting']['rounds']}"
        )

"""Ledger of a run: every release, and what all of them together give away.

Rounds with the same sensitivity and noise are one entry. An ε stands nowhere without its unit, δ and horizon. Rebuildings
after leavers are entries of their own, finished or not, and `altogether` says what run and rebuildings give away together
at the run's δ (`composition`). Where ε is amplified by cohorts that nobody knows, the number of clients in a round would
tell who was in it, so it is withheld: an entry then holds the planned number, the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np

from quorank.errors import BadInput, require
from quorank.files.documents import read_json
from quorank.kernels.arrays import Doubles
from quorank.privacy.composition import NOTHING_COUNTS, Loss, compose, total_loss
from quorank.privacy.mechanisms import PRIVACIES
from quorank.privacy.mechanisms.mechanism import Mechanism, Privacy
from quorank.privacy.setting import Setting

T = TypeVar("T")

FORMAT = 1
MOST_ROUNDS = 10_000_000
LARGEST = 2**53
DEEPEST = 8
"""Rounds and other whole numbers above these, and deeper lists, stand in no ledger."""

_SETTING = "clients", "cohort", "participation", "rounds", "planned_rounds", "interactions", "parameters", "values"
"""What a ledger holds of the setting: `rounds` are those done."""

_LIMITS = "most_rounds", "rest"
"""What it holds where a round takes whoever comes: how often one client may. A limit that there is not is left out."""

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
    """Return the ledger of a run whose round t had participants[t] clients, with sensitivity[t] and noise[t].

    All three have the shape (rounds,). The numbers of clients are withheld where the setting leaves them to chance and
    the privacy counts on that, or as `withhold` says; without `curve` there is no ε by rounds.
    """
    done = len(participants)
    plan = setting.table() | {"rounds": done, "planned_rounds": setting.rounds}
    if withhold is None:
        withhold = setting.participation == "poisson" and assumes_secret_cohorts(_read_part(part), setting)
    planned = setting.cohort if withhold else None
    found = {
        "format": FORMAT,
        "mechanism": dict(part),
        "setting": {key: plan[key] for key in (*_SETTING, *_LIMITS) if key in plan},
        "releases": release_entries(participants, sensitivity, noise, planned),
        "privacy": mechanism.statement(done),
        "spent": [{"round": t, "epsilon": e} for t, e in mechanism.spent() if t <= done] if curve else [],
    }
    return found | ({"withheld": WITHHELD} if withhold else {})


def assumes_secret_cohorts(privacy: Privacy, setting: Setting) -> bool:
    """Return whether ε is smaller because nobody knows who was in a round: then nothing may be told of that."""
    return privacy.assumes_secret_cohorts and setting.draws_cohorts


def release_entries(
    participants: Doubles, sensitivity: Doubles, noise: Doubles, planned: int | None = None
) -> list[dict[str, Any]]:
    """Return one entry for each run of consecutive rounds with the same sensitivity and noise, from arrays (rounds,).

    With `planned`, the mean size of a cohort, the entries hold that instead of the sizes that cohorts had.
    """
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
        many: int | None = int(there.sum()) if length != 0.0 else 0
        sizes = {"least": int(there.min()), "most": int(there.max())}
        if planned is not None:
            many, sizes = None, {"planned": planned}
        found.append(
            {
                "first_round": start + 1,
                "last_round": stop,
                "releases": many,
                "participants": sizes,
                "sensitivity": length if math.isfinite(length) else None,
                "noise": deviation,
                "noise_multiplier": deviation / length if deviation > 0.0 and length > 0.0 else None,
            }
        )
    return found


# ---------------------------------------------------------------- reading


def read_ledger(run: Path) -> dict[str, Any]:
    """Read the ledger of a run's directory, or the file itself, and check its shape."""
    path = run / "ledger.json" if run.is_dir() else run
    sentence = "no ledger here; expected the directory of a finished run, with ledger.json"
    require(path.is_file(), "file.missing", sentence, f"{run}")
    content = read_json(path)
    fault = _fault_in(content)
    require(not fault, "file.damaged", fault, f"{path}")
    return content  # type: ignore[no-any-return]


Check = Callable[[Any], bool]


def _whole(least: int, most: int = LARGEST) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0.0 <= value <= 1e300


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _sizes(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    keys = {"planned"} if "planned" in value else {"least", "most"}
    return set(value) == keys and all(_whole(0)(size) for size in value.values())


_PARTICIPATIONS = get_args(get_type_hints(Setting)["participation"])
_SETTING_CHECKS: Mapping[str, Check] = {key: _whole(1) for key in _SETTING} | {
    "rounds": _whole(0, MOST_ROUNDS),
    "planned_rounds": _whole(1, MOST_ROUNDS),
    "participation": lambda value: value in _PARTICIPATIONS,
}
_RELEASE_CHECKS: Mapping[str, Check] = {
    "first_round": _whole(1, MOST_ROUNDS),
    "last_round": _whole(1, MOST_ROUNDS),
    "releases": _or_none(_whole(0)),
    "participants": _sizes,
    "sensitivity": _or_none(_number),
    "noise": _number,
    "noise_multiplier": _or_none(_number),
}
_STATEMENT_CHECKS: Mapping[str, Check] = {
    "kind": _text,
    "unit": _text,
    "horizon": _text,
    "rounds": _whole(0, 1000 * MOST_ROUNDS),
    "epsilon": _or_none(_number),
    "delta": lambda value: _number(value) and value <= 1.0,
}
_POINT_CHECKS: Mapping[str, Check] = {"round": _whole(0, MOST_ROUNDS), "epsilon": _number}


def _fault_in(content: Any) -> str:
    """What is wrong with the shape of a ledger's content; nothing where it can be read."""
    if not isinstance(content, dict):
        return "damaged: expected a JSON object"
    if not _is_flat(content):
        return "damaged: nested too deeply"
    if content.get("format", FORMAT) != FORMAT or isinstance(content.get("format"), bool):
        return f"not a ledger of format {FORMAT}, which this Quorank reads"
    for key in ("mechanism", "setting", "releases", "privacy"):
        if key not in content:
            return f"damaged, or of an older version: {key!r} is missing"
    if not isinstance(content["mechanism"], dict) or not isinstance(content["mechanism"].get("kind"), str):
        return "damaged: 'mechanism' does not name its kind"
    if not isinstance(content.get("withheld", ""), str):
        return "damaged: 'withheld' is no text"
    found = _fault_in_entry(content) or _fault_in_list(
        content.get("spent", []), _POINT_CHECKS, "a point of ε by rounds"
    )
    entries, ranges = content.get("unlearning", []), content.get("normalisation")
    if found or not isinstance(entries, list):
        return found or "damaged: 'unlearning' is no list"
    if "normalisation" in content:
        part = ranges.get("mechanism") if isinstance(ranges, dict) else None
        if not isinstance(ranges, dict) or not isinstance(part, dict) or not isinstance(part.get("kind"), str):
            return "damaged: 'normalisation' does not name its mechanism"
        if found := _fault_in_entry(ranges):
            return found
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("without"), list):
            return "damaged: an entry of unlearning does not say without whom"
        if not all(_whole(0)(client) for client in entry["without"]):
            return "damaged: an entry of unlearning names what is no client"
        own = entry.get("mechanism", content["mechanism"])
        if not isinstance(own, dict) or not isinstance(own.get("kind"), str):
            return "damaged: an entry of unlearning does not name its mechanism"
        found = _fault_in_entry(entry)
        if found:
            return found
    more = "unlearning" in content or "normalisation" in content
    if ("altogether" in content) != more or ("reports" in content and "unlearning" not in content):
        return "damaged: it has further entries or says what all gives away together, but not both"
    return _fault_in_statement(content.get("reports")) or _fault_in_statement(content.get("altogether"))


def _fault_in_entry(entry: Mapping[str, Any]) -> str:
    """Setting, releases and statement, of the run or of a rebuilding."""
    setting, sentence = entry.get("setting"), "damaged: the setting lacks one of"
    if not isinstance(setting, dict) or not _fits(setting, _SETTING_CHECKS):
        return f"{sentence} {', '.join(_SETTING)}, or it is out of range"
    limits = {key: setting[key] for key in _LIMITS if key in setting}
    if not all(_whole(0, MOST_ROUNDS)(limit) for limit in limits.values()):
        return "damaged: the limits of one client are out of range"
    if "releases" not in entry or "privacy" not in entry:
        return "damaged: an entry lacks its releases or what they give away"
    found = _fault_in_list(entry["releases"], _RELEASE_CHECKS, "a release")
    return found or _fault_in_statement(entry["privacy"])


def _fault_in_list(entries: Any, checks: Mapping[str, Check], what: str) -> str:
    if isinstance(entries, list) and all(isinstance(entry, dict) and _fits(entry, checks) for entry in entries):
        return ""
    return f"damaged: {what} lacks one of {', '.join(checks)}, or it is out of range"


def _fault_in_statement(stated: Any) -> str:
    if stated is None:
        return ""
    if isinstance(stated, dict) and _fits(stated, _STATEMENT_CHECKS) and _text(stated.get("neighbouring", "")):
        return ""
    return f"damaged: what is given away lacks one of {', '.join(_STATEMENT_CHECKS)}, or ε or δ is not a number"


def _is_flat(content: Any) -> bool:
    """Whether nothing is nested deeper than a ledger is."""
    level = [content]
    for _ in range(DEEPEST):
        lists = [value.values() if isinstance(value, dict) else value for value in level]
        level = [value for values in lists for value in values if isinstance(value, dict | list)]
    return not level


def _fits(table: Mapping[str, Any], checks: Mapping[str, Check]) -> bool:
    return all(key in table and check(table[key]) for key, check in checks.items())


# ---------------------------------------------------------------- counting again


def recount(content: Mapping[str, Any]) -> float | None:
    """Compute ε of a ledger's rounds again from its mechanism and setting; None where no ε is stated.

    A release with less noise than the mechanism asks for is refused: then the ε would not be true.
    """
    statement = content["privacy"]
    if not isinstance(statement, Mapping) or statement.get("epsilon") is None:
        return None
    mechanism = _mechanism_of(content)
    _check_releases(content, mechanism.least_multiplier * (1.0 - (1e-6 if has_floating_noise(content) else 1e-9)))
    again = _counted(lambda: mechanism.statement(content["setting"]["rounds"])) or {}
    return None if again.get("epsilon") is None else float(again["epsilon"])


FLOATING_NOISE = (
    "its noise was drawn in floating point by an older version: whoever has an exact ranker and a client's update can tell "
    "whether it is in the sum, whatever ε says; run it again"
)
"""To be said where `has_floating_noise`."""


def has_floating_noise(content: Mapping[str, Any]) -> bool:
    """Return whether a ledger is of Gaussian noise that was no whole numbers yet; versions since then name their noise."""
    stated = content["privacy"] or {}
    return stated.get("kind") == "gaussian" and stated.get("epsilon") is not None and "noise" not in stated


def _read_part(part: Mapping[str, Any]) -> Privacy:
    return PRIVACIES.read(part, "ledger.json: mechanism")


def _mechanism_of(content: Mapping[str, Any]) -> Mechanism:
    plan = content["setting"]
    fields = {key: plan[key] for key in (*_SETTING, *_LIMITS) if key in plan and key != "planned_rounds"}
    fields["rounds"] = plan["planned_rounds"]
    return _counted(lambda: _read_part(content["mechanism"]).mechanism(Setting(**fields), 0))


def _counted(compute: Callable[[], T]) -> T:
    """What is computed from numbers of a file; numbers that nothing can be computed from are refused."""
    try:
        return compute()
    except (ArithmeticError, ValueError, MemoryError, AssertionError):
        sentence = "the ledger does not add up: nothing can be computed from its mechanism and setting"
        raise BadInput("ledger.inconsistent", sentence) from None


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
        require(given >= asked, "ledger.too-little-noise", sentence)
    stated = content["setting"]["rounds"]
    sentence = f"{failed}: it has entries of {expected - 1} rounds and states {stated}"
    require(expected - 1 == stated, "ledger.inconsistent", sentence)


# ---------------------------------------------------------------- composing


def loss_of(content: Mapping[str, Any]) -> Loss | None:
    """Return the loss of a ledger's run and of its rebuildings; None where one of them states no ε."""
    part = content["mechanism"]
    losses = [_entry_loss(part, entry) for entry in (content, *ranges_of(content), *content.get("unlearning", ()))]
    known = [loss for loss in losses if loss is not None]
    return total_loss([*known, reports_loss(content)]) if len(known) == len(losses) else None


def ranges_of(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the entry of the release that constants of features were learned by, where a ledger has one."""
    return [content["normalisation"]] if "normalisation" in content else []


def reports_loss(content: Mapping[str, Any]) -> Loss:
    """Return what devices reported beside their updates, by a ledger."""
    return Loss(pure=(content.get("reports") or {}).get("epsilon") or 0.0)


def _entry_loss(part: Mapping[str, Any], entry: Mapping[str, Any]) -> Loss | None:
    if entry["privacy"] is None or entry["privacy"]["epsilon"] is None:
        return None
    mechanism = _mechanism_of({"mechanism": entry.get("mechanism", part), "setting": entry["setting"]})
    return _counted(lambda: mechanism.loss(entry["setting"]["rounds"]))


def combined_privacy(
    part: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], reports: Loss | None = None
) -> dict[str, Any] | None:
    """Return what a run (the first entry) and its rebuildings give away together; None where nothing is protected.

    An entry has a `setting` and its own statement, `privacy`; the run's may hold a `normalisation`, the release that
    constants of features were learned by. `reports` is what devices reported beside.
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
    losses = [_entry_loss(part, entry) for entry in (*entries, *ranges_of(entries[0]))]
    known = [loss for loss in losses if loss is not None]
    if len(known) < len(losses):
        return found | {"epsilon": None}
    together = _counted(lambda: compose(total_loss([*known, reports or Loss()]), run["delta"]))
    return found | {"epsilon": together.epsilon, "delta": together.delta, "added_up": together.method}


def compose_runs(contents: Sequence[Mapping[str, Any]], delta: float | None = None) -> dict[str, Any]:
    """Return what several runs of the same clients give away together, at one δ: by default the largest of theirs."""
    each = [loss_of(content) for content in contents]
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
    known = [loss for loss in each if loss is not None]
    if len(known) == len(each):
        together = _counted(lambda: compose(total_loss(known), chosen))
        found |= {"epsilon": together.epsilon, "method": together.method}
    return found

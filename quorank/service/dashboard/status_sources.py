"""Status of a coordinator, a tuning or a group's session, completed from a `Status` with members, versions and events."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from quorank.federation.coordinator import Coordinator
from quorank.federation.rounds import Report
from quorank.privacy.ledger import WITHHELD
from quorank.privacy.mechanisms.metric_response import MetricResponse
from quorank.service.dashboard.event_log import add_refusals
from quorank.service.dashboard.status import (
    LISTED,
    MemberStatus,
    Problem,
    Quality,
    RoundFigures,
    Status,
    WeightStatus,
    listed,
    seconds_left,
    with_round,
)

if TYPE_CHECKING:
    from quorank.experiments.deployment import DeployedPrivacy
    from quorank.silos.session.coordinator import SiloServer
    from quorank.tuning.coordinator import TuningCoordinator, TuningState
    from quorank.tuning.models import Model


LEAST_DEVICES = 4
"""Minimum number of reports in a round whose metric is shown."""
DECAY = 0.9
"""Weight of a report one round later."""
_REMEMBERED = 400  # rounds: 0.9^400 is negligible
WAITING_SECONDS = 60.0
"""Seconds after which a round without enough members reports a problem."""


def measure(k: int) -> str:
    """Return the name of the metric that devices report."""
    return f"nDCG@{k} by clicks"


def round_figures(
    report: Report,
    seconds: float | None,
    *,
    figure: MetricResponse | None = None,
    epsilon: float | None = None,
    planned: int | None = None,
) -> RoundFigures:
    """Return a closed round as a point of the history; `planned` replaces a secret cohort size."""
    found = RoundFigures(report.round, seconds, None if planned is not None else report.participants, epsilon=epsilon)
    if figure is None or report.participants < LEAST_DEVICES:
        return found
    return replace(found, quality=report.online_ndcg, error=figure.error(planned or report.participants))


def round_facts(
    report: Report, figures: RoundFigures, cohort: int, received_bytes: int, *, hidden: bool
) -> dict[str, object]:
    """Return the facts of a closed round for the log; `hidden` where the cohort size is secret."""
    facts: dict[str, object] = {"round": report.round, "seconds": figures.seconds}
    facts |= {"update_norm": float(report.update_norm), "noise": float(report.noise)}
    if not hidden:
        facts |= {"replies": report.participants, "cohort": cohort, "received_bytes": received_bytes}
    if figures.quality is not None:
        facts |= {"reported_ndcg": figures.quality, "reported_error": figures.error}
    return facts


def quality_of(
    reports: Sequence[Report], response: MetricResponse | None, name: str, planned: int | None = None
) -> Quality | None:
    """Return the newest round's mean report and the smoothed one: Σ w·n·x / Σ w·n with w = DECAY^age.

    The standard errors are those of the reports' noise, at most √(Σ w²·n·variance) / Σ w·n. Rounds with fewer than
    LEAST_DEVICES reports are left out: a mean of one or two is those devices' own reports. None without reports.
    """
    if response is None:
        return None
    rounds = [report for report in reports[-_REMEMBERED:] if report.participants >= LEAST_DEVICES]
    if not rounds:
        return Quality(name, least_devices=LEAST_DEVICES)
    last = rounds[-1]
    weights = np.array([DECAY ** (last.round - report.round) for report in rounds])
    counts = np.array([report.participants for report in rounds], dtype=np.float64)
    total, devices = float(weights @ counts), planned or last.participants
    smoothed = float((weights * counts) @ np.array([report.online_ndcg for report in rounds])) / total
    error = math.sqrt(response.variance * float(weights**2 @ counts)) / total
    return Quality(name, last.online_ndcg, response.error(devices), last.round, devices, smoothed, error, LEAST_DEVICES)


def coordinator_status(
    base: Status,
    coordinator: Coordinator,
    history: Sequence[RoundFigures],
    *,
    k: int = 10,
    open_seconds: float | None = None,
    planned: int | None = None,
    refused: Mapping[str, int] | None = None,
) -> Status:
    """Complete a status from a coordinator.

    Args:
        base: Status with members, address, versions, events and problems.
        coordinator: The coordinator.
        history: Closed rounds.
        k: Cutoff of the reported metric.
        open_seconds: Seconds since the open round began.
        planned: Planned cohort size where the true one is secret.
        refused: Refusals before the coordinator, by code.
    """
    done, ending = coordinator.done, coordinator.closing
    came = 0 if done else coordinator.accepted_count
    asked = 0 if done else len(coordinator.waiting) + came if coordinator.enrolled is None else ending.replies
    past = sum(report.participants for report in coordinator.reports)
    deadline = None
    if open_seconds is not None and math.isfinite(ending.deadline) and not done:
        deadline = max(0.0, ending.deadline - open_seconds)
    left = coordinator.rounds - coordinator.state.round
    hidden = planned is not None
    waiting = None if hidden else 0 if done else len(coordinator.waiting)
    return replace(
        base,
        rounds=coordinator.state.round,
        rounds_planned=coordinator.rounds,
        open_seconds=open_seconds,
        deadline_seconds=deadline,
        seconds_left=seconds_left(history, left, open_seconds),
        last_round_seconds=history[-1].seconds if history else None,
        cohort=(0 if done else planned) if hidden else asked,
        needed=0 if done else ending.minimum if planned is None else coordinator.limits.closing(planned).minimum,
        replies=None if hidden else came,
        accepted=None if hidden else past + came,
        refused=add_refusals(coordinator.refused, refused or {}),
        withheld=WITHHELD if hidden else None,
        sent_bytes=None if hidden else base.sent_bytes,
        received_bytes=None if hidden else base.received_bytes,
        counts=replace(base.counts, waiting=waiting, late=None if hidden else base.counts.late),
        members=listed(_with_waiting(base.members, frozenset() if hidden or done else coordinator.waiting, hidden)),
        quality=quality_of(coordinator.reports, coordinator.metric_response, measure(k), planned),
        history=tuple(history),
        problems=(*base.problems, *_too_few(coordinator, open_seconds or 0.0)),
    )


def _too_few(coordinator: Coordinator, open_seconds: float) -> list[Problem]:
    """Report a round that has waited long for the members that its noise needs."""
    fewest, there = coordinator.limits.minimum_replies, len(coordinator.waiting) + coordinator.accepted_count
    if not coordinator.open or there >= fewest or open_seconds <= WAITING_SECONDS:
        return []
    sentence = f"the round waits: {there} members of its cohort are available, and its noise needs {fewest}"
    return [Problem("round.too-few", sentence)]


def privacy_status(base: Status, privacy: DeployedPrivacy, refused: float | None = None) -> Status:
    """Add spent and planned privacy to a status; `refused` is the ε of a refused rebuilding."""
    spent, planned, budget, note = privacy.spent, privacy.planned, privacy.budget, None
    if refused is not None and budget is not None:
        note = f"refused: it would have brought ε to {refused:.3g}, and {budget:.3g} are planned"
    problems = []
    if refused is not None:
        sentence = "the ranker was restarted: rebuilding it exceeded the budget"
        problems.append(Problem("rebuilding.refused", sentence))
    if privacy.exceeded:
        problems.append(Problem("budget.exceeded", "the releases exceed the run's planned ε"))
    return replace(
        base,
        epsilon_spent=None if spent is None else spent.epsilon,
        epsilon_planned=None if planned is None else budget,
        epsilon_delta=privacy.delta,
        epsilon_unit=privacy.unit,
        epsilon_horizon=None if planned is None else f"whole run of {privacy.experiment.rounds} rounds",
        epsilon_method=None if spent is None else spent.method,
        report_epsilon=privacy.report_epsilon or None,
        rebuilding_rounds=0 if privacy.rebuilt is None else sum(entry.rounds for entry in privacy.rebuilt.entries),
        rebuilding_note=note,
        problems=(*base.problems, *problems),
    )


def _with_waiting(members: Sequence[MemberStatus], waiting: Collection[int], hidden: bool) -> list[MemberStatus]:
    """Mark the members that the round waits for, and add unknown ones."""
    known = [replace(member, waiting=member.client in waiting, late=member.late and not hidden) for member in members]
    others = sorted(set(waiting).difference(member.client for member in members))
    return known + [MemberStatus(client, None, "away", waiting=True) for client in others[:LISTED]]


def tuning_status(
    base: Status,
    tuning: TuningCoordinator,
    state: TuningState,
    history: Sequence[RoundFigures],
    before: Mapping[str, float] | None = None,
    open_seconds: float | None = None,
) -> Status:
    """Complete a status from a tuning; `before` are the previous weights."""
    values = tuning.heuristic.named(state.published)
    weights = tuple(
        WeightStatus(
            weight.name, float(values[weight.name]), weight.shipped, weight.lower, weight.upper,
            None if before is None else before.get(weight.name),
        )
        for weight in tuning.heuristic.weights
    )  # fmt: skip
    newest = next((point for point in reversed(history) if point.quality is not None), None)
    loss = Quality("mean loss of searches") if newest is None else _loss_of(newest)
    return replace(
        base,
        rounds=state.version,
        open_seconds=open_seconds,
        last_round_seconds=history[-1].seconds if history else None,
        replies=state.estimate.count,
        accepted=state.estimate.count + round(sum((point.replies or 0.0) * point.rounds for point in history)),
        weights=weights,
        quality=loss,
        history=tuple(history),
    )


def _loss_of(point: RoundFigures) -> Quality:
    return Quality("mean loss of searches", point.quality, None, point.round)


def version_figures(model: Model, seconds: float | None) -> RoundFigures:
    """Return a version of the weights as a point of the history."""
    return RoundFigures(model.version, seconds, model.updates, model.loss)


def session_status(base: Status, server: SiloServer, present: Collection[str], seconds: float | None = None) -> Status:
    """Complete a status from a group's session; a round is a turn of training."""
    done, planned = server.turns
    waits = {name: server.waits(name) for name in server.terms.parties}
    known = {member.name: member for member in base.members}
    members = []
    for number, name in enumerate(server.terms.parties):
        member = known.get(name) or MemberStatus(number, name, "not invited")
        here = member.state in ("present", "away")
        member = replace(member, state=("present" if name in present else "away") if here else member.state)
        phase = server.phase if waits[name] or server.done else "waits for the others"
        members.append(replace(member, waiting=waits[name], phase=phase))
    history = base.history
    if done and (not history or history[-1].round < done):
        history = with_round(history, RoundFigures(done, seconds))
    return replace(
        base,
        phase=server.phase,
        rehearsal=server.terms.seed is not None,
        rounds=done,
        rounds_planned=planned,
        seconds_left=seconds_left(history, planned - done) if planned else None,
        last_round_seconds=history[-1].seconds if history else None,
        cohort=len(waits),
        refused=add_refusals(server.refused, base.refused),
        traffic=server.traffic(),
        problems=(*base.problems, *_missing(server)),
        counts=replace(base.counts, planned=len(waits), waiting=sum(waits.values())),
        members=tuple(members),
        history=history,
    )


def _missing(server: SiloServer) -> list[Problem]:
    """Report parties that have left a session that cannot continue without them."""
    if not server.blocked:
        return []
    sentence = f"without {' and '.join(server.gone)} the session cannot go on; begin another one with those who stay"
    return [Problem("party.left", sentence)]

"""Prometheus metrics of a service's `Status`.

A separate collector without the global registry. Members are counted, never named.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from quorank.service.dashboard.event_log import add_refusals
from quorank.service.dashboard.status import Status

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class StatusCollector(Collector):
    """Samples of one status."""

    def __init__(self, status: Status) -> None:
        self.status = status

    def collect(self) -> Iterator[Metric]:
        status = self.status
        counts, quality = status.counts, status.quality
        counters = (
            ("rounds", "Rounds done.", status.rounds),
            ("replies_accepted", "Replies accepted, in all rounds.", status.accepted),
            ("sent_bytes", "Bytes of tasks sent.", status.sent_bytes),
            ("received_bytes", "Bytes of replies received.", status.received_bytes),
            ("rebuilding_rounds", "Rounds of rebuildings whose sum was made.", status.rebuilding_rounds),
            ("checkpoints_failed", "Checkpoints not written.", status.checkpoints_failed),
        )
        gauges = (
            ("rounds_planned", "Rounds of the whole run.", status.rounds_planned),
            ("cohort_clients", "Clients asked in the open round; as planned where withheld.", status.cohort),
            ("round_replies", "Replies of the open round.", status.replies),
            ("round_open_seconds", "Seconds since the open round began.", status.open_seconds),
            ("last_round_seconds", "Seconds that the last round took.", status.last_round_seconds),
            ("seconds_left", "Seconds until the end of the run, estimated.", status.seconds_left),
            ("enrolled_members", "Members that may take part.", counts.enrolled),
            ("invited_members", "Unused invitations.", counts.invited),
            ("seen_members", "Members online.", counts.seen),
            ("waiting_members", "Members of the open round without a reply.", counts.waiting),
            ("late_members", "Members whose reply is late.", counts.late),
            ("left_members", "Members that have left.", counts.left),
            ("revoked_members", "Members that are refused.", counts.revoked),
            ("epsilon_spent", "Epsilon of a member by all releases.", status.epsilon_spent),
            ("epsilon_planned", "Planned epsilon of the whole run.", status.epsilon_planned),
            ("epsilon_delta", "Delta of epsilon_spent.", status.epsilon_delta),
            ("checkpoint_age_seconds", "Seconds since the last checkpoint.", status.checkpoint_age_seconds),
            ("uptime_seconds", "Seconds since the start.", status.uptime_seconds),
            ("well", "1 without fatal problems.", int(status.is_healthy)),
        )
        for name, meaning, value in counters:
            if value is not None:
                yield CounterMetricFamily(f"quorank_{name}", meaning, value=value)
        for name, meaning, gauge in gauges:
            if gauge is not None:
                yield GaugeMetricFamily(f"quorank_{name}", meaning, value=gauge)
        if quality is not None:
            reported = (
                ("", "Quality that members reported in a round.", quality.value),
                ("_error", "Its standard error.", quality.error),
                ("_round", "Its round.", quality.round),
                ("_smoothed", "Smoothed over rounds.", quality.smoothed),
                ("_smoothed_error", "Standard error of that.", quality.smoothed_error),
            )
            for name, meaning, gauge in reported:
                if gauge is not None:
                    yield GaugeMetricFamily(f"quorank_quality{name}", meaning, value=gauge)
        refused = CounterMetricFamily("quorank_refused", "Refusals by code.", labels=["code"])
        for code, count in sorted(add_refusals(status.refused).items()):
            refused.add_metric([code], count)
        yield refused
        problems = GaugeMetricFamily("quorank_problem", "Current problems by code.", labels=["code"])
        for code in sorted({problem.code for problem in status.problems}):
            problems.add_metric([code], 1)
        yield problems
        state = GaugeMetricFamily("quorank_state", "The state, as a label.", labels=["kind", "state"])
        state.add_metric([status.kind, status.state], 1)
        yield state


def exposition(status: Status) -> bytes:
    """Return the status in Prometheus text format 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector(status))
    return generate_latest(registry)

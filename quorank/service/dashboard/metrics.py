"""Prometheus metrics of a service's `Status`, without the global registry and without names of members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from quorank.service.dashboard.event_log import add_refusals
from quorank.service.dashboard.status import Status

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_METRICS = """
counter rounds               rounds                 Rounds done.
counter replies_accepted     accepted               Replies accepted, in all rounds.
counter sent_bytes           sent_bytes             Bytes of tasks sent.
counter received_bytes       received_bytes         Bytes of replies received.
counter rebuilding_rounds    rebuilding_rounds      Rounds of rebuildings whose sum was made.
counter checkpoints_failed   checkpoints_failed     Checkpoints not written.
gauge   rounds_planned       rounds_planned         Rounds of the whole run.
gauge   cohort_clients       cohort                 Clients asked in the open round; as planned where withheld.
gauge   round_replies        replies                Replies of the open round.
gauge   round_open_seconds   open_seconds           Seconds since the open round began.
gauge   last_round_seconds   last_round_seconds     Seconds that the last round took.
gauge   seconds_left         seconds_left           Seconds until the end of the run, estimated.
gauge   enrolled_members     counts.enrolled        Members that may take part.
gauge   invited_members      counts.invited         Unused invitations.
gauge   seen_members         counts.seen            Members online.
gauge   waiting_members      counts.waiting         Members of the open round without a reply.
gauge   left_members         counts.left            Members that have left.
gauge   revoked_members      counts.revoked         Members that are refused.
gauge   epsilon_spent        epsilon_spent          Epsilon of a member by all releases.
gauge   epsilon_planned      epsilon_planned        Planned epsilon of the whole run.
gauge   epsilon_delta        epsilon_delta          Delta of epsilon_spent.
gauge   uptime_seconds       uptime_seconds         Seconds since the start.
gauge   well                 is_healthy             1 without fatal problems.
gauge   quality              quality.value          Quality that members reported in a round.
gauge   quality_error        quality.error          Its standard error.
gauge   quality_round        quality.round          Its round.
gauge   quality_smoothed     quality.smoothed       Smoothed over rounds.
gauge   quality_smoothed_error quality.smoothed_error Standard error of that.
"""
"""Kind, name, field of the status and meaning of each number; unknown ones are left out."""


class StatusCollector(Collector):
    """Samples of one status."""

    def __init__(self, status: Status) -> None:
        self.status = status

    def collect(self) -> Iterator[Metric]:
        status = self.status
        for line in _METRICS.strip().splitlines():
            kind, name, path, meaning = line.split(None, 3)
            value: Any = status
            for part in path.split("."):
                value = getattr(value, part, None)
            if value is not None:
                family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                yield family(f"quorank_{name}", meaning, value=float(value))
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

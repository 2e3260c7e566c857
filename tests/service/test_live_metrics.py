"""Metrics are the status: each number under one name, withheld ones under none, read by Prometheus' own parser."""

from __future__ import annotations

from dataclasses import replace

from full_status import FULL
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from quorank.service.dashboard.metrics import exposition
from quorank.service.dashboard.status import MemberCounts, Problem, Quality, Status


def samples(status: Status) -> dict[tuple[str, ...], float]:
    text = exposition(status).decode()
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation.endswith(".")
        for sample in family.samples:
            key = (sample.name.removeprefix("quorank_"), *sample.labels.values())
            assert sample.name.startswith("quorank_") and key not in found
            found[key] = sample.value
    return found


def test_the_metrics_are_the_status() -> None:
    found = samples(FULL)
    expected: dict[tuple[str, ...], float] = {
        ("rounds_total",): 4, ("rounds_planned",): 9, ("replies_accepted_total",): 40, ("round_replies",): 6,
        ("cohort_clients",): 10, ("sent_bytes_total",): 100, ("received_bytes_total",): 200, ("seconds_left",): 3.0,
        ("rebuilding_rounds_total",): 2, ("checkpoints_failed_total",): 1, ("round_open_seconds",): 1.0,
        ("last_round_seconds",): 4.0, ("enrolled_members",): 8, ("invited_members",): 1, ("seen_members",): 7,
        ("waiting_members",): 4, ("late_members",): 1, ("left_members",): 1, ("revoked_members",): 1,
        ("epsilon_spent",): 1.0, ("epsilon_planned",): 2.0, ("epsilon_delta",): 1e-5, ("checkpoint_age_seconds",): 5.0,
        ("uptime_seconds",): 12.5, ("well",): 0, ("quality",): 0.5, ("quality_error",): 0.1, ("quality_round",): 4,
        ("quality_smoothed",): 0.45, ("quality_smoothed_error",): 0.02, ("refused_total", "reply.norm"): 2,
        ("problem", "disk.full"): 1, ("state", "devices", "running"): 1,
    }  # fmt: skip
    assert found == expected


def test_what_is_withheld_is_in_no_metric() -> None:
    counts = MemberCounts(10, 0, 8, 7, waiting=None, late=None)
    hidden = replace(FULL, accepted=None, replies=None, sent_bytes=None, received_bytes=None, counts=counts)
    names = {name for name, *_ in samples(hidden)}
    assert not names & {
        "replies_accepted_total", "round_replies", "sent_bytes_total", "received_bytes_total", "waiting_members",
        "late_members",
    }  # fmt: skip
    assert {"cohort_clients", "epsilon_spent"} <= names


def test_codes_are_labels_and_nothing_else_is() -> None:
    odd = replace(FULL, refused={"reply.norm": 1, "no code\n": 2, "/anna": 3}, problems=(Problem("a.b", "x"),) * 2)
    found = samples(odd)
    assert found["refused_total", "reply.other"] == 5 and found["problem", "a.b"] == 1
    empty = samples(Status("parties", "new", "demo", 0.0, quality=Quality("nDCG")))
    assert empty["well",] == 1 and empty["rounds_total",] == 0
    assert not any(name.startswith("quality") for name, *_ in empty)


def test_there_is_no_global_state() -> None:
    before = {metric.name for metric in REGISTRY.collect()}
    assert exposition(FULL) == exposition(FULL)
    assert {metric.name for metric in REGISTRY.collect()} == before
    assert not any(name.startswith("quorank") for name in before)

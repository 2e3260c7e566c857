"""A status with a value in every field, and one for each kind of federation."""

from dataclasses import replace

from quorank.service.dashboard.status import (
    Event,
    MemberCounts,
    MemberStatus,
    Problem,
    Quality,
    RoundFigures,
    Status,
    Versions,
    WeightStatus,
)

FULL = Status(
    "devices", "running", "demo", 1.7e9, "host:1", 7, 12.5, Versions("0.1", 1, {"0.1": 2}), True, "training",
    4, 9, 1.0, 2.0, 3.0, 4.0, 10, 5, 6, 40, {"reply.norm": 2}, None, 100, 200,
    {"search": {"envelopes": 3, "bytes": 9}}, 1,
    MemberCounts(10, 1, 8, 7, 4, 1, 1), (MemberStatus(3, "three", "present", True, 2.0, "training", "ab"),),
    Quality("nDCG@10 by clicks", 0.5, 0.1, 4, 8, 0.45, 0.02, 4),
    1.0, 2.0, 1e-5, "client", "whole run", 0.1, 2, (WeightStatus("w", 1.0, 1.0, 0.0, 2.0, 0.9),), {"control": 4},
    (RoundFigures(4, 3.0, 8.0, 0.5, 0.1, 1.0),), (Event(1.7e9, "round_closed", {"round": 4, "seconds": 3.5}),),
    (Problem("disk.full", "the disk is full", True),), 1200, 3.6, 2.5,
)  # fmt: skip

LARGE = replace(
    FULL,
    members=tuple(MemberStatus(number, f"device-{number:03d}", "present", number < 3, 5.0) for number in range(48)),
    history=tuple(RoundFigures(n, 60.0 + n, 40.0 + n % 7, 0.4 + n / 400, 0.02, n / 10) for n in range(1, 42)),
    events=tuple(
        Event(1.7e9 - n, "round_closed", {"round": 41 - n, "replies": 40, "seconds": 60.0}) for n in range(41)
    ),
)
KINDS = {
    "devices": LARGE,
    "tuning": replace(LARGE, kind="tuning"),
    "parties": replace(LARGE, kind="parties", members=LARGE.members[:3]),
    "stalled": replace(
        LARGE, open_seconds=900.0, deadline_seconds=None, problems=(), counts=replace(LARGE.counts, seen=0)
    ),
    "new": Status("devices", "new", "demo", 1.7e9, rounds_planned=60, quality=Quality("nDCG@10", least_devices=4)),
}

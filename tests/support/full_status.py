"""A status with a value in every field."""

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
    {"search": {"envelopes": 3, "bytes": 9}}, 5.0, 1,
    MemberCounts(10, 1, 8, 7, 4, 1, 1, 1),
    (MemberStatus(3, "three", "present", True, False, 2.0, "0.1", "training", "ab"),),
    Quality("nDCG@10 by clicks", 0.5, 0.1, 4, 8, 0.45, 0.02, 4),
    "note", 1.0, 2.0, 1e-5, "client", "whole run", "rdp", 0.1, 2,
    "rebuilt", (WeightStatus("w", 1.0, 1.0, 0.0, 2.0, 0.9),), {"control": 4},
    (RoundFigures(4, 3.0, 8.0, 0.5, 0.1, 1.0),), (Event(1.7e9, "round_closed", {"round": 4, "seconds": 3.5}),),
    (Problem("disk.full", "the disk is full", True),),
)  # fmt: skip

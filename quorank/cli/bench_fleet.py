"""quorank bench --fleet: what a device and a round cost a service on this machine, beside what Flower took."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from quorank.cli.display import print_result, print_text, say, table_of

if TYPE_CHECKING:
    from rich.table import Table

FLOWER = {
    "devices": 200,
    "seconds_per_round": 80.0,
    "service_cpu_ms_per_device_round": 170.0,
    "device_memory_mb": 220.0,
}
"""A SuperLink (flwr 1.41) with SuperNodes as devices, measured on two cores when devices ran so; 300 came to no round."""


def bench_fleet(
    program: ModuleType,
    json: bool = False,
    quick: bool = False,
    devices: int = 10_000,
    rounds: int = 2,
    workers: int = 1,
    database: str = "",
) -> None:
    """Measure a service and its devices on this machine, over loopback with TLS and a new connection for every request."""
    traffic = program.FleetTraffic(min(devices, 1000) if quick else devices, rounds, workers=workers, database=database)
    say(f"measuring {traffic.devices:,} devices in {traffic.rounds} rounds …")
    figures = {"fleet": program.measure(traffic), "flower": FLOWER}
    print_result(figures, json, lambda found: print_text(fleet_table(found)))


def fleet_table(figures: dict[str, Any]) -> Table:
    """The figures for people."""
    fleet, flower = figures["fleet"], figures["flower"]
    ratio = flower["service_cpu_ms_per_device_round"] / fleet["service_cpu_ms_per_device_round"]
    rows = [
        ("devices, rounds", f"{fleet['devices']:,}, {fleet['rounds']}", f"{flower['devices']}", ""),
        ("replies lost, counted twice", f"{fleet['lost']}, {fleet['counted_twice']}", "", ""),
        (
            "service: CPU per device and round",
            f"{fleet['service_cpu_ms_per_device_round']:.2f} ms",
            f"{flower['service_cpu_ms_per_device_round']:.0f} ms",
            f"{ratio:.0f} × less",
        ),
        ("service: memory", f"{fleet['service_memory_mb']:.0f} MB", "", ""),
        ("seconds a round", f"{fleet['seconds_per_round']:.1f}", f"{flower['seconds_per_round']:.0f}", ""),
        ("device: CPU per round", f"{fleet['devices_cpu_ms_per_device_round']:.2f} ms", "", ""),
    ]
    return table_of(("what", "HTTPS", "Flower", "ratio"), rows, "right", "A fleet on this machine")

"""quorank bench --network: what devices and rounds cost the coordinator and the engine, beside plain Flower."""

from __future__ import annotations

import json as json_
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from quorank.cli.display import print_figures, print_text, say, table_of
from quorank.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

SECONDS = 100.0
"""No part of the measurement takes longer; what does is left out with a sentence."""

LOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "coordinator": ("coordinator", {"devices": 10_000, "parameters": 136, "rounds": 2}),
    "coordinator_neural": ("coordinator", {"devices": 2_000, "parameters": 9_000, "rounds": 1}),
    "driver": ("driver", {"devices": 10_000, "parameters": 136, "rounds": 1}),
    "driver_four": (
        "driver",
        {"devices": 4, "parameters": 136, "rounds": 20, "drop": 0.0, "twice": 0.0, "garbage": 0.0, "enough": 1.0},
    ),
}
"""Measured in processes of their own, so that memory is theirs: the kind of load and its traffic."""


def bench_network(json: bool = False, nodes: int = 4) -> None:
    """Measure memory and time per device and round: in memory, on a Flower network, and with plain Flower on the same."""
    print_figures(measure(nodes), json, lambda figures: print_text(network_table(figures)))


def measure(nodes: int = 4) -> dict[str, Any]:
    """All figures; a part that cannot be measured is a sentence under "missing"."""
    figures: dict[str, Any] = {"missing": {}}
    for name, (kind, traffic) in LOADS.items():
        say(f"measuring {traffic['devices']:,} light devices with {traffic['parameters']:,} parameters ({kind}) …")
        _add(figures, name, lambda kind=kind, traffic=traffic: _load(kind, traffic))
    say(f"measuring a Flower network with {nodes} nodes, and FedAvg on the same …")
    _add(figures, "flower", lambda: _flower(nodes))
    return figures


def _add(figures: dict[str, Any], name: str, measured: Any) -> None:
    try:
        figures[name] = measured()
    except BadInput as error:
        figures[name] = None
        figures["missing"][name] = str(error)
        say(f"{name}: {error}")


def _load(kind: str, traffic: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "quorank.network.load", kind, json_.dumps(traffic)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        sentence = f"this load took over {SECONDS:g} s and was given up; other work slows the machine"
        raise BadInput("bench.too-slow", sentence) from None
    if done.returncode != 0:
        raise BadInput("bench.failed", f"this load could not be measured: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json_.loads(done.stdout)
    return found


def _flower(nodes: int) -> dict[str, Any]:
    from quorank.network.flower_bench import loopback_figures

    return loopback_figures(nodes)


def network_table(figures: dict[str, Any]) -> Table:
    """The figures for people."""
    title = "Devices and rounds on this machine"
    table = table_of(("what", "figure", "beside", "ratio"), _rows(figures), "right", title)
    table.caption = next(reversed(figures["missing"].values()), None)
    return table


def _rows(figures: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for name, (kind, _) in LOADS.items():
        load = figures.get(name)
        if load is not None:
            words = "coordinator alone" if kind == "coordinator" else "with driver, in memory"
            title = f"{load['devices']:,} devices × {load['parameters']:,}, {words}"
            yield title, f"{load['rounds_per_hour']:,.0f} rounds/h", f"{load['accepted_per_second']:,.0f} replies/s", ""
            memory, journal = (f"{load[key] / 1e6:,.1f} MB" for key in ("memory_bytes", "journal_bytes"))
            yield "  memory, journal of a round", memory, journal, ""
    flower = figures["flower"]
    if flower is not None:
        rows = (
            ("seconds_per_round", "s per round", 1.0),
            ("cpu_seconds_per_device_and_round", "s of computing per device and round", 1.0),
            ("memory_bytes_per_device", "MB per device", 1e6),
            ("memory_bytes", "MB in all", 1e6),
        )
        for key, unit, scale in rows:
            ours, theirs = flower["ours"][key] / scale, flower["fedavg"][key] / scale
            title = f"Flower, {flower['nodes']} nodes: {unit}"
            yield title, f"{ours:,.1f}", f"FedAvg {theirs:,.1f}", f"{flower['ratios'][key]:.2f} ×"
    for name in figures["missing"]:
        yield f"{name}: not measured", "", "", ""

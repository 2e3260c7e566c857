"""`quorank bench`: speed on this machine, with ratios."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from typer import Option

from quorank.cli.display import print_result, print_text, rows_of, say, table_of
from quorank.cli.options import Json
from quorank.errors import BadInput

FLOWER = {
    "devices": 200,
    "seconds_per_round": 80.0,
    "service_cpu_ms_per_device_round": 170.0,
    "device_memory_mb": 220.0,
}
"""SuperLink (flwr 1.41) with a SuperNode per device, measured on two cores; with 300 devices no round completed."""


def bench(
    json: Json = False,
    quick: Annotated[bool, Option("--quick", help="Measure for a shorter time, with more noise.")] = False,
    fleet: Annotated[bool, Option("--fleet", help="Measure a service with its devices instead.")] = False,
    devices: Annotated[int, Option("--devices", help="With --fleet: number of devices.")] = 10_000,
    rounds: Annotated[int, Option("--rounds", help="With --fleet: rounds of each device.")] = 2,
    workers: Annotated[int, Option("--workers", help="With --fleet: number of intake workers.")] = 1,
    database: Annotated[str, Option("--database", help="With --fleet: PostgreSQL database instead of SQLite.")] = "",
    leavers: Annotated[int, Option("--leavers", help="With --fleet: number of members that leave within an hour.")] = 0,
    faster: Annotated[float, Option("--faster", help="With --leavers: factor by which that hour is shorter.")] = 1.0,
) -> None:
    """Measure speed on this machine, against NumPy, memory bandwidth and scikit-learn."""
    if fleet:
        program = _program("fleet")
        count = min(devices, 1000) if quick else devices
        say(f"measuring a service with {count:,} devices in {rounds} rounds …")
        options = {"workers": workers, "database": database, "leavers": leavers, "faster": faster}
        measured = program.measure(program.FleetTraffic(count, rounds, **options))
        print_result({"fleet": measured, "flower": FLOWER}, json, _show_fleet)
        return
    speed, reference, secure = (_program(name) for name in ("speed", "reference", "secure_sum"))
    seconds, repeats = (1.0, 1) if quick else (4.0, 3)
    figures, workloads = {}, {}
    for name in speed.WORKLOADS:
        say(f"measuring {name}-like lists …")
        workloads[name] = speed.workload(name, reference)
        figures[name] = workloads[name](seconds / 2)
    for name, words, measure in (
        ("clients", "10 to 100,000 clients", lambda: speed.by_clients(say)),
        ("single", "one client and one interaction per round", lambda: speed.single_client(reference, seconds)),
        ("evaluation", "evaluation in the published MSLR setting", speed.evaluation),
        ("published", "the published MQ2007 setting", speed.published),
        ("reader", "the reader", lambda: speed.reader(say)),
        ("secure_sums", "secure sums", lambda: {f"{n}": secure.figures(n, repeats=repeats) for n in (10, 100, 1000)}),
        ("start", "a second start", speed.start_up),
    ):
        say(f"measuring {words} …")
        figures[name] = measure()
    for name, workload in workloads.items():
        say(f"measuring {name}-like lists again; the better time counts …")
        figures[name] = workload(seconds / 2)
    print_result(figures, json, _show)


def _program(name: str) -> ModuleType:
    """Import a program of benchmarks/, which is next to the package in a checkout and inside an installed one.

    Its module is named as by `python -m` in a checkout, since compiled functions are cached under their module's name.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "benchmarks", package.parent / "benchmarks"):
        path = folder / f"{name}.py"
        if path.is_file():
            spec = importlib.util.spec_from_file_location(f"benchmarks.{name}", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            return module
    sentence = "directory is missing; run quorank bench from a checkout or an installed package"
    raise BadInput("folder.missing", sentence, "benchmarks/")


WORKLOAD = """
{name}: per second, 1 thread | {interactions_per_second:k} | NumPy {reference_interactions_per_second:k} | {speedup:.0f} ×
{name}: per second, 2 threads | {interactions_per_second_two_threads:k} | 1 thread | {two_threads_speedup:.2f} ×
"""
BANDWIDTH = "  features read, {threads} | {rate} GB/s | {way} {bandwidth:.1f} | {share:.0%}"
CLIENTS = """
10 clients: µs each | {few[microseconds_per_interaction]:.2f} | 100,000: {many[microseconds_per_interaction]:.2f} | \
{time:.2f} ×
1,000 clients: memory | {some[peak_bytes]:k}B | 100,000: {many[peak_bytes]:k}B | {memory:.2f} ×
"""
SETTINGS = """
1 client × 1: rounds, 1 thread | {single[rounds_per_second]:k} | NumPy {single[reference_rounds_per_second]:k} | \
{single[speedup]:.0f} ×
MSLR setting: evaluation | {evaluation[evaluate_seconds]:.2f} s | training {evaluation[train_seconds]:.2f} s | \
{evaluation[evaluate_over_train]:.0%}
MQ2007 setting, all of it | {published[seconds]:.1f} s | |
second start to first round | {start[seconds_to_first_round]:.2f} s | |
"""
READER = """
{name}: LETOR text | {megabytes_per_second:.0f} MB/s | sklearn {sklearn_megabytes_per_second:.0f} MB/s | \
{parse_speedup:.1f} ×
{name}: cached load | {cached_seconds:.4f} s | sklearn | {cached_speedup:.0f} ×
"""
SECURE_SUM = """
secure sum of {name} clients × {length} | {seconds:.2f} s | its key agreements | {ratio_to_key_agreements:.2f} ×
  bytes that a client sends | {bytes_sent_per_client:,.0f} | plain update | {ratio_to_plain_float32_update:.1f} ×
"""
FLEET = """
devices, rounds | {fleet[devices]:,}, {fleet[rounds]} | {flower[devices]} |
replies lost, counted twice | {fleet[lost]}, {fleet[counted_twice]} | |
service: CPU per device and round | {fleet[service_cpu_ms_per_device_round]:.2f} ms | \
{flower[service_cpu_ms_per_device_round]:.0f} ms | {ratio:.0f} × less
service: memory | {fleet[service_memory_mb]:.0f} MB | |
seconds a round | {fleet[seconds_per_round]:.1f} | {flower[seconds_per_round]:.0f} |
device: CPU per round | {fleet[devices_cpu_ms_per_device_round]:.2f} ms | |
"""


def _show(figures: dict[str, Any]) -> None:
    rows = []
    for name in ("mq2007", "mslr"):
        found = figures[name]
        rows += rows_of(WORKLOAD, {"name": name, **found})
        for key, threads in (("one_thread", "1 thread"), ("two_threads", "2 threads")):
            for way in ("memory", "side_by_side", "list_by_list"):
                rate, share = (found.get(f"{way}_bandwidth_{what}_{key}") for what in ("bytes_per_second", "share"))
                if rate is not None:
                    values = {"way": way.replace("_", " "), "bandwidth": rate / 1e9, "share": share}
                    rows += rows_of(BANDWIDTH, values | {"threads": threads, "rate": f"{rate * share / 1e9:.1f}"})
    clients = {
        name: figures["clients"]["by_clients"][n] for name, n in (("few", "10"), ("some", "1000"), ("many", "100000"))
    }
    time = clients["few"]["microseconds_per_interaction"] / clients["many"]["microseconds_per_interaction"]
    memory = clients["some"]["peak_bytes"] / clients["many"]["peak_bytes"]
    rows += rows_of(CLIENTS, clients | {"time": time, "memory": memory}) + rows_of(SETTINGS, figures)
    for template, part in ((READER, "reader"), (SECURE_SUM, "secure_sums")):
        for name, found in figures[part].items():
            rows += rows_of(template, {"name": name, **found})
    heads, title = ("quantity", "value", "compared with", "ratio"), "Speed on this machine (per second: interactions)"
    print_text(table_of(heads, rows, "right", title))


def _show_fleet(figures: dict[str, Any]) -> None:
    costs = [figures[name]["service_cpu_ms_per_device_round"] for name in ("flower", "fleet")]
    rows = rows_of(FLEET, figures | {"ratio": costs[0] / costs[1]})
    print_text(table_of(("quantity", "HTTPS", "Flower", "ratio"), rows, "right", "A fleet on this machine"))

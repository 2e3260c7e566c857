"""`quorank bench`: speed on this machine, with ratios."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from quorank.cli.display import compact, print_result, print_text, say, table_of
from quorank.cli.options import Json
from quorank.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table


def bench(
    json: Json = False,
    quick: Annotated[bool, Option("--quick", help="Measure for a shorter time, with more noise.")] = False,
    fleet: Annotated[bool, Option("--fleet", help="Measure a service with its devices instead.")] = False,
    devices: Annotated[int, Option("--devices", help="With --fleet: number of devices.")] = 10_000,
    rounds: Annotated[int, Option("--rounds", help="With --fleet: rounds of each device.")] = 2,
    workers: Annotated[int, Option("--workers", help="With --fleet: number of intake workers.")] = 1,
    database: Annotated[str, Option("--database", help="With --fleet: PostgreSQL database in place of SQLite.")] = "",
) -> None:
    """Measure speed on this machine, against NumPy, memory bandwidth and scikit-learn."""
    if fleet:
        from quorank.cli.bench_fleet import bench_fleet

        bench_fleet(_program("fleet"), json, quick, devices, rounds, workers, database)
        return
    speed, reference = _program("speed"), _program("reference")
    seconds = 1.0 if quick else 4.0
    figures: dict[str, Any] = {}
    workloads = {}
    for name in speed.WORKLOADS:
        say(f"measuring {name}-like lists …")
        workloads[name] = speed.workload(name, reference)
        figures[name] = workloads[name](seconds / 2)
    say("measuring 10 to 100,000 clients …")
    figures["clients"] = speed.by_clients(say)
    say("measuring evaluation in the published MSLR setting …")
    figures["evaluation"] = speed.evaluation()
    say("measuring the published MQ2007 setting …")
    figures["published"] = speed.published()
    say("measuring the reader …")
    figures["reader"] = speed.reader(say)
    say("measuring secure sums …")
    secure = _program("secure_sum")
    figures["secure_sums"] = {str(n): secure.figures(n, repeats=1 if quick else 3) for n in (10, 100, 1000)}
    say("measuring a second start …")
    figures["start"] = speed.start_up()
    for name, measure in workloads.items():
        say(f"measuring {name}-like lists again; the better time counts …")
        figures[name] = measure(seconds / 2)
    print_result(figures, json, lambda _: print_text(_table(figures)))


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
    sentence = "this folder is missing; run quorank bench from a checkout or an installed package"
    raise BadInput("folder.missing", sentence, "benchmarks/")


def _table(figures: dict[str, Any]) -> Table:
    heads, title = ("quantity", "value", "against", "ratio"), "Speed on this machine (per second: interactions)"
    table = table_of(heads, _rows(figures), "right", title)
    table.columns[-1].style = "bold"
    return table


def _rows(figures: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for name in ("mq2007", "mslr"):
        f = figures[name]
        yield (
            f"{name}: per second, 1 thread", compact(f["interactions_per_second"]),
            f"NumPy {compact(f['reference_interactions_per_second'])}", f"{f['speedup']:.0f} ×",
        )  # fmt: skip
        if f["two_threads_speedup"] is not None:
            yield (
                f"{name}: per second, 2 threads", compact(f["interactions_per_second_two_threads"]),
                "1 thread", f"{f['two_threads_speedup']:.2f} ×",
            )  # fmt: skip
        ways = {"memory": "straight read", "side_by_side": "lists side by side", "list_by_list": "list by list"}
        for threads, key in ((1, "one_thread"), (2, "two_threads")):
            known = [way for way in ways if f.get(f"{way}_bandwidth_bytes_per_second_{key}") is not None]
            for way in known:
                share, rate = f[f"{way}_bandwidth_share_{key}"], f[f"{way}_bandwidth_bytes_per_second_{key}"] / 1e9
                read = (f"  features read, {threads} thread{'s' * (threads > 1)}", f"{rate * share:.1f} GB/s")
                yield (*(read if way == "memory" else ("", "")), f"{ways[way]} {rate:.1f}", f"{share:.0%}")
    clients = figures["clients"]["by_clients"]
    few, many = (clients[n]["microseconds_per_interaction"] for n in ("10", "100000"))
    yield ("10 clients: µs each", f"{few:.2f}", f"100,000: {many:.2f}", f"{few / many:.2f} ×")
    few, many = (clients[n]["peak_bytes"] / 1e6 for n in ("1000", "100000"))
    yield ("1,000 clients: memory", f"{few:.2f} MB", f"100,000: {many:.2f} MB", f"{few / many:.2f} ×")
    e = figures["evaluation"]
    yield (
        "MSLR setting: evaluation", f"{e['evaluate_seconds']:.2f} s", f"training {e['train_seconds']:.2f} s",
        f"{e['evaluate_over_train']:.0%}",
    )  # fmt: skip
    yield ("MQ2007 setting, all of it", f"{figures['published']['seconds']:.1f} s", "", "")
    for name, f in figures["reader"].items():
        yield (
            f"{name}: LETOR text", f"{f['megabytes_per_second']:.0f} MB/s",
            f"sklearn {f['sklearn_megabytes_per_second']:.0f} MB/s", f"{f['parse_speedup']:.1f} ×",
        )  # fmt: skip
        yield (f"{name}: cached load", f"{f['cached_seconds'] * 1e3:.1f} ms", "sklearn", f"{f['cached_speedup']:.0f} ×")
    for n, f in figures["secure_sums"].items():
        yield (
            f"secure sum of {int(n):,} clients × {f['length']}", f"{f['seconds']:.2f} s", "its key agreements",
            f"{f['ratio_to_key_agreements']:.2f} ×",
        )  # fmt: skip
        yield (
            "  bytes that a client sends", f"{f['bytes_sent_per_client']:,.0f}", f"plain update {4 * f['length']:,}",
            f"{f['ratio_to_plain_float32_update']:.1f} ×",
        )  # fmt: skip
    yield ("second start to first round", f"{figures['start']['seconds_to_first_round']:.2f} s", "", "")

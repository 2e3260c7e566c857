"""`quorank bench`: speed on this machine, with ratios."""

from __future__ import annotations

import importlib.util
import json as json_
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from typer import Option

from quorank.errors import BadInput


def bench(
    json: Annotated[bool, Option("--json", help="Print the figures as JSON, alone, on stdout.")] = False,
    quick: Annotated[bool, Option("--quick", help="Shorter turns: noisier figures.")] = False,
    network: Annotated[
        bool, Option("--network", help="The network instead: beside plain Flower, about three minutes.")
    ] = False,
) -> None:
    """Measure speed on this machine: against plain NumPy, memory bandwidth and scikit-learn, all in one run."""
    if network:
        from quorank.cli.bench_network import bench_network

        bench_network(json)
        return
    speed, reference = _program("speed"), _program("reference")

    def say(text: str) -> None:
        print(text, file=sys.stderr)

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
        say(f"measuring {name}-like lists again, of which the best times count …")
        figures[name] = measure(seconds / 2)
    if json:
        print(json_.dumps(figures))
        return
    from rich.console import Console

    Console().print(_table(figures))


def _program(name: str) -> ModuleType:
    """Import a program of benchmarks/, which lies beside the package in a checkout and inside it when installed.

    It has the name that `python -m` gives it in a checkout: compiled functions are kept under the name of their module.
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


def _table(figures: dict[str, Any]) -> Any:
    from rich.table import Table

    from quorank.cli.display import compact

    table = Table(title="Speed on this machine (per second: interactions)", title_justify="left")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("against", justify="right")
    table.add_column("ratio", justify="right", style="bold")
    for name in ("mq2007", "mslr"):
        f = figures[name]
        table.add_row(
            f"{name}: per second, 1 thread", compact(f["interactions_per_second"]),
            f"NumPy {compact(f['reference_interactions_per_second'])}", f"{f['speedup']:.0f} ×",
        )  # fmt: skip
        if f["two_threads_speedup"] is not None:
            table.add_row(
                f"{name}: per second, 2 threads", compact(f["interactions_per_second_two_threads"]),
                "1 thread", f"{f['two_threads_speedup']:.2f} ×",
            )  # fmt: skip
        ways = {"memory": "straight read", "side_by_side": "lists side by side", "list_by_list": "list by list"}
        for threads, key in ((1, "one_thread"), (2, "two_threads")):
            for way, name_of_way in ways.items():
                rate = f.get(f"{way}_bandwidth_bytes_per_second_{key}")
                if rate is None:
                    continue
                share = f[f"{way}_bandwidth_share_{key}"]
                first = way == "memory"
                table.add_row(
                    f"  features read, {threads} thread{'s' * (threads > 1)}" if first else "",
                    f"{rate * share / 1e9:.1f} GB/s" if first else "",
                    f"{name_of_way} {rate / 1e9:.1f}",
                    f"{share:.0%}",
                )
    clients = figures["clients"]
    few, many = (clients["by_clients"][n]["microseconds_per_interaction"] for n in ("10", "100000"))
    table.add_row("10 clients: µs each", f"{few:.2f}", f"100,000: {many:.2f}", f"{few / many:.2f} ×")
    few, many = (clients["by_clients"][n]["peak_bytes"] / 1e6 for n in ("1000", "100000"))
    table.add_row("1,000 clients: memory", f"{few:.2f} MB", f"100,000: {many:.2f} MB", f"{few / many:.2f} ×")
    e = figures["evaluation"]
    table.add_row(
        "MSLR setting: evaluation", f"{e['evaluate_seconds']:.2f} s", f"training {e['train_seconds']:.2f} s",
        f"{e['evaluate_over_train']:.0%}",
    )  # fmt: skip
    table.add_row("MQ2007 setting, all of it", f"{figures['published']['seconds']:.1f} s", "", "")
    for name, f in figures["reader"].items():
        table.add_row(
            f"{name}: LETOR text", f"{f['megabytes_per_second']:.0f} MB/s",
            f"sklearn {f['sklearn_megabytes_per_second']:.0f} MB/s", f"{f['parse_speedup']:.1f} ×",
        )  # fmt: skip
        table.add_row(
            f"{name}: cached load", f"{f['cached_seconds'] * 1e3:.1f} ms", "sklearn", f"{f['cached_speedup']:.0f} ×"
        )
    for n, f in figures["secure_sums"].items():
        table.add_row(
            f"secure sum of {int(n):,} clients × {f['length']}", f"{f['seconds']:.2f} s", "its key agreements",
            f"{f['ratio_to_key_agreements']:.2f} ×",
        )  # fmt: skip
        table.add_row(
            "  bytes that a client sends", f"{f['bytes_sent_per_client']:,.0f}", f"plain update {4 * f['length']:,}",
            f"{f['ratio_to_plain_float32_update']:.1f} ×",
        )  # fmt: skip
    table.add_row("second start to first round", f"{figures['start']['seconds_to_first_round']:.2f} s", "", "")
    return table

"""What a round costs on a Flower network of this machine: Quorank's rounds, and Flower's own FedAvg on the same nodes.

Both run on one network, one after the other: the same SuperLink with TLS and registered keys, the same nodes, as many
parameters, clients that do next to nothing. Quorank's tasks are split off a process that has Flower loaded
(`flower_executor`), FedAvg's are started as Flower starts them. Besides the clock's time there is the computing time of all
processes, which other work on the machine changes less. Memory counts pages that processes share once (proportional set
size).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from quorank.errors import require
from quorank.flower import app as flower_app
from quorank.flower.driver import Driver, SharedNodes
from quorank.flower.network import FlowerNetwork
from quorank.flower.worker import serve
from quorank.network.light_devices import Devices, DeviceTraffic
from quorank.network.load import coordinator_of

LONGEST = 120.0
"""Seconds after which a measurement is given up."""

ORDERS, BEGUN, DONE = "QUORANK_PLAIN", ".begun", ".done"
"""What `flower_plain` reads: the variable that names its orders, and where it answers."""

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def loopback_figures(nodes: int = 4, parameters: int = 136, rounds: int = 3) -> dict[str, Any]:
    """Seconds, computing time and memory per device and round: {"ours", "fedavg", "ratios", "seconds_to_start"}."""
    flower_app.check_installed()
    traffic = DeviceTraffic(nodes, parameters, rounds, drop=0.0, twice=0.0, garbage=0.0, delay=0, enough=1.0)
    with tempfile.TemporaryDirectory() as folder:
        orders, plain = Path(folder, "orders.json"), Path(folder, "plain")
        orders.write_text(json.dumps({"nodes": nodes, "parameters": parameters, "rounds": rounds}))
        _write_plain(plain)
        command = [sys.executable, "-m", "quorank.network.flower_bench", json.dumps(asdict(traffic))]
        began = time.perf_counter()
        with (
            _variable(ORDERS, str(orders)),
            FlowerNetwork(nodes, lambda path: [*command, str(path)], prepared=False) as network,
        ):
            up = time.perf_counter() - began
            _ours(network, replace(traffic, rounds=1), Path(folder))  # a rehearsal, as FedAvg has one
            ours = _measured(network, rounds, lambda: _ours(network, traffic, Path(folder)))
            network.transport.close()
            _executors_by_flower(network)
            _begin(network, plain, orders)
            theirs = _measured(network, rounds, lambda: _theirs(orders), ours=False)
    return {
        "nodes": nodes,
        "parameters": parameters,
        "rounds": rounds,
        "seconds_to_start": up,
        "ours": ours,
        "fedavg": theirs,
        "ratios": {name: ours[name] / theirs[name] for name in RATIOS if theirs[name] > 0.0},
    }


RATIOS = (
    "seconds_per_round",
    "cpu_seconds_per_device_and_round",
    "memory_bytes_per_device",
    "memory_bytes_server",
    "memory_bytes",
)


def _ours(network: FlowerNetwork, traffic: DeviceTraffic, folder: Path) -> list[float]:
    """When each of our rounds ended, the start first."""
    driver = Driver(network.transport, SharedNodes(network.names), tend=network.tend)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        coordinator, times = coordinator_of(traffic, Path(own)), [time.time()]
        while not coordinator.done:
            driver.round(coordinator)
            times.append(time.time())
            late = times[-1] - times[0] > LONGEST
            require(not late, "bench.too-slow", f"the network needed over {LONGEST:g} s for {len(times) - 1} rounds")
    return times


def _executors_by_flower(network: FlowerNetwork) -> None:
    """FedAvg is measured as Flower runs it; the nodes stay."""
    for executor in ("executor", *(f"{name}-executor" for name in network.names)):
        command, variables = network.recipes[executor]
        network.processes.kill(executor)
        network.start(executor, flower_app.by_flower(command), variables)


def _begin(network: FlowerNetwork, app: Path, orders: Path) -> None:
    """Start FedAvg's ServerApp, and wait for the end of its first round."""
    network.administrate([flower_app.submit(app)], wait=True)
    _wait(orders.with_name(orders.name + BEGUN))


def _theirs(orders: Path) -> list[float]:
    """When each of FedAvg's rounds ended."""
    times: list[float] = json.loads(_wait(orders.with_name(orders.name + DONE)))
    return times


def _wait(path: Path) -> str:
    end = time.monotonic() + LONGEST
    while not path.is_file():
        require(time.monotonic() < end, "bench.too-slow", f"Flower's FedAvg needed over {LONGEST:g} s for its rounds")
        time.sleep(0.05)
    return path.read_text()


def _measured(
    network: FlowerNetwork, rounds: int, play: Callable[[], list[float]], *, ours: bool = True
) -> dict[str, Any]:
    """What the rounds took. Ours need this process, the coordinator's, and the one that plays the clients as well."""
    groups = {name: child.process.pid for name, child in network.processes.children.items()}
    meter = Meter({name: group for name, group in groups.items() if ours or name != "worker"})
    before, own = meter.cpu(), time.process_time()
    with meter.running():
        times = play()
    used = sum(meter.cpu().values()) - sum(before.values()) + (time.process_time() - own if ours else 0.0)
    server = meter.most["executor"] + (proportional_bytes(Path("/proc/self")) if ours else 0)
    nodes = sum(meter.most[name] + meter.most[f"{name}-executor"] for name in network.names)
    worker = meter.most.get("worker", 0)
    return {
        "seconds_per_round": (times[-1] - times[0]) / rounds,
        "cpu_seconds_per_device_and_round": used / (rounds * network.nodes),
        "memory_bytes_per_device": nodes / network.nodes,
        "memory_bytes_worker": worker,  # plays the clients of all nodes here; on devices each has its own
        "memory_bytes_superlink": meter.most["superlink"],
        "memory_bytes_server": server,
        "memory_bytes": nodes + worker + meter.most["superlink"] + server,
    }


@dataclass(eq=False)
class Meter:
    """Computing time and memory of process groups, by name."""

    groups: dict[str, int]
    every: float = 0.3  # seconds between two looks at the memory
    most: dict[str, int] = field(default_factory=dict, init=False)

    def cpu(self) -> dict[str, float]:
        """Seconds that the processes of each group, and those that they have seen the end of, have computed."""
        found = dict.fromkeys(self.groups, 0.0)
        for name, _, words in self._members():
            found[name] += sum(map(int, words[11:15])) / _TICKS
        return found

    def look(self) -> None:
        """Note the memory of each group, where it is more than ever before."""
        now = dict.fromkeys(self.groups, 0)
        for name, entry, _ in self._members():
            now[name] += proportional_bytes(entry)
        self.most = {name: max(value, self.most.get(name, 0)) for name, value in now.items()}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look again and again in a thread."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(self.every):
                self.look()

        self.look()
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _members(self) -> Iterator[tuple[str, Path, list[str]]]:
        """(group, process, what the system says of it)."""
        names = {group: name for name, group in self.groups.items()}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                words = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has just ended
            if int(words[2]) in names:
                yield names[int(words[2])], entry, words


def proportional_bytes(entry: Path) -> int:
    """A process's memory, pages that n processes share counted 1/n each; 0 where the system does not say."""
    try:
        lines = (entry / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _write_plain(folder: Path) -> None:
    """Our app with Flower's own strategy in it."""
    flower_app.write_app(folder)
    file = folder / "pyproject.toml"
    text = file.read_text()
    for part in ("server", "client"):
        text = text.replace(f"quorank.network.flower_{part}:app", f"quorank.flower.plain:{part}")
    file.write_text(text.replace("quorank-app", "quorank-plain"))


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def main(arguments: list[str]) -> None:
    """The process that plays the light devices of all nodes: `flower_bench TRAFFIC SOCKET`."""
    devices = Devices(DeviceTraffic(**json.loads(arguments[0])))
    serve(Path(arguments[1]), lambda task: devices.answer("", task))


if __name__ == "__main__":
    main(sys.argv[1:])
